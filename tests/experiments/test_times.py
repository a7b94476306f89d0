"""Experiments about time: ratios are those of the records, and what disturbs them is marked."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest

from experiments import times
from experiments.times import RunTime
from helpers.experiments import page, run
from rectifier.reproduce import ExperimentResult, load_experiment


def timed(
    *seconds: float | None, together: int = 1, hardware: str = "a GPU", commit: str = "1a2b3c4"
) -> dict[str, RunTime]:
    common = {"together": together, "hardware": hardware, "commit": commit}
    return {str(i): RunTime(seconds=s, **common) for i, s in enumerate(seconds)}  # type: ignore[typeddict-item]


def test_ratios_of_times_are_paired_by_seed() -> None:
    assert times.time_ratios(timed(20.0, 60.0, 5.0), timed(10.0, 20.0)) == [2.0, 3.0]


@pytest.mark.parametrize("base", [timed(None), timed(10.0, hardware="another"), timed(0.0), {}])
def test_what_cannot_be_compared_has_no_ratio(base: dict[str, RunTime]) -> None:
    assert times.time_ratios(timed(20.0), base) == []


def test_one_slow_run_does_not_change_the_time_shown() -> None:
    table = times.time_table({"CRL": timed(10.0, 10.0, 10.0), "CE": timed(90.0, 12.0, 8.0)}, "CRL", {})
    assert table.splitlines()[3] == "| CE | 12.0 (8.0 to 90.0) | 1 | 1.20 (0.80 to 9.00) |  |  |"


def test_a_shared_device_is_marked() -> None:
    table = times.time_table({"CRL": timed(10.0), "LMLE": timed(30.0, together=4)}, "CRL", {"CRL": 2, "LMLE": 10})
    assert table.splitlines()[2:] == [
        "| CRL | 10.0 (one run) | 1 | 1.00 (one run) | 2 | 1.00 |",
        "| LMLE | 30.0 (one run) | 4 | 3.00 (one run), shared device | 10 | 5.00 |",
    ]


def test_a_baseline_on_a_shared_device_is_marked() -> None:
    table = times.time_table({"CRL": timed(10.0, together=2), "LMLE": timed(30.0)}, "CRL", {})
    assert "| LMLE | 30.0 (one run) | 1 | 3.00 (one run), shared device |  |  |" in table


def test_runs_that_are_in_no_ratio_mark_none() -> None:
    later = timed(30.0) | {"1": timed(None, together=4, commit="5d6e7f8")["0"]}
    table = times.time_table({"CRL": timed(10.0, 10.0), "LMLE": later}, "CRL", {})
    assert "| 3.00 (one run) |" in table


@pytest.mark.parametrize(("mark", "text"), [("shared device", "--together 1"), ("several commits", "--again")])
def test_marks_are_explained_where_there_are_any(mark: str, text: str) -> None:
    assert text in times.time_remark(f"| 3.00, {mark} |")
    assert text not in times.time_remark("| 3.00 |")


def test_a_ratio_between_two_commits_is_marked() -> None:
    base, later = timed(10.0, 10.0), timed(30.0, 30.0) | {"1": timed(30.0, commit="5d6e7f8")["0"]}
    assert "3.00, several commits |" in times.time_table({"CRL": base, "LMLE": later}, "CRL", {})
    assert "several commits" not in times.time_table({"CRL": base, "LMLE": {"0": later["0"]}}, "CRL", {})
    later["1"]["seconds"] = None
    later["0"]["hardware"] = "another"
    assert "several commits" not in times.time_table({"CRL": base, "LMLE": later}, "CRL", {}), "there is no ratio"


def test_scope_shows_the_time_of_all_classes_next_to_the_papers(tmp_path: Path) -> None:
    whole = run("scope", tmp_path, quick=True)
    records = {
        (row, column): {seed: {**record, **time, "hardware": "a GPU"} for seed, record in by_seed.items()}
        for (row, column), by_seed in whole.records.items()
        for time in [{"seconds": 50.0, "together": 6} if row == "all classes" else {"seconds": 40.0, "together": 1}]
    }
    made = ExperimentResult("scope", whole.experiment, records, {}, {}, tmp_path)
    shown = load_experiment("scope").show(made).splitlines()
    assert "| minority classes | 40.0 (one run) | 1 | 1.00 (one run) | 60.4 | 1.00 |" in shown
    assert "| all classes | 50.0 (one run) | 6 | 1.25 (one run), shared device | 77.6 | 1.28 |" in shown
    assert load_experiment("scope").show(
        ExperimentResult("scope", whole.experiment, {}, {}, {}, tmp_path)
    )  # nothing recorded


def test_quick_scope_trains_both_scopes_and_times_them(tmp_path: Path) -> None:
    result = run("scope", tmp_path, quick=True)
    assert {row for row, _ in result.records} == {"MTCT", "minority classes", "all classes"}
    options = {record["config"].get("method.scope") for record in result.all_records}
    assert options == {None, "all"}
    assert "## Training time" in page(result)


def test_quick_cost_times_runs_alone(tmp_path: Path) -> None:
    result = run("cost", tmp_path, quick=True)
    text = page(result)
    rows = ("cross-entropy", "CRL", "LMLE", "LMLE, weight 0.0001")
    assert set(result.records) == set(product(rows, ("CelebA, DeepID2", "fashion, MTCT")))
    for record in result.all_records:
        assert record["together"] == 1
        assert record["seconds"] > 0
    assert "| 264.8 | 9.74 |" in text
    assert "| 429.9 | 7.12 |" in text
    assert ", shared device |" not in text


def test_cost_gives_all_methods_as_many_batches_and_shares_no_run() -> None:
    experiment = load_experiment("cost")
    for cell in experiment.cells:
        config = experiment.config(cell, quick=False)
        assert config.drop_last
        assert config.batch_size % 5 == 0
        assert config.validate_every == config.epochs
    others = [load_experiment(name) for name in ("celeba", "clothing", "eta", "mining", "scope")]
    shared = {json.dumps(one.config(cell, quick=False).identity()) for one in others for cell in one.cells}
    assert not shared & {json.dumps(experiment.config(cell, quick=False).identity()) for cell in experiment.cells}


def test_costs_of_which_none_is_timed_yet_are_empty(tmp_path: Path) -> None:
    experiment = load_experiment("cost")
    assert "| CRL |  |  |  | 27.2 | 1.00 |" in experiment.show(
        ExperimentResult("cost", experiment, {}, {}, {}, tmp_path)
    )
