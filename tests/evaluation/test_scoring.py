"""The decision rules of a run against loops, and what may and may not change them."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import oracles
from helpers.cases import Batch, batches, make_batch
from rectifier import LabelSpace, class_counts
from rectifier.evaluation.rows import nest
from rectifier.evaluation.rules import TemperatureScaling, TunedThresholds
from rectifier.evaluation.rules.prior import TAUS
from rectifier.evaluation.rules.thresholds import PAPER_STRENGTHS
from rectifier.evaluation.scoring import FOLDS, POSTHOC, RULES, fit_rules, score_rules, with_posthoc
from rectifier.methods import METHODS, find_method
from rectifier.training.run.predictions import Predictions
from rectifier.training.run.results import score_predictions

SIZES = [2, 3, 5]
SPACE = LabelSpace.from_sizes(SIZES)
COUNTS = class_counts(make_batch(SIZES, 400, seed=9, skew=4.0).targets, SIZES)


def validation(seed: int = 0, samples: int = 80, missing: float = 0.2) -> Batch:
    return make_batch(SIZES, samples, seed, missing=missing, dtype=torch.float32)


def fitted(
    batch: Batch, counts: list[Tensor] = COUNTS, posthoc: str | None = None, extra: Sequence[str] = (), **options: Any
) -> dict[str, Any]:
    given = batch.logits, batch.targets, LabelSpace.from_sizes(batch.sizes), counts
    rules = fit_rules(*given, posthoc, **options)
    for name in extra:
        rules = with_posthoc(rules, name, *given)
    return rules


def scored(logits: Tensor, targets: Tensor, rules: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = nest(score_rules("test", logits, targets, SPACE, COUNTS, rules))["test"]
    return found


def in_sample(batch: Batch, offsets: list[float]) -> float:
    return oracles.class_balanced_accuracy(batch.logits + torch.tensor(offsets), batch.targets, batch.sizes)


def decisions(logits: Tensor, offsets: list[float], sizes: list[int]) -> list[list[int]]:
    shifted = (logits + torch.tensor(offsets)).split(sizes, 1)
    return torch.stack([block.argmax(1) for block in shifted], 1).tolist()


def slow_prior(counts: list[Tensor]) -> list[float]:
    """-log of the share of each class; a class without a sample has half of one."""
    offsets = []
    for label in counts:
        padded = [max(n, 0.5) for n in label.tolist()]
        offsets += [-math.log(n / sum(padded)) for n in padded]
    return offsets


def slow_adjustment(counts: list[Tensor], strength: float) -> list[float]:
    """p_k * exp(-r_k)^T, on the logits."""
    return [math.log(math.exp(-n / sum(label.tolist())) ** strength) for label in counts for n in label.tolist()]


def slow_best_of_two(scores: list[float], own: list[int]) -> float:
    """The best mean sensitivity of a binary label over all thresholds on the difference of its logits."""
    values = sorted(set(scores))
    best = 0.0
    for threshold in [values[0] - 1, *((a + b) / 2 for a, b in pairwise(values)), values[-1] + 1]:
        shares = []
        for c in sorted(set(own)):
            hits = [(s > threshold) == (c == 1) for s, o in zip(scores, own, strict=True) if o == c]
            shares.append(sum(hits) / len(hits))
        best = max(best, sum(shares) / len(shares))
    return best


# The offsets of each rule


def test_argmax_adds_nothing_and_prior_takes_the_log_prior_off() -> None:
    offsets = fitted(validation())["offsets"]
    assert list(offsets) == list(RULES)
    assert offsets["argmax"] == [0.0] * sum(SIZES)
    assert offsets["prior"] == pytest.approx(slow_prior(COUNTS), abs=1e-6)


def test_a_class_without_training_samples_has_a_finite_prior() -> None:
    counts = [torch.tensor([9, 0]), *COUNTS[1:]]
    found = fitted(validation(), counts)["offsets"]["prior"]
    assert found == pytest.approx(slow_prior(counts), abs=1e-6)


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.booleans(), st.sampled_from([0.0, 0.3]))
def test_tuned_is_exact_for_two_classes(seed: int, ties: bool, missing: float) -> None:
    batch = make_batch([2, 2], 30, seed, ties=ties, missing=missing, dtype=torch.float32)
    offsets = torch.tensor(fitted(batch, [torch.tensor([40, 10]), torch.tensor([5, 45])])["offsets"]["tuned"])
    for a in range(2):
        labelled = batch.targets[:, a] >= 0
        if not labelled.any():
            continue
        own, columns = batch.targets[labelled, a], slice(2 * a, 2 * a + 2)
        logits = batch.logits[labelled, columns]
        best = slow_best_of_two((logits[:, 1].double() - logits[:, 0].double()).tolist(), own.tolist())
        found = oracles.class_balanced_accuracy(logits.double() + offsets[columns].double(), own[:, None], [2])
        assert found == pytest.approx(best, abs=1e-9)


@settings(max_examples=40)
@given(batches(most_labels=3, most_classes=9, most_samples=40), st.integers(0, 10**6))
def test_tuned_is_never_below_prior_on_validation(batch: Batch, seed: int) -> None:
    if not (batch.targets >= 0).any():
        return
    counts = class_counts(make_batch(batch.sizes, 300, seed, skew=4.0).targets, batch.sizes)
    offsets = fitted(batch, counts)["offsets"]
    assert in_sample(batch, offsets["tuned"]) >= in_sample(batch, offsets["prior"]) - 1e-6


# A search found these: climbing from the prior alone ends on a hill that is lower than where argmax stands.
@pytest.mark.parametrize(
    ("size", "samples", "seed", "scale", "counts"),
    [
        (3, 10, 900, 0.1, [221, 9, 58]),
        (4, 10, 597, 1.0, [11, 294, 5, 55]),
        (3, 20, 1544, 0.1, [5, 86, 34]),
        (5, 40, 0, 2.0, [400, 30, 20, 10, 5]),
    ],
)
def test_tuned_is_never_below_argmax_on_validation(
    size: int, samples: int, seed: int, scale: float, counts: list[int]
) -> None:
    batch = make_batch([size], samples, seed, skew=1.0, scale=scale, dtype=torch.float32)
    offsets = fitted(batch, [torch.tensor(counts)])["offsets"]
    assert in_sample(batch, offsets["tuned"]) >= in_sample(batch, offsets["argmax"]) - 1e-6


def test_threshold_adjustment_has_the_best_strength_on_validation() -> None:
    batch = validation(seed=3)
    found = fitted(batch, posthoc="threshold-adjustment")["offsets"]["argmax"]
    scores = {t: in_sample(batch, slow_adjustment(COUNTS, t)) for t in PAPER_STRENGTHS}
    best = max(scores, key=lambda t: scores[t])
    assert found == pytest.approx(slow_adjustment(COUNTS, best), abs=1e-6)


def test_logit_adjustment_has_the_best_tau_on_validation() -> None:
    batch = validation(seed=3)
    found = fitted(batch, posthoc="logit-adjustment")["offsets"]["argmax"]
    offsets = {tau: [tau * offset for offset in slow_prior(COUNTS)] for tau in TAUS}
    scores = {tau: in_sample(batch, offsets[tau]) for tau in TAUS}
    best = max(scores, key=lambda tau: scores[tau])
    assert len(set(scores.values())) > 1
    assert best not in (0, 1)  # or it would be another rule
    assert found == pytest.approx(offsets[best], abs=1e-6)


def test_the_methods_own_step_is_its_argmax() -> None:
    batch = validation()
    found = {"validation": Predictions(batch.logits, batch.targets, tuple(map(str, range(80))), SPACE)}
    rules = {name: score_predictions(found, COUNTS, name)[0]["offsets"] for name in ("ce", "threshold-adjustment")}
    assert rules["ce"]["argmax"] != rules["threshold-adjustment"]["argmax"]
    assert rules["ce"]["argmax"] == [0.0] * sum(SIZES)
    for rule in ("prior", "tuned"):
        assert rules["ce"][rule] == rules["threshold-adjustment"][rule]
    own = {name: method.posthoc for name, method in METHODS.items() if method.posthoc}
    assert own == {"threshold-adjustment": "threshold-adjustment", "posthoc-logit-adjustment": "logit-adjustment"}


@pytest.mark.parametrize("step", POSTHOC)
def test_a_further_step_is_a_rule_of_its_own(step: str) -> None:
    batch = validation()
    plain, more = fitted(batch), fitted(batch, extra=[step])
    assert list(more["offsets"]) == list(more["validation"]) == [*RULES, step]
    assert more["offsets"][step] == fitted(batch, posthoc=step)["offsets"]["argmax"]
    assert {name: more["offsets"][name] for name in RULES} == plain["offsets"]


# Methods that already correct for class frequencies


def test_where_training_moves_the_threshold_prior_adds_nothing() -> None:
    batch = validation()
    plain, moved = fitted(batch), fitted(batch, moves_threshold=True)
    assert moved["offsets"]["prior"] == moved["offsets"]["argmax"] == [0.0] * sum(SIZES)
    assert moved["validation"]["prior"] == moved["validation"]["argmax"] == plain["validation"]["argmax"]
    assert moved["calibration"] == plain["calibration"]


def test_where_training_moves_the_threshold_tuning_starts_from_zeros() -> None:
    batch = validation()
    tuned = TunedThresholds(SIZES).fit(batch.logits, batch.targets).offsets.tolist()
    assert fitted(batch, moves_threshold=True)["offsets"]["tuned"] == tuned
    targets = batch.targets.clone()
    targets[:, 1] = -1
    nothing = fitted(batch._replace(targets=targets), moves_threshold=True)["offsets"]["tuned"][2:5]
    assert nothing == [0.0] * 3  # not the prior, which would correct a second time


def test_a_step_of_the_method_stays_with_its_argmax_where_the_threshold_has_moved() -> None:
    batch = validation(seed=3)
    moved = fitted(batch, posthoc="threshold-adjustment", moves_threshold=True)["offsets"]
    assert moved["argmax"] == fitted(batch, posthoc="threshold-adjustment")["offsets"]["argmax"]
    assert not any(moved["prior"])


@pytest.mark.parametrize("method", ["ce", "crl", "over-sampling", "logit-adjustment", "crl+class-balanced", "crt"])
def test_a_method_decides_whether_the_prior_is_subtracted(method: str) -> None:
    batch = validation()
    found = {"validation": Predictions(batch.logits, batch.targets, tuple(map(str, range(80))), SPACE)}
    rules, _ = score_predictions(found, COUNTS, method)
    assert rules == fitted(batch, moves_threshold=find_method(method).moves_threshold)
    assert any(rules["offsets"]["prior"]) == (method in ("ce", "crl"))


def test_all_further_steps_at_once() -> None:
    offsets = fitted(validation(), extra=list(POSTHOC))["offsets"]
    assert list(offsets) == [*RULES, "threshold-adjustment", "logit-adjustment"]
    assert offsets["threshold-adjustment"] != offsets["logit-adjustment"]


@pytest.mark.parametrize("how", [{"posthoc": "threshold-adjustmnt"}, {"extra": ["threshold-adjustmnt"]}])
def test_an_unknown_step(how: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"posthoc to be one of .*Did you mean 'threshold-adjustment'\?"):
        fitted(validation(), **how)


# What validation says of each rule


@pytest.mark.parametrize("rule", ["argmax", "prior", "threshold-adjustment"])
def test_validation_holds_the_balanced_accuracy_of_each_rule(rule: str) -> None:
    batch = validation()
    rules = fitted(batch, extra=["threshold-adjustment"])
    assert rules["validation"][rule] == pytest.approx(in_sample(batch, rules["offsets"][rule]), abs=1e-6)


@pytest.mark.parametrize("samples", [2, 4, 5, 13, 80])
def test_tuned_is_judged_on_samples_that_it_was_not_tuned_on(samples: int) -> None:
    batch = validation(seed=1, samples=samples, missing=0.0)
    fold = [place % FOLDS for place in torch.randperm(samples, generator=torch.Generator().manual_seed(0)).tolist()]
    adjusted = batch.logits.clone()
    for own in sorted(set(fold)):
        others = [i for i in range(samples) if fold[i] != own]
        rest = Batch(batch.logits[others], batch.targets[others], batch.features[others], SIZES)
        tuned = torch.tensor(fitted(rest)["offsets"]["tuned"])
        for i in (i for i in range(samples) if fold[i] == own):
            adjusted[i] += tuned
    expected = oracles.class_balanced_accuracy(adjusted, batch.targets, SIZES)
    assert fitted(batch)["validation"]["tuned"] == pytest.approx(expected, abs=1e-6)


def test_tuning_on_noise_is_not_preferred_for_having_seen_it() -> None:
    batch = validation(samples=60, missing=0.0)
    noise = Batch(torch.randn(60, sum(SIZES), generator=torch.Generator().manual_seed(1)), *batch[1:])
    rules = fitted(noise)
    assert rules["validation"]["tuned"] < in_sample(noise, rules["offsets"]["tuned"]) - 0.05


def test_the_preferred_rule_has_the_largest_score() -> None:
    preferred = set()
    for seed in range(12):
        rules = fitted(validation(seed, samples=40))
        scores = rules["validation"]
        assert scores[rules["preferred"]] == max(scores.values())
        preferred.add(rules["preferred"])
    assert len(preferred) > 1


def test_ties_go_to_the_simpler_rule() -> None:
    space, counts = LabelSpace.from_sizes([2]), [torch.tensor([90, 10])]
    targets = torch.tensor([[0], [1]] * 10)
    # Class 1 lacks 0.2 to win, class 0 wins by 4: the prior's ln 9 puts that right, and tuning finds nothing to gain.
    late = torch.tensor([[1.0, -3.0], [1.0, 0.8]] * 10)
    clear = torch.tensor([[5.0, -5.0], [-5.0, 5.0]] * 10)
    assert fit_rules(late, targets, space, counts)["validation"] == {"argmax": 0.5, "prior": 1.0, "tuned": 1.0}
    assert fit_rules(late, targets, space, counts)["preferred"] == "prior"
    rules = with_posthoc(
        fit_rules(clear, targets, space, counts), "threshold-adjustment", clear, targets, space, counts
    )
    assert set(rules["validation"].values()) == {1.0}
    assert rules["preferred"] == "argmax"


def test_argmax_wins_a_tie_with_tuned_where_the_prior_is_worse() -> None:
    """The prior's ln 9 is more than the logits differ by; tuning undoes it."""
    logits, targets = torch.tensor([[1.0, 0.0], [0.0, 1.0]] * 10), torch.tensor([[0], [1]] * 10)
    rules = fit_rules(logits, targets, LabelSpace.from_sizes([2]), [torch.tensor([90, 10])])
    assert rules["validation"] == {"argmax": 1.0, "prior": 0.5, "tuned": 1.0}
    assert rules["preferred"] == "argmax"


