"""Answers, image by image: counted as a loop would count them, drawn in the colour that they deserve."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb

from experiments import answers
from experiments.answers import Answer, draw_answers, first_answers, shares_right
from experiments.pictures import RED, decisions
from rectifier._base.files import write_json
from rectifier.labels.space import LabelSpace
from rectifier.training.config import Config
from rectifier.training.run.folder import Run
from rectifier.training.run.predictions import Predictions

SPACE = LabelSpace.from_names({"kind": ["shoe", "shirt", "hat"], "colour": ["red", "blue"]})
SAMPLES = 40


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run with random predictions of test images, some of whose labels are missing; of one, all."""
    random = torch.Generator().manual_seed(0)
    logits = torch.randn(SAMPLES, SPACE.columns, generator=random)
    targets = torch.stack([torch.randint(-1, size, (SAMPLES,), generator=random) for size in SPACE.sizes], 1)
    targets[3] = -1
    made = Run.create(tmp_path / "run", Config("digits"))
    made.save_predictions("test", Predictions(logits, targets, tuple(f"{i}.jpg" for i in range(SAMPLES)), SPACE))
    offsets = {"argmax": [0.0] * SPACE.columns, "prior": [0.0, 0.0, 3.0, 0.0, 2.0]}
    write_json(made.path / "rules.json", {"preferred": "prior", "offsets": offsets})
    return made


@pytest.mark.parametrize("rule", ["argmax", "preferred"])
def test_shares_are_those_of_a_loop(run: Run, rule: str) -> None:
    predictions = run.predictions("test")
    decided = decisions(run, predictions, rule).tolist()
    right: dict[str, list[bool]] = {name: [] for name in (*SPACE.names, answers.WHOLE)}
    for ours, theirs in zip(decided, predictions.targets.tolist(), strict=True):
        known = [(name, a == b) for name, a, b in zip(SPACE.names, ours, theirs, strict=True) if b >= 0]
        for name, hit in known:
            right[name].append(hit)
        if known:
            right[answers.WHOLE].append(all(hit for _, hit in known))
    expected = {name: sum(hits) / len(hits) for name, hits in right.items()}
    assert shares_right(run, predictions, rule) == pytest.approx(expected)
    assert 0 < expected[answers.WHOLE] < min(expected[name] for name in SPACE.names)


def test_a_rule_changes_the_answers(run: Run) -> None:
    predictions = run.predictions("test")
    assert shares_right(run, predictions, "argmax") != shares_right(run, predictions, "preferred")


def test_first_answers_are_the_decisions_in_words(run: Run) -> None:
    predictions = run.predictions("test")
    decided = decisions(run, predictions, "preferred")
    said = first_answers(run, predictions, 7, "preferred")
    assert list(said) == [f"{i}.jpg" for i in range(7)]
    for i, own in enumerate(said.values()):
        for a, answer in enumerate(own):
            assert answer.label == SPACE.names[a]
            assert SPACE.classes[a].index(answer.name) == decided[i, a]
            target = int(predictions.targets[i, a])
            assert answer.right == (None if target < 0 else target == decided[i, a])
    assert [answer.right for answer in said["3.jpg"]] == [None, None]


def test_wrong_answers_are_red_and_unknown_ones_in_brackets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(answers, "save_figure", lambda figure, _: drawn.append(figure))
    own = [Answer("kind", "hat", True), Answer("colour", "red $x", False), Answer("season", "fall", None)]
    draw_answers([np.zeros((6, 4, 3), np.uint8)] * 5, [own] * 5, tmp_path / "answers.png")
    texts = [text for axis in drawn[0].axes for text in axis.texts]
    assert len(texts) == 5 * len(own)
    assert [text.get_text() for text in texts[:3]] == ["hat", r"red \$x", "(fall)"]
    assert [to_rgb(text.get_color()) == to_rgb(RED) for text in texts[:3]] == [False, True, False]
    assert sum(len(axis.images) for axis in drawn[0].axes) == 5
