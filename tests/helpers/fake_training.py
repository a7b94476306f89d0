"""Small experiments, and a fake training that writes finished runs with given scores."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.cases import StopsAfter
from helpers.fakes import write_image
from helpers.records import SHAPES, SMALL
from helpers.results import made_record
from rectifier.evaluation.scoring import RULES
from rectifier.reproduce import Cell, Experiment, reproduce, views
from rectifier.reproduce.records import key_of, write_results
from rectifier.reproduce.request import Request
from rectifier.training import many as suite
from rectifier.training.config import Config
from rectifier.training.engine import fit as fitting
from rectifier.training.engine.interrupt import Stopped
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
    """Count trainings: the configs of started runs, and the folders of resumed runs."""

    def __init__(self) -> None:
        self.started: list[Config] = []
        self.resumed: list[Path] = []

    def seen(self) -> list[tuple[str, int]]:
        """Return method and seed of the runs started since the last call."""
        found = [(config.method, config.seed) for config in self.started]
        self.started.clear()
        return found


def interrupt(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """Raise KeyboardInterrupt after this many runs."""
    train, left = suite.train, [after]

    def interrupted(config: Config, out: Path, **options: Any) -> Run:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return train(config, out, **options)

    monkeypatch.setattr(suite, "train", interrupted)


Score = Callable[[Config], tuple[float, float]]


class FakeTraining:
    """Replaces training: copies a finished run and sets its scores.

    ``scores`` gives the validation and test score of a config.
    """

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
    """Score runs by their eta; 0 stands for runs without."""
    return lambda config: (validation[eta(config) or 0], test[eta(config) or 0])


# Eta 0.5 is best on validation, eta 0.1 on test.
DIVIDED = by_eta({0: 0.5, 0.1: 0.3, 0.5: 0.8, 1.0: 0.6}, {0: 0.5, 0.1: 0.9, 0.5: 0.2, 1.0: 0.4})


def write_table(folder: Path, colours: str) -> Path:
    """Write an image for each letter, and a table with its colour."""
    parts = ("train", "train", "validation", "test")
    rows = ["image,colour,split"]
    for i, colour in enumerate(colours):
        write_image(folder / f"{i}.png", i, (8, 8))
        rows.append(f"{i}.png,{colour},{parts[i % 4]}")
    (folder / "labels.csv").write_text("\n".join(rows))
    return folder / "labels.csv"


WILD = Cell("wild", settings={"method": "ce", "lr": 1e12}, against="CE")


FOCAL = Cell("focal", settings={"method": "focal"}, against="CE")


ALL = [("ce", 0), ("ce", 1), ("crl", 0), ("crl", 1)]


def keys(records: Sequence[dict[str, Any]]) -> list[str]:
    return [record["key"] for record in records]


def texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in (folder / "results").iterdir()}


def change(table: Path) -> None:
    """Give an image another label."""
    table.write_text(table.read_text().replace("5.png,b", "5.png,r"))


def of_table(table: Path, *cells: Cell, **options: Any) -> Experiment:
    settings = {"data": str(table), "size": "8", **options.pop("settings", {})}
    return made(*cells, settings=settings, **options)


def prints(folder: Path) -> dict[tuple[str, int], str]:
    return {(run["row"], run["seed"]): run["data"]["fingerprint"] for run in content(folder)["runs"]}


def page(folder: Path) -> str:
    return (folder / "results" / "one.md").read_text(encoding="utf-8")


def stop_within(experiment: Experiment, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Train, and stop after a few steps of the first run."""
    with monkeypatch.context() as patch:
        patch.setattr(StopsAfter, "steps", 4)
        patch.setattr(fitting, "Interrupt", StopsAfter)
        with pytest.raises(Stopped):
            reproduce("one", experiment, request(folder))


Diverging = Callable[[Config], bool]


def let_diverge(fake: FakeTraining, monkeypatch: pytest.MonkeyPatch, which: Diverging) -> None:
    def train(config: Config, out: Path, **options: Any) -> Run:
        run = fake.train(config, out, **options)
        if which(config):
            (out / "metrics.json").unlink()
            raise FloatingPointError(f"{out}: the loss is not finite")
        return run

    monkeypatch.setattr(suite, "train", train)


Elsewhere = Callable[[], Any]


def meanwhile(fake: FakeTraining, monkeypatch: pytest.MonkeyPatch, elsewhere: Elsewhere) -> None:
    """Call ``elsewhere`` when the next run is trained."""
    started: list[Config] = []

    def train(config: Config, out: Path, **options: Any) -> Run:
        started.append(config)
        if len(started) == 1:
            elsewhere()
        return fake.train(config, out, **options)

    monkeypatch.setattr(suite, "train", train)


def recorded(experiment: Experiment, cell: Cell, seed: int = 0, **facts: Any) -> dict[str, Any]:
    """Make a record without training; ``more`` are settings chosen for the run."""
    config = replace(experiment.config(cell, quick=False, more=facts.pop("more", {})), seed=seed)
    known = {"key": key_of(config), "data": {"split_hash": "0123456789abcdef", "ratios": {}, "fingerprint": ""}}
    return {**made_record(random.Random(seed), seed), **known, **facts}


def publish(
    folder: Path, runs: Sequence[dict[str, Any]], candidates: Sequence[dict[str, Any]] = (), **facts: Any
) -> None:
    lists = {"runs": runs, "candidates": candidates}
    write_results(folder / "results" / "one.json", {"experiment": "one", **facts}, lists)


def without_data(folder: Path, **settings: Any) -> Request:
    """Request results with a data folder that has no images."""
    return request(folder, settings={"data_root": str(folder)}, **settings)