def test_of_two_climbs_that_end_alike_the_one_from_the_prior_is_taken() -> None:
    logits, targets = 99 * torch.eye(3), torch.arange(3)[:, None]
    offsets = fit_rules(logits, targets, LabelSpace.from_sizes([3]), [torch.tensor([60, 30, 10])])["offsets"]
    assert offsets["tuned"] == offsets["prior"]


# Calibration


def softmax_by_label(logits: Tensor, sizes: list[int]) -> list[list[list[float]]]:
    return [block.tolist() for block in oracles.softmax_per_label(logits.double(), sizes)]


def informed(seed: int = 0, samples: int = 80, missing: float = 0.2) -> Batch:
    """Logits that know something of the targets: without that, the best temperature is the largest of all."""
    batch = validation(seed, samples, missing)
    logits = batch.logits.clone()
    for i, row in enumerate(batch.targets.tolist()):
        for own, first in zip(row, SPACE.offsets, strict=True):
            logits[i, first + max(own, 0)] += 2 * (own >= 0)
    return batch._replace(logits=logits)


def test_the_calibration_is_a_temperature_of_the_plain_logits() -> None:
    batch = informed(seed=4)
    found = TemperatureScaling(SIZES).fit(batch.logits, batch.targets).temperatures.tolist()
    expected = {"temperatures": found, "sizes": SIZES}
    for posthoc in (None, *POSTHOC):
        assert fitted(batch, posthoc=posthoc)["calibration"] == expected
    assert len(set(expected["temperatures"])) == len(SIZES)
    assert all(1 < t < 10 for t in expected["temperatures"])


