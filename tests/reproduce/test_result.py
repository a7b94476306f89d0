"""What a result contains: means with intervals, gains paired by seed, means over labels."""

from __future__ import annotations

import pytest
import scipy.stats

from helpers.results import RATIOS, Where, made_result
from rectifier.evaluation.metrics.catalogue import METRICS
from rectifier.evaluation.rows import COLUMNS
from rectifier.evaluation.scoring import RULES
from rectifier.reproduce import Cell, ExperimentResult
from rectifier.reproduce.records import RECORDED_METRICS


def value(result: ExperimentResult, where: Where, seed: int, rule: str, label: str | None = None) -> float:
    scores = result.records[where][seed]["test"][rule]
    return float(scores["class_balanced_accuracy"] if label is None else scores["labels"][label])


CE, CRL = Cell("ce", "net"), Cell("crl", "net", against="ce")


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("label", [None, *RATIOS])
@pytest.mark.parametrize("seeds", [2, 5])
def test_a_score_is_the_mean_with_students_interval(rule: str, label: str | None, seeds: int) -> None:
    result = made_result([CE, CRL], seeds)
    values = [value(result, ("crl", "net"), seed, rule, label) for seed in range(seeds)]
    low, high = scipy.stats.ttest_1samp(values, 0).confidence_interval(0.95)
    found = result.score(CRL, rule, label)
    assert found["mean"] == pytest.approx((low + high) / 2)
    assert found["half_width"] == pytest.approx((high - low) / 2)
    assert found["values"] == {str(seed): one for seed, one in enumerate(values)}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("label", [None, "bald"])
@pytest.mark.parametrize("gain", [0.0, 0.3])
def test_a_gain_is_the_mean_of_paired_differences(rule: str, label: str | None, gain: float) -> None:
    result = made_result([CE, CRL], gains={"crl": gain})
    ours, theirs = ([value(result, (row, "net"), s, rule, label) for s in range(4)] for row in ("crl", "ce"))
    low, high = scipy.stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    found = result.gain(CRL, rule, label)
    assert found is not None
    assert found["mean"] == pytest.approx((low + high) / 2)
    assert found["half_width"] == pytest.approx((high - low) / 2)
    assert found["excludes_zero"] == (low > 0 or high < 0)


def test_a_seed_without_its_pair_is_left_out_of_the_gain_alone() -> None:
    result = made_result([CE, CRL], {("ce", "net"): (2, 0, 7), ("crl", "net"): (0, 1, 2)})
    ours, theirs = ([value(result, (row, "net"), s, "prior") for s in (0, 2)] for row in ("crl", "ce"))
    low, high = scipy.stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    found = result.gain(CRL, "prior")
    assert found is not None
    assert sorted(found["seeds"]) == [0, 2]
    assert found["mean"] == pytest.approx((low + high) / 2)
    assert found["half_width"] == pytest.approx((high - low) / 2)
    assert set(result.score(CRL, "prior")["values"]) == {"0", "1", "2"}


def test_a_single_seed_has_no_interval_and_excludes_nothing() -> None:
    result = made_result([CE, CRL], 1, gains={"crl": 0.4})
    assert result.score(CRL, "argmax")["half_width"] is None
    found = result.gain(CRL, "argmax")
    assert found is not None
    assert found["mean"] == pytest.approx(
        value(result, ("crl", "net"), 0, "argmax") - value(result, ("ce", "net"), 0, "argmax")
    )
    assert (found["half_width"], found["excludes_zero"]) == (None, False)


def test_a_gain_is_counted_from_the_cell_that_is_named() -> None:
    cells = [
        Cell("0.2", "CE"),
        Cell("0.4", "CE"),
        Cell("0.2", "CRL", against=("0.2", "CE")),
        Cell("0.4", "CRL", against="0.2"),
    ]
    result = made_result(cells)

    def mean(where: Where) -> float:
        return sum(value(result, where, seed, "tuned") for seed in range(4)) / 4

    across, below = (result.gain(cell, "tuned") for cell in cells[2:])
    assert across is not None
    assert below is not None
    assert across["mean"] == pytest.approx(mean(("0.2", "CRL")) - mean(("0.2", "CE")))
    assert below["mean"] == pytest.approx(mean(("0.4", "CRL")) - mean(("0.2", "CRL")))
    assert result.gain(cells[0], "tuned") is None
    assert result.gain_of(cells[0], "tuned", ["hat"]) is None


