"""Rows and the nested form of metrics.json are each other's inverse."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.cases import make_batch
from rectifier import LabelSpace, class_counts
from rectifier.evaluation.rows import COLUMNS, as_rows, flatten, nest, preferred_rule
from rectifier.evaluation.scoring import fit_rules, score_rules, with_posthoc

NAMES = st.sampled_from(
    [
        "cat",
        "007",
        "1",
        "1.0",
        "-1",
        "nan",
        "None",
        "",
        " ",
        "a/b",
        "/",
        "labels",
        "rules",
        "argmax",
        "\udce9",
        "猫",
        "true",
    ]
)
VALUES = st.one_of(st.none(), st.floats(0, 1), st.sampled_from([0.0, 1.0, 0.1 + 0.2, 1e-300]))
OVERALL = ("class_balanced_accuracy", "accuracy", "nll", "many")


@st.composite
def scores(draw: st.DrawFn, labels: list[str], classes: dict[str, list[str]], groups: list[str]) -> dict[str, Any]:
    """The scores of one rule, as metrics.json nests them."""
    found: dict[str, Any] = {metric: draw(VALUES) for metric in OVERALL}
    found["absent"] = draw(st.integers(0, 9))
    if groups:
        found["group_top5"] = {group: draw(VALUES) for group in groups}
    found["labels"] = {
        label: {
            "accuracy": draw(VALUES),
            "sensitivity": {name: draw(VALUES) for name in classes[label]},
            "samples": {name: draw(VALUES) for name in classes[label]},
        }
        for label in labels
    }
    return found


@st.composite
def metrics(draw: st.DrawFn) -> dict[str, Any]:
    labels = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    classes = {label: draw(st.lists(NAMES, min_size=1, max_size=3, unique=True)) for label in labels}
    groups = draw(st.lists(NAMES, max_size=2, unique=True))
    names = ["argmax", *draw(st.sampled_from([[], ["prior", "tuned"], ["threshold-adjustment"]]))]
    found: dict[str, Any] = {}
    for part in draw(st.sampled_from([["validation", "test"], ["test"]])):
        rules = {rule: draw(scores(labels, classes, groups)) for rule in names}
        found[part] = {**rules["argmax"], "rules": rules}
    return {**found, "preferred_rule": draw(st.sampled_from(names))} if draw(st.booleans()) else found


@settings(max_examples=100)
@given(metrics())
def test_flattened_and_nested_it_is_the_same_to_the_byte(content: dict[str, Any]) -> None:
    rows = flatten(content)
    assert json.dumps(nest(rows)) == json.dumps(content)
    assert flatten(nest(rows)).equals(rows)
    assert preferred_rule(rows) == content.get("preferred_rule")


@pytest.mark.parametrize(
    ("names", "groups"),
    [
        ({"kind": ["cat", "dog", "eel"], "size": ["1", "2"]}, 0),
        ({"1": ["0", "1"], "a/b": ["x/y", "3.5"]}, 0),
        ({f"{group}/{k}": ["no", "yes"] for group in ("texture", "style") for k in range(2)}, 2),
    ],
)
def test_scored_rows_are_those_of_the_file(names: dict[str, list[str]], groups: int) -> None:
    space = LabelSpace.from_names(names)
    batch = make_batch(list(space.sizes), 60, missing=0.2, dtype=torch.float32)
    targets = batch.targets.clone()
    targets[:, 0] = targets[:, 0].clamp(max=0)  # the other classes of the first label are absent
    counts = class_counts(targets, space)
    given = batch.logits, targets, space, counts
    rules = with_posthoc(fit_rules(*given), "threshold-adjustment", *given)
    rows = score_rules("test", batch.logits, targets, space, counts, rules)
    assert tuple(rows.columns) == COLUMNS
    assert rows["value"].dtype == float
    content = nest(rows)
    assert flatten(json.loads(json.dumps(content, allow_nan=False))).equals(rows)
    assert list(content["test"]["rules"]) == list(rules["offsets"])
    assert len(content["test"].get("group_top5", {})) == groups
    first = content["test"]["labels"][space.names[0]]
    assert first["sensitivity"][space.classes[0][1]] is None
    assert isinstance(content["test"]["absent"], int)


def test_an_unfinished_run_has_no_rows() -> None:
    for content in ({}, {"test": None}, {"test": {"accuracy": 1.0}}):
        assert flatten(content).empty
    assert preferred_rule(flatten({})) is None


def test_values_that_are_not_defined_are_nan() -> None:
    rows = as_rows([("test", "argmax", None, None, "few", None)])
    assert math.isnan(rows["value"][0])
    assert nest(rows)["test"]["few"] is None