def test_hotter_logits_are_as_probable_after_calibration() -> None:
    batch, test = informed(seed=4, samples=200), informed(seed=5, samples=200)
    found = []
    for factor in (1.0, 3.0):
        rules = fitted(batch._replace(logits=factor * batch.logits))
        found.append(scored(factor * test.logits, test.targets, rules)["rules"]["argmax"])
    assert found[1]["calibrated_nll"] == pytest.approx(found[0]["calibrated_nll"], rel=1e-4)
    assert found[1]["nll"] > found[0]["nll"] + 0.5
    assert found[0]["calibrated_nll"] < found[0]["nll"]


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("rule", [*RULES, *POSTHOC])
def test_probabilities_are_scored_before_and_after_calibration(rule: str, missing: float) -> None:
    batch, test = informed(), informed(seed=7, missing=missing)
    rules = fitted(batch, extra=list(POSTHOC))
    found = scored(test.logits, test.targets, rules)["rules"][rule]
    adjusted = test.logits.double() + torch.tensor(rules["offsets"][rule]).double()
    hot = torch.tensor(rules["calibration"]["temperatures"]).double()
    calibrated = test.logits.double() / hot.repeat_interleave(torch.tensor(SIZES))
    decided = decisions(test.logits.double(), rules["offsets"][rule], SIZES)
    for prefix, logits in (("", adjusted), ("calibrated_", calibrated)):
        sums = oracles.negative_log_likelihood(logits, test.targets, SIZES)
        errors, likelihoods = [], []
        for a, probabilities in enumerate(softmax_by_label(logits, SIZES)):
            own = test.targets[:, a].tolist()
            there = [i for i, y in enumerate(own) if y >= 0]
            chosen = [[values[i] for i in there] for values in (probabilities, own, [row[a] for row in decided])]
            errors.append(oracles.calibration_error_of(*chosen, 15))
            likelihoods.append(sums[a] / len(there))
            label = found["labels"][SPACE.names[a]]
            assert label[f"{prefix}nll"] == pytest.approx(likelihoods[-1])
            assert label[f"{prefix}expected_calibration_error"] == pytest.approx(errors[-1])
        assert found[f"{prefix}nll"] == pytest.approx(sum(likelihoods) / len(SIZES))
        assert found[f"{prefix}expected_calibration_error"] == pytest.approx(sum(errors) / len(SIZES))


