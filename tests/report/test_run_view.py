"""The view of a run: baselines stand below class-balanced accuracy, and the kept epoch is named below the tables."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from rectifier.evaluation.rows import flatten
from rectifier.report.run_view import view

BASELINES = {
    "validation": {"constant answer": 0.5},
    "test": {"constant answer": 0.5, "HOG + logistic regression": 0.612},
}


def scores(value: float) -> dict[str, Any]:
    labels = {name: {"class_balanced_accuracy": value} for name in ("hat", "beard")}
    return {"class_balanced_accuracy": value, "accuracy": 0.9, "absent": 0, "labels": labels}


def printed(part: str = "test", **options: Any) -> list[str]:
    rules = {"rules": {"argmax": scores(0.6), "prior": scores(0.7)}}
    rows = flatten({"validation": rules, "test": rules, "preferred_rule": "prior"})
    out = io.StringIO()
    Console(file=out, width=100).print(view(rows, part, **options))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_baselines_stand_below_class_balanced_accuracy() -> None:
    lines = printed(baselines=BASELINES)
    table = lines[1:6]
    assert [line.split("  ")[0] or line.strip().split("  ")[0] for line in table] == [
        "Metric",
        "class-balanced accuracy",
        "constant answer",
        "HOG + logistic regression",
        "accuracy",
    ]
    assert table[1].split()[-2:] == ["60.0", "70.0"]
    assert table[2].split()[-1] == "50.0"
    assert table[3].split()[-1] == "61.2"
    assert {line.index(".") for line in table[1:]} == {table[1].index(".")}  # aligned, in the first column


def test_each_part_has_its_own_baselines() -> None:
    text = "\n".join(printed("validation", baselines=BASELINES))
    assert "constant answer" in text
    assert "HOG" not in text


@pytest.mark.parametrize("baselines", [None, {}, {"test": {}}])
def test_without_baselines_the_view_is_the_plain_one(baselines: Any) -> None:
    assert printed(baselines=baselines) == printed()


def test_the_kept_epoch_is_named_below_the_tables() -> None:
    kept = "Epoch 17 of 30 kept: best on validation under argmax."
    end = ["", kept, "A note.", "Validation prefers the rule prior. rectifier predict uses it by default."]
    assert printed(kept=kept, note="A note.")[-4:] == end
    assert printed(note="A note.")[-3:] == ["", *end[2:]]
