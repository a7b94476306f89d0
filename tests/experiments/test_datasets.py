"""Experiments about data: counts are those of the targets, and data that is missing is listed."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from experiments import datasets
from helpers.experiments import page, run
from helpers.fakes import write_celeba, write_cifar100, write_deepfashion, write_xdomain
from rectifier.data.dataset import ImageData
from rectifier.data.sources import open_data
from rectifier.report.published import DATA as PUBLISHED
from rectifier.reproduce import ExperimentResult, load_experiment
from rectifier.reproduce.page import write_page

SHAPES = "shapes:samples=120,size=16,ratio=15,missing=0.2,labels=shape=6/colour=2/texture=3,validation=20,test=20"


def recount(data: ImageData) -> dict[str, Counter[int]]:
    """Count the training images of each class of each label, one by one."""
    counts: dict[str, Counter[int]] = {name: Counter() for name in data.space.names}
    for row, part in zip(data.targets.tolist(), data.split.tolist(), strict=True):
        for name, target in zip(data.space.names, row, strict=True):
            if part == 0 and target >= 0:
                counts[name][target] += 1
    return counts


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


def test_a_class_without_images_is_counted_as_empty_and_not_in_the_ratio() -> None:
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


def test_data_that_is_not_here_is_listed(tmp_path: Path) -> None:
    result = run("imbalance", tmp_path, settings={"data_root": str(tmp_path / "none")})
    assert set(result.found["not_here"]) == {*PUBLISHED, "fashion"}
    text = page(result)
    for spec in result.found["not_here"]:
        assert f"| {spec}: missing |" in text
        assert f"- **{spec}**: Neither DATA_ROOT/" in text
    assert str(tmp_path) not in text + (result.folder / "imbalance.json").read_text()
    assert "| paper | 202,599 | 162,770 |  | 19,867 | 40 | 2 | 3,713 to 135,779 | 1 : 43 |" in text


def test_available_data_is_next_to_the_papers(tmp_path: Path) -> None:
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
    assert page(result).count("Neither ") == 3  # data sets made from CIFAR-100 share one message


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


def test_quick_imbalance_and_distributions(tmp_path: Path) -> None:
    result = run("imbalance", tmp_path, quick=True)
    assert "| digits | 928 | 209 | 362 | 357 | 1 | 10 | 5 to 100 | 1 : 20 |" in page(result)
    result = run("distributions", tmp_path, quick=True)
    assert (result.folder / "distributions.png").is_file()
    assert "(distributions.png)" in page(result)
    assert json.loads((result.folder / "distributions.json").read_text())["found"] == result.found


@pytest.mark.parametrize("name", ["imbalance", "distributions", "collapse", "examples"])
def test_what_was_not_measured_is_said(name: str, tmp_path: Path) -> None:
    result = ExperimentResult(name, load_experiment(name), {}, {}, {}, tmp_path)
    assert "Nothing is measured yet." in write_page(result, quick=False).read_text()