def test_calibration_changes_no_decision() -> None:
    batch, test = informed(), informed(seed=7)
    rules = fitted(batch)
    other = {**rules, "calibration": {**rules["calibration"], "temperatures": [9.0, 0.1, 3.0]}}
    one, two = (scored(test.logits, test.targets, each)["rules"] for each in (rules, other))
    for rule in RULES:
        changed = {key for key in one[rule] if one[rule][key] != two[rule][key]}
        assert changed == {"calibrated_nll", "calibrated_expected_calibration_error", "labels"}


def test_a_label_without_samples_is_not_calibrated() -> None:
    batch = informed()
    targets = batch.targets.clone()
    targets[:, 1] = -1
    rules = fitted(batch._replace(targets=targets))
    assert [t == 1 for t in rules["calibration"]["temperatures"]] == [False, True, False]
    found = scored(batch.logits, targets, rules)
    assert found["labels"][SPACE.names[1]]["calibrated_nll"] is None
    assert math.isfinite(found["calibrated_nll"])


# Identities


def test_with_uniform_counts_prior_decides_as_argmax() -> None:
    batch = validation()
    rules = fitted(batch, [torch.full((size,), 30) for size in SIZES])
    prior, argmax = (decisions(batch.logits, rules["offsets"][rule], SIZES) for rule in ("prior", "argmax"))
    assert prior == argmax
    assert rules["validation"]["prior"] == rules["validation"]["argmax"]
    assert decisions(batch.logits, fitted(batch)["offsets"]["prior"], SIZES) != argmax  # with others it does not


