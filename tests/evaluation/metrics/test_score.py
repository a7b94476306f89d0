"""Every metric against scikit-learn, or against a loop where it has none."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from sklearn import metrics as sk
from torch import Tensor

import oracles
from helpers.cases import Batch, batches, make_batch
from rectifier import LabelSpace, class_balanced_accuracy, class_counts
from rectifier.evaluation.metrics.catalogue import METRICS
from rectifier.evaluation.metrics.ranking import (
    average_precision,
    calibration_error,
    group_top_k,
    negative_log_likelihood,
    top_k_sensitivity,
)
from rectifier.evaluation.metrics.score import ClassScores, score
from rectifier.evaluation.rows import as_rows, nest
from rectifier.evaluation.rules import prior_offsets
from rectifier.labels.columns import argmax, softmax


def parts(batch: Batch) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, int, int]]:
    """Label by label: logits, targets and predictions of the samples that have it, first column and size."""
    predicted = argmax(batch.logits, tuple(batch.sizes))
    found, first = [], 0
    for a, size in enumerate(batch.sizes):
        kept = batch.targets[:, a] >= 0
        own = batch.logits[kept, first : first + size]
        found.append((own.numpy(), batch.targets[kept, a].numpy(), predicted[kept, a].numpy(), first, size))
        first += size
    return found


def scores_of(batch: Batch) -> ClassScores:
    sizes = tuple(batch.sizes)
    return ClassScores.of(argmax(batch.logits, sizes), batch.targets, sizes)


@given(batches(most_labels=4, most_classes=12))
def test_scores_of_classes_and_labels(batch: Batch) -> None:
    found = scores_of(batch)
    for a, (_, own, predicted, first, size) in enumerate(parts(batch)):
        if not len(own):
            assert found.accuracy[a].isnan()
            continue
        present = np.unique(own)
        columns = first + present
        options = dict(labels=present, average=None, zero_division=0)
        recall = sk.recall_score(own, predicted, **options)
        np.testing.assert_allclose(found.sensitivity[columns], recall)
        np.testing.assert_array_equal(found.predicted[columns], [(predicted == k).sum() for k in present])
        np.testing.assert_allclose(found.f1[columns], sk.f1_score(own, predicted, **options))
        assert found.accuracy[a] == pytest.approx(np.mean(own == predicted))
        assert found.label_mean(found.sensitivity)[a] == pytest.approx(recall.mean())
        assert found.g_mean[a] == pytest.approx(recall.prod() ** (1 / len(recall)), abs=1e-12)
        absent = sorted(set(range(first, first + size)) - set(columns))
        assert found.sensitivity[absent].isnan().all()


@given(batches(most_labels=3, most_classes=9))
def test_average_precision(batch: Batch) -> None:
    found = average_precision(softmax(batch.logits, tuple(batch.sizes)), batch.targets, tuple(batch.sizes))
    for logits, own, _, first, size in parts(batch):
        probability = torch.from_numpy(logits).softmax(1).numpy() if len(own) else logits
        for k in range(size):
            if (own == k).any():
                expected = sk.average_precision_score(own == k, probability[:, k])
                assert found[first + k] == pytest.approx(expected)
            else:
                assert found[first + k].isnan()


@given(batches(most_labels=3, most_classes=12))
def test_top_k(batch: Batch) -> None:
    for k in (1, 3, 5):
        found = top_k_sensitivity(batch.logits, batch.targets, tuple(batch.sizes), k)
        for logits, own, _, first, size in parts(batch):
            for c in range(size):
                hits = [(row >= row[c]).sum() <= k for row, o in zip(logits, own, strict=True) if o == c]
                if hits:
                    assert found[first + c] == pytest.approx(np.mean(hits))
                else:
                    assert found[first + c].isnan()


def test_top_one_is_sensitivity_where_nothing_ties() -> None:
    batch = make_batch([4, 9], 50)
    torch.testing.assert_close(
        top_k_sensitivity(batch.logits, batch.targets, (4, 9), 1), scores_of(batch).sensitivity, equal_nan=True
    )


@given(batches(most_labels=3, most_classes=9))
def test_calibration_error(batch: Batch) -> None:
    found = calibration_error(batch.logits, batch.targets, tuple(batch.sizes), bins=7)
    for a, (logits, own, predicted, _, _) in enumerate(parts(batch)):
        if not len(own):
            assert found[a].isnan()
            continue
        confidence = torch.from_numpy(logits).softmax(1).amax(1).numpy()
        total = 0.0
        for bin_ in range(7):
            inside = (np.floor(confidence * 7).clip(max=6)) == bin_
            if inside.any():
                total += inside.sum() * abs(confidence[inside].mean() - (predicted == own)[inside].mean())
        assert found[a] == pytest.approx(total / len(own))


@given(batches(most_labels=3, most_classes=9))
def test_calibration_error_of_other_decisions(batch: Batch) -> None:
    """The probability of the class that was decided for, though another may be more probable."""
    sizes = tuple(batch.sizes)
    decided = argmax(batch.logits.flip(0), sizes)
    found = calibration_error(batch.logits, batch.targets, sizes, bins=7, predicted=decided)
    for a, probability in enumerate(oracles.softmax_per_label(batch.logits, batch.sizes)):
        there = batch.targets[:, a] >= 0
        if not there.any():
            assert found[a].isnan()
            continue
        chosen = probability[there].tolist(), batch.targets[there, a].tolist(), decided[there, a].tolist()
        assert found[a] == pytest.approx(oracles.calibration_error_of(*chosen, 7))
    plain = calibration_error(batch.logits, batch.targets, sizes, predicted=argmax(batch.logits, sizes))
    assert torch.equal(plain.nan_to_num(-1), calibration_error(batch.logits, batch.targets, sizes).nan_to_num(-1))


@given(batches(most_labels=4, most_classes=9))
def test_negative_log_likelihood(batch: Batch) -> None:
    found = negative_log_likelihood(batch.logits, batch.targets, tuple(batch.sizes))
    sums = oracles.negative_log_likelihood(batch.logits, batch.targets, batch.sizes)
    for a, total in enumerate(sums):
        samples = int((batch.targets[:, a] >= 0).sum())
        assert found[a] == pytest.approx(total / samples) if samples else found[a].isnan()


def test_groups_of_binary_labels() -> None:
    g = torch.Generator().manual_seed(0)
    logits, targets = torch.randn(30, 14, generator=g), torch.randint(-1, 2, (30, 7), generator=g)
    groups = torch.tensor([0, 0, 0, 1, 1, 1, 1])
    found = group_top_k(logits, targets, groups, k=2)
    for a in range(7):
        members = [b for b in range(7) if groups[b] == groups[a]]
        hits = []
        for i in range(30):
            if targets[i, a] == 1:
                ranked = sorted(members, key=lambda b, i=i: -float(logits[i, 2 * b + 1] - logits[i, 2 * b]))
                hits.append(a in ranked[:2])
        assert found[a] == pytest.approx(np.mean(hits))


SPACE = LabelSpace.from_names({"kind": ["a", "b"], "shade": ["x", "y", "z", "w"]})


def scored(logits: Tensor, targets: Tensor, space: LabelSpace, **options: Any) -> dict[str, Any]:
    """Return the scores as metrics.json nests them."""
    rows = as_rows(("test", "argmax", *row) for row in score(logits, targets, space, **options))
    found: dict[str, Any] = nest(rows)["test"]["rules"]["argmax"]
    return found


def example() -> tuple[Tensor, Tensor, list[Tensor]]:
    batch = make_batch([2, 4], 200, missing=0.1, skew=3.0)
    return batch.logits, batch.targets, class_counts(batch.targets, SPACE)


def test_score_holds_all_metrics_in_strict_json() -> None:
    logits, targets, counts = example()
    found = scored(logits, targets, SPACE, train_counts=counts)
    json.dumps(found, allow_nan=False)
    assert found["class_balanced_accuracy"] == pytest.approx(class_balanced_accuracy(logits, targets, SPACE).item())
    mean = np.mean([found["labels"][name]["class_balanced_accuracy"] for name in SPACE.names])
    assert found["class_balanced_accuracy"] == pytest.approx(mean)
    assert found["labels"]["shade"]["samples"] == {c: int(n) for c, n in zip("xyzw", counts[1], strict=True)}
    assert {"accuracy", "macro_f1", "g_mean", "mean_average_precision", "expected_calibration_error"} <= set(found)


def test_absent_classes_are_shown_and_left_out() -> None:
    logits = torch.tensor([[2.0, 0.0, 1.0], [2.0, 0.0, 1.0]])
    space = LabelSpace.from_names({"kind": ["a", "b", "c"]})
    found = scored(logits, torch.tensor([[0], [2]]), space, train_counts=[torch.tensor([500, 50, 5])])
    assert found["absent"] == 1
    assert found["labels"]["kind"]["sensitivity"] == {"a": 1.0, "b": None, "c": 0.0}
    assert (found["many"], found["medium"], found["few"]) == (1.0, None, 0.0)
    assert found["class_balanced_accuracy"] == 0.5
    assert found["g_mean"] == 0.0


@pytest.mark.parametrize(("count", "shots"), [(101, "many"), (100, "medium"), (20, "medium"), (19, "few")])
def test_the_borders_of_many_and_few(count: int, shots: str) -> None:
    space = LabelSpace.from_names({"kind": ["a"]})
    found = scored(torch.zeros(1, 1), torch.tensor([[0]]), space, train_counts=[torch.tensor([count])])
    assert {name for name in ("many", "medium", "few") if found[name] is not None} == {shots}


def test_a_rule_is_its_offsets() -> None:
    logits, targets, counts = example()
    offsets = prior_offsets(counts)
    found = scored(logits, targets, SPACE, train_counts=counts, offsets=offsets)
    again = scored(logits + offsets, targets, SPACE, train_counts=counts)
    assert found["class_balanced_accuracy"] == pytest.approx(again["class_balanced_accuracy"])
    assert (
        found["class_balanced_accuracy"]
        != scored(logits, targets, SPACE, train_counts=counts)["class_balanced_accuracy"]
    )


def test_calibrated_logits_are_beliefs_and_not_decisions() -> None:
    logits, targets, counts = example()
    plain = scored(logits, targets, SPACE, train_counts=counts)
    both = scored(logits, targets, SPACE, train_counts=counts, calibrated=-logits)
    more = {"calibrated_nll", "calibrated_expected_calibration_error"}
    assert set(both) - set(plain) == more
    assert {key: value for key, value in both.items() if key not in {*more, "labels"}} == {
        key: value for key, value in plain.items() if key != "labels"
    }
    assert both["calibrated_nll"] != plain["nll"]
    same = scored(logits, targets, SPACE, train_counts=counts, calibrated=logits)
    assert same["calibrated_nll"] == plain["nll"]
    assert same["calibrated_expected_calibration_error"] == plain["expected_calibration_error"]
    assert more <= set(both["labels"]["kind"])


def test_groups_are_scored_where_names_tell_them() -> None:
    names = ["texture/floral", "texture/striped", "style/chic", "style/retro"]
    space = LabelSpace.from_names({name: ["no", "yes"] for name in names})
    g = torch.Generator().manual_seed(0)
    logits, targets = torch.randn(20, 8, generator=g), torch.randint(0, 2, (20, 4), generator=g)
    found = scored(logits, targets, space, train_counts=class_counts(targets, space))
    assert found["group_top5"] == {"texture": 1.0, "style": 1.0}  # five of two are all


def test_nothing_to_scored() -> None:
    space = LabelSpace.from_names({"kind": ["a", "b"]})
    found = scored(torch.zeros(2, 2), torch.tensor([[-1], [-1]]), space, train_counts=[torch.tensor([1, 1])])
    assert found["class_balanced_accuracy"] is None
    assert not any(isinstance(value, float) and math.isnan(value) for value in found.values())


def test_counts_of_another_space() -> None:
    with pytest.raises(ValueError, match="train_counts to be a count for each of the 6 classes, but got 2"):
        scored(torch.zeros(1, 6), torch.tensor([[0, 0]]), SPACE, train_counts=[torch.tensor([1, 1])])


@pytest.mark.parametrize("offsets", [None, torch.zeros(4), prior_offsets(torch.tensor([9, 9, 9, 9]))])
def test_the_first_class_wins_a_tie(offsets: Tensor | None) -> None:
    """Of four equal scores, whether logits tie or logits with offsets."""
    space = LabelSpace.from_sizes([4])
    logits, targets, counts = torch.full((4, 4), 0.3), torch.arange(4)[:, None], [torch.tensor([9, 9, 9, 9])]
    found = scored(logits, targets, space, train_counts=counts, offsets=offsets)
    assert found["labels"]["label0"]["sensitivity"] == {"0": 1.0, "1": 0.0, "2": 0.0, "3": 0.0}


def test_offsets_that_make_a_tie_leave_it_to_the_first_class() -> None:
    space, counts = LabelSpace.from_sizes([2]), [torch.tensor([5, 5])]
    for gap, first in ((0.5, 1.0), (0.625, 0.0)):  # exact in binary
        found = scored(
            torch.tensor([[1.0, 0.5]]),
            torch.tensor([[0]]),
            space,
            train_counts=counts,
            offsets=torch.tensor([0.0, gap]),
        )
        assert found["labels"]["label0"]["sensitivity"]["0"] == first


def test_every_metric_is_in_the_catalogue_at_its_level() -> None:
    names = ["texture/floral", "texture/striped", "style/chic", "style/retro"]
    space = LabelSpace.from_names({name: ["no", "yes"] for name in names})
    logits, targets = torch.randn(20, 8), torch.arange(80).view(20, 4) % 2
    counts = class_counts(targets, space)
    found = list(score(logits, targets, space, train_counts=counts, calibrated=logits))
    levels: dict[str, set[str]] = {}
    for label, name, metric, _ in found:
        level = "class" if name else "overall" if label is None else "label" if label in names else "group"
        levels.setdefault(metric, set()).add(level)
    assert levels == {key: set(metric.levels) for key, metric in METRICS.items() if key != "rarest"}
    assert list(dict.fromkeys(metric for _, _, metric, _ in found)) == [key for key in METRICS if key != "rarest"]
