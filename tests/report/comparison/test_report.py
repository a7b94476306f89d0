from __future__ import annotations

import csv
import os
import re
from dataclasses import replace
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from rich.console import Console

from helpers.comparison import DATA, make_entries, make_entry
from rectifier._base.files import replacing
from rectifier.evaluation.scoring import COMPARED
from rectifier.report.comparison import ComparisonResult, compare_entries
from rectifier.report.comparison.figure import draw
from rectifier.report.comparison.tables import percent, verdict, write_tables
from rectifier.report.comparison.view import view

every_kind = pytest.mark.parametrize("kind", DATA)


@cache
def made(kind: str, seeds: int = 3) -> ComparisonResult:
    return compare_entries(make_entries(kind, seeds))


def show(comparison: Any, width: int = 80, **options: Any) -> list[str]:
    output = StringIO()
    console = Console(file=output, width=width, force_terminal=False)
    console.print(view(comparison, width=width, **options))
    return [line.rstrip() for line in output.getvalue().split("\n")]


def styled(comparison: Any) -> str:
    output = StringIO()
    Console(file=output, width=80, force_terminal=True, color_system="standard").print(view(comparison))
    return output.getvalue()


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


# The terminal.


@every_kind
def test_the_view_keeps_to_its_width(kind: str) -> None:
    for width in (80, 100):
        lines = show(made(kind), width)
        assert max(map(len, lines)) <= width
        assert not any(re.search(r"[\d±] ?…", line) for line in lines)  # no number is cut for want of room


@every_kind
def test_every_group_stands_under_every_rule(kind: str) -> None:
    comparison = made(kind)
    text = "\n".join(show(comparison))
    for rule in COMPARED:
        result = comparison.overall(rule, "class_balanced_accuracy")
        for estimate in result["groups"].values():
            assert percent(estimate) in text
        for difference in result["differences"].values():
            assert percent(difference, signed=True) in text


def test_the_page_says_where_prior_adds_nothing(tmp_path: Path) -> None:
    entries = [
        replace(entry, unused_prior=entry.settings["method"] == "over-sampling") for entry in make_entries("digits")
    ]
    noted, note = compare_entries(entries), "The rule prior adds nothing for over-sampling: "
    for comparison in (noted, made("digits")):
        write_tables(comparison, tmp_path)
        texts = " ".join(" ".join(show(comparison)).split()), (tmp_path / "comparison.md").read_text()
        assert all((note in text) == (comparison is noted) for text in texts)


def test_the_view_leads_with_the_conclusion() -> None:
    comparison = made("forty binary")
    found = comparison.overall("preferred", "class_balanced_accuracy")["differences"]
    for name, difference in found.items():
        assert any(line.startswith(f"- {verdict(difference)}: ") and name in line for line in show(comparison)[:8])


def test_many_labels_are_shortened_unless_every_one_is_asked_for() -> None:
    text = "\n".join(show(made("forty binary")))
    assert "28 more labels with --all" in text
    assert "Wearing_Attribute_27" not in text
    whole = "\n".join(show(made("forty binary"), every=True))
    assert "more labels" not in whole
    assert "Wearing_Attribute_00" in whole


def test_a_single_label_shows_its_rarest_classes() -> None:
    lines = show(made("hundred classes"))
    assert any(line.startswith("class99") for line in lines)
    assert "88 more classes with --all, and in labels.csv." in lines


def test_an_interval_with_zero_is_said_and_never_bold() -> None:
    comparison = made("forty binary")
    for rule in COMPARED:
        for difference in comparison.overall(rule, "accuracy")["differences"].values():
            assert ("no evidence" in verdict(difference)) == (not difference["excludes_zero"])
    bold = [
        re.sub(r" ±.*", "", text).strip() for text in re.findall(r"\x1b\[1m([^\x1b]*±[^\x1b]*)\x1b", styled(comparison))
    ]
    nested = comparison.as_dict()["rules"]
    results = nested["argmax"]
    sure = [d for r in nested.values() for m in r["test"].values() for d in m["differences"].values()]
    sure += [d for half in results["halves"] for d in half["differences"].values()]
    for label in results["labels"].values():
        sure += [d for r in (label["class_balanced_accuracy"], label["rarest"]) if r for d in r["differences"].values()]
    allowed = {percent(d, signed=True).split(" ±")[0] for d in sure if d["excludes_zero"]}
    assert bold
    assert set(bold) <= allowed


@pytest.mark.parametrize(
    ("mean", "half_width", "words"),
    [
        (0.1, 0.05, "better"),
        (-0.1, 0.05, "worse"),
        (0.1, 0.2, "no evidence of a difference"),
        (0.1, None, "one seed, no interval"),
        (None, None, "no common seed has a value"),
    ],
)
def test_verdicts(mean: float | None, half_width: float | None, words: str) -> None:
    excludes = mean is not None and half_width is not None and abs(mean) > half_width
    difference = {"mean": mean, "half_width": half_width, "excludes_zero": excludes, "seeds": []}
    assert verdict(difference) == words