def test_a_constant_on_all_logits_of_a_label_changes_no_rule() -> None:
    batch = validation(seed=2)
    lifted = batch._replace(logits=batch.logits + torch.tensor([4.0] * 2 + [-2.0] * 3 + [0.0] * 5))
    for before, after in zip(fitted(batch)["offsets"].values(), fitted(lifted)["offsets"].values(), strict=True):
        assert decisions(batch.logits, before, SIZES) == decisions(lifted.logits, after, SIZES)


def test_what_is_fitted_can_be_saved_and_read_back() -> None:
    rules = fitted(validation())
    assert json.loads(json.dumps(rules, allow_nan=False)) == rules


# Missing labels


def test_samples_without_the_label_do_not_count() -> None:
    batch = make_batch([4], 60, seed=5, missing=0.4, dtype=torch.float32)
    labelled = batch.targets[:, 0] >= 0
    some = Batch(batch.logits[labelled], batch.targets[labelled], batch.features[labelled], [4])
    counts = [torch.tensor([50, 20, 10, 5])]
    assert (
        fitted(batch, counts, extra=["threshold-adjustment"])["offsets"]
        == fitted(some, counts, extra=["threshold-adjustment"])["offsets"]
    )


def test_every_negative_target_is_missing() -> None:
    batch = validation()
    other = batch._replace(targets=torch.where(batch.targets < 0, -100, batch.targets))
    assert fitted(other) == fitted(batch)


