"""Train, validation and test: a seeded split that is stratified over all labels at once."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rectifier._base import check
from rectifier.data.dataset import PARTS
from rectifier.labels import columns
from rectifier.labels.space import LabelSpace

SHARES = (0.8, 0.1, 0.1)
_ENDS = 512  # bytes that tell most files apart
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
_MOST_TRIED = 256  # moves compared to fill one hole
_MOST_MOVES = 20_000  # of a repair
_ANY_MOVE = 0.2  # share of the moves that are random
_SPARED = 1e-3  # what a class too small for every part counts in train, beside 1 for a hole


def stratified_split(
    targets: Tensor,
    sizes: Sequence[int] | LabelSpace,
    *,
    shares: Sequence[float] = SHARES,
    seed: int = 0,
    groups: Sequence[object] | None = None,
) -> Tensor:
    """Deal samples out to train, validation and test: int64 ``(N,)``, 0, 1 or 2, nearly equal shares of every class.

    Every class of every label with three or more samples has at least one in each part, as far as the labels allow:
    when each of three samples is bound to a part by another rare class, ``uncovered`` tells. A class of one or two
    samples goes where the largest share goes, to train as a rule. A part of share 0 stays empty. ``groups`` names what
    must stay together (duplicates, one patient's images): equal entries end in one part, and a class is then counted in
    groups.

    Classes are dealt out from the rarest to the most frequent, each in the proportions that it still lacks.

    >>> targets = torch.tensor([[0]] * 20 + [[1]] * 3)
    >>> split = stratified_split(targets, [2])
    >>> [sorted(split[targets[:, 0] == c].unique().tolist()) for c in (0, 1)]
    [[0, 1, 2], [0, 1, 2]]
    """
    check.raise_all(
        [
            check.that(
                "shares", shares, "three numbers for train, validation and test, the first above 0", _ok(shares)
            ),
            check.that("seed", seed, "a non-negative integer", check.is_natural(seed)),
        ]
    )
    units, unit_of_sample = _units(len(targets), groups)
    incidence = _Incidence.of(targets, columns.as_sizes(sizes), unit_of_sample, units)
    random = np.random.default_rng(seed)
    wanted = np.asarray(shares, float) / sum(shares)
    part = _deal(incidence, wanted, random)
    part = _repair(part, incidence, wanted > 0, random)
    return torch.from_numpy(part[unit_of_sample])


def uncovered(
    targets: Tensor, sizes: Sequence[int] | LabelSpace, split: Tensor, parts: Sequence[int] = range(len(PARTS))
) -> list[int]:
    """Return the columns of the classes that have samples, but none in one of ``parts``."""
    resolved = columns.as_sizes(sizes)
    own = columns.own_columns(columns.as_targets(targets, resolved), resolved)
    seen = torch.zeros(len(PARTS), sum(resolved) + 1, dtype=torch.bool)
    seen[split[:, None].expand_as(own), own] = True  # a missing label is -1, the column behind the last
    somewhere, everywhere = seen.any(0), seen[list(parts)].all(0)
    return (somewhere & ~everywhere)[:-1].nonzero()[:, 0].tolist()


def drop_rare(
    targets: Tensor, space: LabelSpace, fewest: int = 3, groups: Sequence[object] | None = None
) -> tuple[Tensor, LabelSpace, dict[str, list[str]]]:
    """Leave out the classes with fewer than ``fewest`` samples (or groups): their samples miss that label.

    Returns the new targets, the new label space, and the names of the classes left out, label by label.
    """
    units, unit_of_sample = _units(len(targets), groups)
    incidence = _Incidence.of(targets, space.sizes, unit_of_sample, units)
    keep = torch.from_numpy(incidence.units_per_class >= fewest)
    kept_classes, dropped, new = {}, {}, []
    for a, (name, first) in enumerate(zip(space.names, space.offsets, strict=True)):
        mask = keep[first : first + space.sizes[a]]
        index = torch.where(mask, mask.cumsum(0) - 1, -1)
        kept_classes[name] = [c for c, k in zip(space.classes[a], mask, strict=True) if k]
        dropped[name] = [c for c, k in zip(space.classes[a], mask, strict=True) if not k]
        if not kept_classes[name]:
            check.fail(f"label {name!r}", f"a class with at least {fewest} samples", "none")
        new.append(torch.where(targets[:, a] >= 0, index[targets[:, a].clamp(min=0)], -1))
    return torch.stack(new, 1), LabelSpace.from_names(kept_classes), {n: c for n, c in dropped.items() if c}


def duplicate_groups(root: Path, paths: Sequence[str]) -> list[object]:
    """Return one entry per file, equal for files of equal content. A file that cannot be read stands alone.

    Files are told apart by their length, then by their first and last bytes; only what is still alike is read whole.
    """
    groups: list[object] = [None] * len(paths)  # all alike, until looked at
    for look in (_length, _ends, _content):
        files = Counter(groups)
        for position, path in enumerate(paths):
            if files[groups[position]] > 1:
                seen = look(root / path)
                groups[position] = path if seen is None else seen
    return groups


def _length(path: Path) -> object:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _ends(path: Path) -> object:
    try:
        with path.open("rb") as file:
            first = file.read(_ENDS)
            length = file.seek(0, 2)
            file.seek(max(length - _ENDS, 0))
            return length, hashlib.sha256(first + file.read(_ENDS)).digest()
    except OSError:
        return None


def _content(path: Path) -> object:
    try:
        return hashlib.sha256(path.read_bytes()).digest()
    except OSError:
        return None


def joined(*namings: Sequence[object]) -> list[object]:
    """Return one entry per sample, equal for samples that any naming gives equal names, directly or by way of others.

    >>> joined(["a", "a", "b", "c"], [1, 2, 2, 3])
    [0, 0, 0, 3]
    """
    leader = list(range(len(namings[0])))

    def first_of(sample: int) -> int:
        while leader[sample] != sample:
            leader[sample] = sample = leader[leader[sample]]
        return sample

    for naming in namings:
        seen: dict[object, int] = {}
        for sample, name in enumerate(naming):
            ends = first_of(sample), first_of(seen.setdefault(name, sample))
            leader[max(ends)] = min(ends)
    return [first_of(sample) for sample in range(len(leader))]


def describe_dropped(dropped: dict[str, list[str]], fewest: int = 3) -> tuple[str, ...]:
    """Say in one sentence which classes ``drop_rare`` left out."""
    total = sum(map(len, dropped.values()))
    if not total:
        return ()
    listed = ", ".join(f"{name} {len(classes)}" for name, classes in dropped.items())
    return (f"{check.amount(total, 'class')} with fewer than {fewest} different images left out ({listed}).",)


@dataclass(frozen=True)
class _Incidence:
    """Which units (groups of samples) hold which classes: both directions as sorted pairs."""

    classes: Ints  # of each pair, ascending
    units: Ints  # of each pair
    class_start: Ints  # (K + 1,)
    by_unit: Ints  # the pairs' classes sorted by unit
    unit_start: Ints  # (U + 1,)

    @classmethod
    def of(cls, targets: Tensor, sizes: Sequence[int], unit_of_sample: Ints, units: int) -> _Incidence:
        resolved = columns.as_sizes(sizes)
        own = columns.own_columns(columns.as_targets(targets, resolved), resolved).numpy()
        total = sum(resolved)
        pairs = np.where(own >= 0, own * units + unit_of_sample[:, None], -1).ravel()
        pairs = np.sort(pairs[pairs >= 0])  # np.unique hashes, which takes far longer
        pairs = pairs[np.diff(pairs, prepend=-1) > 0]
        classes, members = pairs // units, pairs % units
        order = np.argsort(members, kind="stable")
        return cls(
            classes,
            members,
            np.searchsorted(classes, np.arange(total + 1)),
            classes[order],
            np.searchsorted(members[order], np.arange(units + 1)),
        )

    @property
    def units_per_class(self) -> Ints:
        return np.diff(self.class_start)

    def units_of(self, label_class: int) -> Ints:
        return self.units[self.class_start[label_class] : self.class_start[label_class + 1]]

    def classes_of(self, unit: int) -> Ints:
        return self.by_unit[self.unit_start[unit] : self.unit_start[unit + 1]]

    def part_counts(self, part: Ints) -> Ints:
        """Count each class's units in each part: ``(K, parts)``."""
        counts = np.zeros((len(self.class_start) - 1, len(PARTS)), np.int64)
        np.add.at(counts, (self.classes, part[self.units]), 1)
        return counts


def _units(samples: int, groups: Sequence[object] | None) -> tuple[int, Ints]:
    """Number the groups from 0 in the order of their first samples; without groups every sample is its own."""
    if groups is None:
        return samples, np.arange(samples)
    groups = groups.tolist() if hasattr(groups, "tolist") else groups  # a tensor's elements are never equal as keys
    if len(groups) != samples:
        check.fail("groups", f"one entry for each of the {samples} samples", f"{len(groups)}")
    number: dict[object, int] = {}
    unit = np.fromiter((number.setdefault(g, len(number)) for g in groups), np.int64, samples)
    return len(number), unit


def _deal(incidence: _Incidence, wanted: Floats, random: np.random.Generator) -> Ints:
    part = np.full(len(incidence.unit_start) - 1, -1)
    rarest_first = np.argsort(incidence.units_per_class, kind="stable")
    for members in (*map(incidence.units_of, rarest_first), np.arange(len(part))):  # at last those without any label
        dealt = part[members]
        free = members[dealt < 0]
        if len(free):
            placed = np.bincount(dealt[dealt >= 0], minlength=len(PARTS))
            part[random.permutation(free)] = _parts_of(len(free), placed, wanted)
    return part


def _parts_of(free: int, placed: Ints, wanted: Floats) -> Ints:
    """Return the parts of ``free`` units, ascending, which with those ``placed`` come near the shares ``wanted``."""
    total = free + placed.sum()
    lacking = np.maximum(wanted * total - placed, 0)
    count = _rounded(lacking * (free / lacking.sum()), free)
    if total >= (wanted > 0).sum():
        for empty in np.flatnonzero((wanted > 0) & (placed + count == 0)):
            giver = np.where(count > 0, placed + count, 0).argmax()
            if count[giver] > 0 and placed[giver] + count[giver] > 1:
                count[giver] -= 1
                count[empty] += 1
    return np.repeat(np.arange(len(PARTS)), count)


def _rounded(exact: Floats, total: int) -> Ints:
    """Round to whole numbers that add up to ``total``: the largest remainders are rounded up."""
    whole = np.floor(exact).astype(np.int64)
    whole[np.argsort(whole - exact, kind="stable")[: total - whole.sum()]] += 1
    return whole


def _repair(part: Ints, incidence: _Incidence, used: NDArray[np.bool_], random: np.random.Generator) -> Ints:
    """Fill the holes: a class with no unit in a part, though it has enough for all that are ``used``.

    One unit moves at a time, of those that fill a hole the one that opens the fewest; now and then any of them, or the
    walk would go in circles. Among equal moves it spares a smaller class its place in train. Returns the parts with the
    fewest holes that it came by.
    """
    large = incidence.units_per_class >= used.sum()
    needed = large[:, None] & used
    worth = needed.astype(np.float64)
    worth[~large, 0] = _SPARED
    counts = incidence.part_counts(part)
    best, fewest = part.copy(), counts.size
    for _ in range(min(1000 + 20 * len(counts), _MOST_MOVES)):
        holes = np.argwhere(needed & (counts == 0))
        if len(holes) < fewest:
            best, fewest = part.copy(), len(holes)
        if not len(holes):
            break
        label_class, goal = holes[random.integers(len(holes))]
        candidates = random.permutation(incidence.units_of(label_class))[:_MOST_TRIED]
        if random.random() >= _ANY_MOVE:
            losses = [_loss(incidence.classes_of(u), part[u], goal, counts, worth) for u in candidates]
            candidates = candidates[[int(np.argmin(losses))]]
        unit = candidates[0]
        held = incidence.classes_of(unit)
        counts[held, part[unit]] -= 1
        counts[held, goal] += 1
        part[unit] = goal
    return best


def _loss(held: Ints, source: int, goal: int, counts: Ints, worth: Floats) -> float:
    """Say what is lost when a unit that holds these classes moves: the holes it opens, less those it fills."""
    opened = worth[held, source] @ (counts[held, source] == 1)
    filled = worth[held, goal] @ (counts[held, goal] == 0)
    return float(opened - filled)


def _ok(shares: Sequence[float]) -> bool:
    return len(shares) == len(PARTS) and all(check.is_real(s) and s >= 0 for s in shares) and shares[0] > 0