def test_a_lower_calibration_error_is_better() -> None:
    difference = {"mean": -0.1, "half_width": 0.01, "excludes_zero": True, "seeds": [0, 1]}
    assert verdict(difference, "expected_calibration_error") == "better"


def test_one_seed_and_one_group() -> None:
    text = "\n".join(show(made("digits", 1)))
    assert "±" not in text.replace("mean ±", "")
    assert "one seed, no interval" in text
    alone = compare_entries([make_entry(DATA["mixed"], "ce", seed) for seed in (0, 1)])
    assert "There is only one group: nothing to compare it with." in show(alone)


# Files.


@every_kind
def test_the_tables_hold_every_number(kind: str, tmp_path: Path) -> None:
    comparison = made(kind).as_dict()
    paths = write_tables(made(kind), tmp_path / "new")
    assert [path.name for path in paths] == ["comparison.csv", "labels.csv", "comparison.md", "comparison.tex"]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == sorted(path.name for path in paths)
    for row in rows(paths[0]):
        result = comparison["rules"][row["rule"]][row["part"]][row["metric"]]
        estimate = result["groups" if row["quantity"] == "value" else "differences"][row["group"]]
        expected = estimate["mean"] if row["seed"] == "mean" else estimate["values"][row["seed"]]
        assert (float(row["value"]) if row["value"] else None) == expected
    facts = {label["name"]: label for label in comparison["labels"]}
    for row in rows(paths[1]):
        result = comparison["rules"][row["rule"]]["labels"][row["label"]]
        found: Any = result["classes"][row["class"]] if row["class"] else result["class_balanced_accuracy"]
        assert (float(row["value"]) if row["value"] else None) == found["groups"][row["group"]]["mean"]
        if row["class"]:
            assert float(row["train_count"]) == facts[row["label"]]["counts"][row["class"]]
        if row["group"] != "ce":
            gain = found["differences"][row["group"]]["mean"]
            assert (float(row["difference"]) if row["difference"] else None) == gain


def test_markdown_and_latex_escape_names(tmp_path: Path) -> None:
    data = {**DATA["mixed"], "name": "50% of_it & more"}
    entries = [make_entry(data, method, seed, size="a_b|c") for method in ("ce", "c_r%l") for seed in (0, 1)]
    _, _, markdown, latex = write_tables(compare_entries(entries), tmp_path)
    tex, text = latex.read_text("utf-8"), markdown.read_text("utf-8")
    assert r"c\_r\%l" in tex
    assert r"c\_r%l" in text
    assert r"\toprule" in tex
    assert r"\$odd\_ \[red\]\|&%{name}\\" in text
    for row in (line for line in tex.split("\n") if line.endswith(r"\\")):
        assert len(re.findall(r"(?<!\\)&", row)) in (2, 3, 4)  # two halves, four rules, or a label and its gains
        assert not re.search(r"(?<!\\)[%_]", row)


def test_latex_has_balanced_tables(tmp_path: Path) -> None:
    tex = write_tables(made("mixed"), tmp_path)[3].read_text("utf-8")
    assert tex.count(r"\begin{tabular}") == tex.count(r"\end{tabular}") == tex.count(r"\bottomrule") > 10
    assert "None" not in tex
    assert "nan" not in tex


def test_a_failed_write_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tables(made("digits"), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        write_tables(made("mixed"), tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_replacing_leaves_nothing_behind_after_an_error(tmp_path: Path) -> None:
    def fail() -> None:
        with replacing(tmp_path / "a.txt") as path:
            path.write_text("half")
            raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        fail()
    assert not list(tmp_path.iterdir())


# Figures.


@every_kind
def test_figures_are_drawn(kind: str, tmp_path: Path) -> None:
    paths = draw(made(kind), tmp_path)
    gain = "gain-per-class.png" if len(DATA[kind]["labels"]) == 1 else "gain-per-label.png"
    assert [path.name for path in paths] == [gain, "sensitivity-against-class-size.png", "summary.png"]
    assert sorted(tmp_path.iterdir()) == paths
    for path in paths:
        with Image.open(path) as image:
            assert min(image.size) > 400
            assert max(image.size) <= 3000
            assert len(image.convert("RGB").getcolors(1 << 24) or []) > 20


def test_figures_of_one_group_and_one_seed(tmp_path: Path) -> None:
    alone = compare_entries([make_entry(DATA["digits"], "ce", 0)])
    assert [path.stem for path in draw(alone, tmp_path)] == ["sensitivity-against-class-size", "summary"]


def test_figures_of_a_balanced_label_without_test_samples(tmp_path: Path) -> None:
    train = {"kind": {"cat": 5, "dog": 5}}
    data = {**DATA["digits"], "labels": [{"name": "kind", "classes": ["cat", "dog"]}], "counts": {"train": train}}
    data["counts"]["test"] = {"kind": {"cat": 0, "dog": 3}}
    comparison = compare_entries([make_entry(data, method, 0) for method in ("ce", "crl")])
    assert len(draw(comparison, tmp_path)) == 3
    assert len(write_tables(comparison, tmp_path)) == 4
    assert show(comparison)
