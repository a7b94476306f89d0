"""Slow twins of the baselines: sample by sample, class by class."""

from __future__ import annotations

from collections.abc import Sequence


def constant_answer(train: Sequence[Sequence[int]], held_out: Sequence[Sequence[int]]) -> float:
    """Return the class-balanced accuracy of the most frequent training class of each label."""
    scores = []
    for label in range(len(train[0])):
        known = [row[label] for row in train if row[label] >= 0]
        answer = max(sorted(set(known)), key=known.count)
        wanted = [row[label] for row in held_out if row[label] >= 0]
        if not wanted:
            continue
        recalls = []
        for name in set(wanted):
            own = [target for target in wanted if target == name]
            recalls.append(sum(answer == target for target in own) / len(own))
        scores.append(sum(recalls) / len(recalls))
    return sum(scores) / len(scores)