def test_a_cell_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match="Expected cell to be one of the experiment, but got row 'cee', column 'net'"):
        made_result([CE, Cell("crl", "net", against="cee")])
    with pytest.raises(ValueError, match="Two cells share row 'ce' and column 'net'"):
        made_result([CE, CE])


@pytest.mark.parametrize("rule", RULES)
def test_the_mean_over_labels_equals_a_loop(rule: str) -> None:
    result = made_result([CE, CRL])
    labels = ["hat", "bald", "hair"]
    result.records["crl", "net"][1]["test"][rule]["labels"]["bald"] = None  # test had no sample of a class
    for label in labels:
        result.records["crl", "net"][3]["test"][rule]["labels"][label] = None
    expected: dict[str, float | None] = {}
    for seed in range(4):
        own = result.records["crl", "net"][seed]["test"][rule]["labels"]
        known = [own[label] for label in labels if own[label] is not None]
        expected[str(seed)] = sum(known) / len(known) if known else None
    assert expected["3"] is None
    assert result.mean_of(CRL, rule, labels) == pytest.approx(expected)

    pairs = [
        (expected[str(seed)], sum(value(result, ("ce", "net"), seed, rule, label) for label in labels) / 3)
        for seed in (0, 1, 2)
    ]
    low, high = scipy.stats.ttest_rel(*zip(*pairs, strict=True)).confidence_interval(0.95)
    found = result.gain_of(CRL, rule, labels)
    assert found is not None
    assert found["seeds"] == [0, 1, 2]
    assert found["mean"] == pytest.approx((low + high) / 2)
    assert found["half_width"] == pytest.approx((high - low) / 2)


def test_the_preferred_rule_is_each_runs_own() -> None:
    result = made_result([CE], len(RULES))
    for seed, rule in enumerate(RULES):
        result.records["ce", "net"][seed]["preferred_rule"] = rule
    assert result.values(CE, "preferred") == {
        str(seed): value(result, ("ce", "net"), seed, rule) for seed, rule in enumerate(RULES)
    }


@pytest.mark.parametrize("metric", RECORDED_METRICS)
def test_any_metric_of_test_can_be_asked_for(metric: str) -> None:
    result = made_result([CE, CRL])
    expected = {str(s): record["test"]["argmax"][metric] for s, record in result.records["ce", "net"].items()}
    assert result.values(CE, "argmax", metric=metric) == expected
    assert result.score(CE, "argmax", metric=metric)["mean"] == pytest.approx(sum(expected.values()) / 4)


def test_the_table_has_the_columns_of_a_runs_rows() -> None:
    table = made_result([CE]).table
    assert list(table.columns) == ["row", "column", "seed", *(name for name in COLUMNS if name != "class")]
    overall = table[table["label"].isna() & (table["part"] == "test") & (table["rule"] == "argmax")]
    assert {*RECORDED_METRICS} <= {*overall["metric"]} <= {*METRICS}


def test_labels_go_by_their_imbalance() -> None:
    result = made_result([CE], ratios={**RATIOS, "void": None, "also": 5.5})
    assert list(result.ratios().items()) == [
        ("hair", 1.5),
        ("also", 5.5),
        ("beard", 5.5),
        ("hat", 30.0),
        ("bald", 43.0),
    ]


def test_what_has_no_records_has_no_numbers() -> None:
    empty = made_result([CE, CRL], 0)
    assert empty.score(CE, "argmax") == {"values": {}, "mean": None, "half_width": None}
    gain = empty.gain(CRL, "argmax")
    assert gain is not None
    assert gain["mean"] is None
    assert (empty.ratios(), empty.all_records, empty.mean_of(CE, "argmax", ["hat"])) == ({}, [], {})


def test_runs_of_one_seed_and_unlike_splits_are_no_pair() -> None:
    result = made_result([CE, CRL], 4)
    result.records["crl", "net"][2]["data"]["fingerprint"] = "another"
    for found in (result.gain(CRL, "argmax"), result.gain_of(CRL, "argmax", ["hat", "bald"])):
        assert found is not None
        assert found["seeds"] == [0, 1, 3]
