"""Shared by the tests of experiments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import experiments
from rectifier.reproduce import Experiment, ExperimentResult, Request, find_experiments, load_experiment, reproduce
from rectifier.training.config import Config

FOLDER = Path(experiments.__file__).parent  # imported plainly, so that a test and a loaded experiment share modules


NAMES = tuple(find_experiments(FOLDER))


def load(name: str) -> Experiment:
    return load_experiment(name, FOLDER)


def data_options(config: Config) -> tuple[str, dict[str, str]]:
    name, _, options = config.data.partition(":")
    return name, dict(entry.split("=", 1) for entry in options.split(",") if entry)


def write_experiment(folder: Path, name: str, title: str = "Mine", body: str | None = None) -> Path:
    """Write a folder with an experiment of two short cells, on generated data."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "__init__.py").write_text("")
    (folder / "numbers.py").write_text("PAPER = {'ce': 61.0, 'crl': 64.5}\n")
    (folder / f"{name}.py").write_text(body or MINE.replace("TITLE", title))
    return folder


MINE = """
from rectifier.reproduce import Cell, Experiment, views

from .numbers import PAPER

EXPERIMENT = Experiment(
    title="TITLE",
    source="Nobody's question",
    about="It takes a second.",
    show=views.table(),
    settings={
        "data": "shapes:samples=96,size=16,ratio=4,labels=shape=3,validation=20,test=20",
        **{"network": "mlp", "epochs": 1, "batch_size": 32, "tensorboard": False, "features": False},
    },
    cells=[
        Cell("CE", settings={"method": "ce"}, paper=PAPER["ce"]),
        Cell("CRL", settings={"method": "crl", "eta": 0.5}, paper=PAPER["crl"], against="CE"),
    ],
    quick={"epochs": 1},
    seeds=2,
)
"""


def run_quick(name: str, folder: Path) -> ExperimentResult:
    request = Request(folder / "results", folder / "runs", {"accelerator": "cpu"}, seeds=2, quick=True)
    return reproduce(name, load(name), request)


def recorded(folder: Path, name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "results" / f"{name}.json").read_text())
    return content


def run(name: str, folder: Path, **more: Any) -> ExperimentResult:
    request = {"settings": {"accelerator": "cpu"}, "seeds": 1, **more}
    return reproduce(name, load(name), Request(results=folder / "results", runs=folder / "runs", **request))


def page(result: ExperimentResult) -> str:
    return (result.folder / f"{result.name}.md").read_text()
