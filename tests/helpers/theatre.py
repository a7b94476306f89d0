"""Shared by the tests of theatre."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.fakes import write_image
from helpers.records import SHAPES, SMALL
from rectifier.evaluation.scoring import RULES
from rectifier.reproduce import Cell, Experiment, views
from rectifier.reproduce.work import Request
from rectifier.training import many as suite
from rectifier.training.config import Config
from rectifier.training.run.folder import Run

CE = Cell("CE", settings={"method": "ce"})


CRL = Cell("CRL", settings={"method": "crl", "eta": 0.5}, against="CE")


def made(*cells: Cell, seeds: int = 2, **settings: Any) -> Experiment:
    common = {"data": SHAPES, **SMALL, **settings.pop("settings", {})}
    show = settings.pop("show", views.table())
    return Experiment("A title", "A source", "About it.", show, common, cells or (CE, CRL), seeds=seeds, **settings)


def request(folder: Path, **settings: Any) -> Request:
    asked: dict[str, Any] = {"results": folder / "results", "runs": folder / "runs", "settings": {}, **settings}
    return Request(**asked)


def content(folder: Path, name: str = "one") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "results" / f"{name}.json").read_text(encoding="utf-8"))
    return found


class Count:
    """What was trained: the configs of runs that were begun, and the folders of those that were gone on with."""

    def __init__(self) -> None:
        self.begun: list[Config] = []
        self.resumed: list[Path] = []

    def seen(self) -> list[tuple[str, int]]:
        """Return method and seed of the runs begun since this was last asked."""
        found = [(config.method, config.seed) for config in self.begun]
        self.begun.clear()
        return found


def interrupt(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """Let so many runs be trained; at the next one somebody presses Ctrl-C."""
    begin, left = suite.train, [after]

    def impatient(config: Config, out: Path, **options: Any) -> Run:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return begin(config, out, **options)

    monkeypatch.setattr(suite, "train", impatient)


Score = Callable[[Config], tuple[float, float]]


class Theatre:
    """Takes the place of training: writes finished runs whose scores on validation and test are told beforehand."""

    def __init__(self, template: Path) -> None:
        self.template = template
        self.scores: Score = lambda _: (0.5, 0.5)
        self.trained: list[Config] = []

    def train(self, config: Config, out: Path, **_: Any) -> Run:
        self.trained.append(config)
        validation, test = self.scores(config)
        self.write(config, out, dict.fromkeys(RULES, validation), dict.fromkeys(RULES, test), "argmax")
        return Run(out)

    def write(
        self, config: Config, out: Path, validation: dict[str, float], test: dict[str, float], preferred: str
    ) -> None:
        shutil.copytree(self.template, out)
        (out / "config.json").write_text(json.dumps(config.as_dict()))
        metrics = json.loads((out / "metrics.json").read_text())
        for part, scores in (("validation", validation), ("test", test)):
            for rule in RULES:
                metrics[part]["rules"][rule]["class_balanced_accuracy"] = scores[rule]
        (out / "metrics.json").write_text(json.dumps({**metrics, "preferred_rule": preferred}))
        rules = json.loads((out / "rules.json").read_text())
        (out / "rules.json").write_text(json.dumps({**rules, "validation": validation, "preferred": preferred}))

    def seen(self) -> list[Config]:
        found = list(self.trained)
        self.trained.clear()
        return found


def eta(config: Config) -> float | None:
    found: float | None = config.method_options.get("eta")
    return found


ETAS = (0.1, 0.5, 1.0)


CHOOSING = replace(CRL, against=None, choose={"eta": ETAS})


def by_eta(validation: dict[float, float], test: dict[float, float]) -> Score:
    """Score runs by their eta; those without have half."""
    return lambda config: (validation[eta(config) or 0], test[eta(config) or 0])


# Validation likes 0.5 best, test 0.1.
DIVIDED = by_eta({0: 0.5, 0.1: 0.3, 0.5: 0.8, 1.0: 0.6}, {0: 0.5, 0.1: 0.9, 0.5: 0.2, 1.0: 0.4})


def write_table(folder: Path, colours: str) -> Path:
    """Write an image for each letter, and a table that says which colour it has."""
    parts = ("train", "train", "validation", "test")
    rows = ["image,colour,split"]
    for i, colour in enumerate(colours):
        write_image(folder / f"{i}.png", i, (8, 8))
        rows.append(f"{i}.png,{colour},{parts[i % 4]}")
    (folder / "labels.csv").write_text("\n".join(rows))
    return folder / "labels.csv"


WILD = Cell("wild", settings={"method": "ce", "lr": 1e12}, against="CE")