def test_a_label_without_samples_keeps_the_prior() -> None:
    batch = validation()
    targets = batch.targets.clone()
    targets[:, 1] = -1
    rules = fitted(batch._replace(targets=targets))
    assert rules["offsets"]["tuned"][2:5] == rules["offsets"]["prior"][2:5]
    assert math.isfinite(rules["validation"]["tuned"])


def test_validation_without_any_label_can_be_saved() -> None:
    batch = validation()
    rules = fitted(batch._replace(targets=torch.full_like(batch.targets, -1)))
    assert rules["preferred"] == "argmax"
    assert rules["offsets"]["tuned"] == rules["offsets"]["prior"]
    json.dumps(rules, allow_nan=False)  # as the run folder writes it: after a training, nothing may fail


# Scoring


def test_a_part_is_scored_under_every_rule() -> None:
    batch, test = validation(), validation(seed=7)
    rules = fitted(batch)
    found = scored(test.logits, test.targets, rules)
    assert list(found["rules"]) == list(RULES)
    assert {key: value for key, value in found.items() if key != "rules"} == found["rules"]["argmax"]
    for rule in RULES:
        expected = in_sample(test, rules["offsets"][rule])
        assert found["rules"][rule]["class_balanced_accuracy"] == pytest.approx(expected, abs=1e-6)


def test_test_never_influences_the_rules() -> None:
    batch, test = validation(), validation(seed=7, missing=0.0)
    ids = tuple(map(str, range(80)))
    shuffled = test.targets[torch.randperm(80, generator=torch.Generator().manual_seed(3))]
    fits, scores = [], []
    for targets in (test.targets, shuffled):
        found = {
            "validation": Predictions(batch.logits, batch.targets, ids, SPACE),
            "test": Predictions(test.logits, targets, ids, SPACE),
        }
        rules, metrics = score_predictions(found, COUNTS, "threshold-adjustment")
        fits.append(rules)
        scores.append(metrics)
    assert fits[0] == fits[1]
    assert scores[0]["validation"] == scores[1]["validation"]
    assert scores[0]["preferred_rule"] == scores[1]["preferred_rule"] == fits[0]["preferred"]
    assert scores[0]["test"] != scores[1]["test"]


def test_fitting_and_scoring_leave_predictions_and_rules_as_they_are() -> None:
    batch = validation()
    before = batch.logits.clone(), batch.targets.clone()
    rules = fitted(batch, posthoc="threshold-adjustment")
    kept = copy.deepcopy(rules)
    scored(batch.logits, batch.targets, rules)
    assert torch.equal(batch.logits, before[0])
    assert torch.equal(batch.targets, before[1])
    assert rules == kept
