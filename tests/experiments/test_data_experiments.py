"""Experiments about data and about time: counts are those of the targets, ratios those of the records."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from experiments import datasets, times
from experiments.times import RunTime
from helpers.fakes import write_celeba, write_cifar100, write_deepfashion, write_xdomain
from rectifier.data.dataset import ImageData
from rectifier.data.sources import open_data
from rectifier.report.published import DATA as PUBLISHED
from rectifier.reproduce import ExperimentResult, load_experiment, reproduce
from rectifier.reproduce.page import write_page
from rectifier.reproduce.records import own_seconds
from rectifier.reproduce.work import Request

SHAPES = "shapes:samples=120,size=16,ratio=15,missing=0.2,labels=shape=6/colour=2/texture=3,validation=20,test=20"


def run(name: str, folder: Path, **more: Any) -> ExperimentResult:
    request = {"settings": {"accelerator": "cpu"}, "seeds": 1, **more}
    return reproduce(name, load_experiment(name), Request(results=folder / "results", runs=folder / "runs", **request))


def page(result: ExperimentResult) -> str:
    return (result.folder / f"{result.name}.md").read_text()


def recount(data: ImageData) -> dict[str, Counter[int]]:
    """Count the training images of each class of each label, one by one."""
    counts: dict[str, Counter[int]] = {name: Counter() for name in data.space.names}
    for row, part in zip(data.targets.tolist(), data.split.tolist(), strict=True):
        for name, target in zip(data.space.names, row, strict=True):
            if part == 0 and target >= 0:
                counts[name][target] += 1
    return counts


# Counts.


@pytest.mark.parametrize("spec", ["digits:ratio=10", SHAPES])
def test_counts_are_those_of_the_targets(spec: str) -> None:
    here, not_here = datasets.look([spec], None)
    facts, drawn = datasets.facts_of(here[spec]), datasets.sorted_sizes(here[spec])
    data = open_data(spec)
    slow = recount(data)
    assert not not_here
    assert list(facts["images"].values()) == [data.split.tolist().count(part) for part in (0, 1, 2)]
    assert (facts["labels"], facts["classes"]) == (len(slow), (min(data.space.sizes), max(data.space.sizes)))
    for name, classes, counts in zip(data.space.names, data.space.sizes, slow.values(), strict=True):
        sizes, every = facts["sizes"][name], [counts[k] for k in range(classes)]
        assert drawn[name] == sorted(every, reverse=True)
        assert (sizes["smallest"], sizes["largest"]) == (min(counts.values()), max(counts.values()))
        assert (sizes["classes"], sizes["empty"]) == (classes, every.count(0))
        assert sizes["ratio"] == pytest.approx(sizes["largest"] / sizes["smallest"], rel=1e-4)


def test_a_class_without_images_is_no_ratio_and_is_told() -> None:
    label = {"counts": {"a": 8, "b": 0, "c": 2}, "ratio": None, "ratio_nonempty": 4.0, "empty": 1, "omega": 0.5}
    whole = {"name": "few", "parts": {"train": 10, "validation": 1, "test": 1}, "fingerprint": "f", "notes": ["Few."]}
    facts = datasets.facts_of({**whole, "labels": {"letter": {**label, "classes": 3}}})  # type: ignore[arg-type,typeddict-item]
    assert datasets.label_table("few", facts).splitlines()[2:] == [
        "| label | classes | smallest | largest | without images | ratio |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        "| letter | 3 | 2 | 8 | 1 | 1 : 4 |",
        "",
        "- Few.",
    ]
    assert datasets.data_table({"few": facts}, ["few"], {}).splitlines()[2:] == [
        "| few | 12 | 10 | 1 | 1 | 1 | 3 | 2 to 8 | 1 : 4 |"
    ]


def test_groups_of_labels_are_counted_by_what_shows_them(tmp_path: Path) -> None:
    write_deepfashion(tmp_path, images=90)
    here, _ = datasets.look(["deepfashion"], str(tmp_path))
    facts = datasets.facts_of(here["deepfashion"])
    slow = recount(open_data("deepfashion", root=tmp_path))
    texture = sorted(counts[1] for name, counts in slow.items() if name.startswith("texture/"))
    assert facts["grouped"]
    assert (facts["sizes"]["texture"]["smallest"], facts["sizes"]["texture"]["largest"]) == (texture[0], texture[-1])
    table = datasets.label_table("deepfashion", facts)
    assert "| group | attributes |" in table
    assert "| 1 : 733 |" in next(line for line in table.splitlines() if line.startswith("| texture |"))


# Data that is here, and data that is not.


def test_data_that_is_not_here_is_listed(tmp_path: Path) -> None:
    result = run("imbalance", tmp_path, settings={"data_root": str(tmp_path / "none")})
    assert set(result.found["not_here"]) == {*PUBLISHED, "fashion"}
    text = page(result)
    for spec in result.found["not_here"]:
        assert f"| {spec}: missing |" in text
        assert f"- **{spec}**: Expected DATA_ROOT/" in text
    assert str(tmp_path) not in text + (result.folder / "imbalance.json").read_text()
    assert "| paper | 202,599 | 162,770 |  | 19,867 | 40 | 2 | 3,713 to 135,779 | 1 : 43 |" in text


def test_data_that_is_here_stands_beside_the_paper(tmp_path: Path) -> None:
    write_cifar100(tmp_path, per_class=12)
    write_celeba(tmp_path)
    write_xdomain(tmp_path)
    result = run("imbalance", tmp_path, settings={"data_root": str(tmp_path)})
    lines = page(result).splitlines()
    assert list(result.found["not_here"]) == ["deepfashion", "fashion"]
    cifar = next(i for i, line in enumerate(lines) if line.startswith("| cifar100 |"))
    assert lines[cifar : cifar + 2] == [
        "| cifar100 | 1,300 | 200 | 1,000 | 100 | 1 | 100 | 2 | 1 : 1 |",
        "| paper | 60,000 | 50,000 |  | 10,000 | 1 | 100 | 500 | 1 : 1 |",
    ]
    counts = recount(open_data("celeba", root=tmp_path))["Bald"]
    bald = next(line for line in lines if line.startswith("| Bald |"))
    assert bald.startswith(f"| Bald | 2 | {min(counts.values())} | {max(counts.values())} |")
    assert bald.endswith("| 1 : 43 |")
    assert str(tmp_path) not in (result.folder / "imbalance.json").read_text()


def test_distributions_need_no_data(tmp_path: Path) -> None:
    result = run("distributions", tmp_path, settings={"data_root": str(tmp_path / "none")})
    assert not (result.folder / "distributions.png").exists()
    assert page(result).count("nothing there") == 3  # what is made of CIFAR-100 is told of once


def test_distributions_of_what_is_here(tmp_path: Path) -> None:
    write_cifar100(tmp_path, per_class=40)
    write_celeba(tmp_path)
    result = run("distributions", tmp_path, settings={"data_root": str(tmp_path)})
    slow = recount(open_data("cifar100:imb=0.4", root=tmp_path))["object"]
    assert result.found["here"]["cifar100:imb=0.4"] == {"object": sorted(slow.values(), reverse=True)}
    assert len(result.found["here"]["celeba"]) == 40
    assert (result.folder / "distributions.png").is_file()


@pytest.mark.parametrize("name", ["imbalance", "distributions"])
@pytest.mark.parametrize("again", [False, True])
def test_what_was_found_of_data_that_is_gone_stays(tmp_path: Path, name: str, again: bool) -> None:
    write_cifar100(tmp_path, per_class=40)
    before = page(run(name, tmp_path, settings={"data_root": str(tmp_path)}))
    (tmp_path / "cifar-100-python").rename(tmp_path / "elsewhere")
    assert page(run(name, tmp_path, settings={"data_root": str(tmp_path)}, again=again)) == before
    assert "cifar100**: Expected" not in before


@pytest.mark.parametrize("name", ["imbalance", "distributions"])
def test_data_that_has_come_is_seen(tmp_path: Path, name: str) -> None:
    before = run(name, tmp_path, settings={"data_root": str(tmp_path)})
    assert "celeba" in before.found["not_here"]
    write_celeba(tmp_path)
    after = run(name, tmp_path, settings={"data_root": str(tmp_path)})
    assert "celeba" in after.found["here"]
    assert "celeba" not in after.found["not_here"]


def test_empty_classes_and_labels_can_be_drawn(tmp_path: Path) -> None:
    data = {"pairs": {"a": [9, 0], "b": [0, 0]}, "more": {"a": [5, 2, 0], "$b$": [0, 0, 0]}}
    assert datasets.draw_distributions(data, {"lines": {"x": [3, 0]}}, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").is_file()


# Time.


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


def test_one_slow_run_does_not_move_the_time_that_is_told() -> None:
    table = times.time_table({"CRL": timed(10.0, 10.0, 10.0), "CE": timed(90.0, 12.0, 8.0)}, "CRL", {})
    assert table.splitlines()[3] == "| CE | 12.0 (8.0 to 90.0) | 1 | 1.20 (0.80 to 9.00) |  |  |"


def test_a_shared_device_is_told() -> None:
    table = times.time_table({"CRL": timed(10.0), "LMLE": timed(30.0, together=4)}, "CRL", {"CRL": 2, "LMLE": 10})
    assert table.splitlines()[2:] == [
        "| CRL | 10.0 (one run) | 1 | 1.00 (one run) | 2 | 1.00 |",
        "| LMLE | 30.0 (one run) | 4 | 3.00 (one run), shared device | 10 | 5.00 |",
    ]


def test_a_base_that_shares_its_device_is_told() -> None:
    table = times.time_table({"CRL": timed(10.0, together=2), "LMLE": timed(30.0)}, "CRL", {})
    assert "| LMLE | 30.0 (one run) | 1 | 3.00 (one run), shared device |  |  |" in table


def test_runs_that_are_in_no_ratio_mark_none() -> None:
    later = timed(30.0) | {"1": timed(None, together=4, commit="5d6e7f8")["0"]}
    table = times.time_table({"CRL": timed(10.0, 10.0), "LMLE": later}, "CRL", {})
    assert "| 3.00 (one run) |" in table


@pytest.mark.parametrize(("mark", "told"), [("shared device", "--together 1"), ("several commits", "--again")])
def test_marks_are_explained_where_there_are_any(mark: str, told: str) -> None:
    assert told in times.time_remark(f"| 3.00, {mark} |")
    assert told not in times.time_remark("| 3.00 |")


def test_a_ratio_of_runs_of_two_commits_is_told() -> None:
    base, later = timed(10.0, 10.0), timed(30.0, 30.0) | {"1": timed(30.0, commit="5d6e7f8")["0"]}
    assert "3.00, several commits |" in times.time_table({"CRL": base, "LMLE": later}, "CRL", {})
    assert "several commits" not in times.time_table({"CRL": base, "LMLE": {"0": later["0"]}}, "CRL", {})
    later["1"]["seconds"] = None
    later["0"]["hardware"] = "another"
    assert "several commits" not in times.time_table({"CRL": base, "LMLE": later}, "CRL", {}), "there is no ratio"


@pytest.mark.parametrize(
    ("sessions", "seconds", "together"),
    [
        ([{"seconds": 12.0, "together": 1}], 12.0, 1),
        ([{"seconds": 12.0, "together": 4}, {"seconds": 5.0, "together": 1}], 8.0, 4),
        ([{"started": "then"}, {"seconds": 5.0, "together": 1}], None, 1),  # killed, so nobody knows how long it took
    ],
)
def test_a_run_takes_its_share_of_every_stretch(
    sessions: list[dict[str, Any]], seconds: float | None, together: int
) -> None:
    assert own_seconds(sessions) == seconds
    time = {"seconds": seconds, "together": together, "hardware": "a GPU", "commit": "1a2b3c4"}
    assert times.time_of_record({**time, "seed": 0}) == time


def test_scope_shows_the_time_of_all_classes_beside_the_papers(tmp_path: Path) -> None:
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


# Small versions.


def test_quick_imbalance_and_distributions(tmp_path: Path) -> None:
    result = run("imbalance", tmp_path, quick=True)
    assert "| digits | 928 | 209 | 362 | 357 | 1 | 10 | 5 to 100 | 1 : 20 |" in page(result)
    result = run("distributions", tmp_path, quick=True)
    assert (result.folder / "distributions.png").is_file()
    assert "(distributions.png)" in page(result)
    assert json.loads((result.folder / "distributions.json").read_text())["found"] == result.found


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


@pytest.mark.parametrize("name", ["imbalance", "distributions", "collapse", "examples"])
def test_what_was_not_measured_is_said(name: str, tmp_path: Path) -> None:
    result = ExperimentResult(name, load_experiment(name), {}, {}, {}, tmp_path)
    assert "Nothing is measured yet." in write_page(result, quick=False).read_text()


def test_costs_of_which_none_is_timed_yet_are_empty(tmp_path: Path) -> None:
    experiment = load_experiment("cost")
    assert "| CRL |  |  |  | 27.2 | 1.00 |" in experiment.show(
        ExperimentResult("cost", experiment, {}, {}, {}, tmp_path)
    )


def test_deepfashion_is_scored_by_groups(tmp_path: Path) -> None:
    write_deepfashion(tmp_path / "data", images=60)
    small = {"network": "mlp", "epochs": 1, "size": "16x16", "batch_size": 16, "padding": 0}
    known = load_experiment("deepfashion")
    experiment = replace(known, settings={**known.settings, **small})
    settings = {"accelerator": "cpu", "data_root": str(tmp_path / "data")}
    request = Request(results=tmp_path / "results", runs=tmp_path / "runs", settings=settings, seeds=2)
    result = reproduce("deepfashion", experiment, request)
    groups = result.all_records[0]["test"]["argmax"]["group_top5"]
    assert len(groups) > 1
    head, _, line, *_ = [row for row in page(result).splitlines() if row.startswith("|")]
    assert [name.strip() for name in head.split("|")[3:-1:2]] == [*groups, "mean"]
    shown = [float(text.split("±")[0]) for text in line.split("|")[3:-1:2]]
    by_hand = [result.values(experiment.cells[0], "argmax", name, "group_top5") for name in groups]
    means = [100 * sum(v for v in values.values() if v is not None) / len(values) for values in by_hand]
    assert shown == pytest.approx([*means, sum(means) / len(means)], abs=0.051)


def test_quick_deepfashion_has_groups_and_the_papers_numbers(tmp_path: Path) -> None:
    result = run("deepfashion", tmp_path, quick=True)
    head, _, line, *_ = [row.split("|")[1:-1] for row in page(result).splitlines() if row.startswith("|")]
    assert [name.strip() for name in head[2:]] == ["texture", "paper", "shape", "paper", "mean", "paper"]
    assert [text.strip() for text in line[3::2]] == ["53.29", "53.02", "52.2"]
