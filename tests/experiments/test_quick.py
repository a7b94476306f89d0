"""The quick version of every experiment runs from the command line, and all that its page points to is there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from helpers.command_line import succeed
from helpers.experiments import FOLDER, NAMES
from rectifier.reproduce import load_experiment
from rectifier.training import many as suite
from rectifier.training.run.folder import Run

CPU = ("--accelerator", "cpu", "--experiments", FOLDER)


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RECTIFIER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("RECTIFIER_DATA", raising=False)


def assert_whole(page: Path) -> None:
    """Look at a page and all that it points to."""
    text = page.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert all((page.parent / link).is_file() for link in links if "://" not in link), links
    for image in re.findall(r"!\[.*?\]\((.*?)\)", text):
        assert (page.parent / image).read_bytes().startswith(b"\x89PNG")
    assert "generated data" in text
    assert "nan" not in re.findall(r"\w+", text)
    assert "None" not in re.findall(r"\w+", text)


SHARES = 6


@pytest.mark.parametrize("share", range(SHARES))
def test_quick_versions_run(share: int) -> None:
    for name in NAMES[share::SHARES]:
        check_quick_version(name)


def check_quick_version(name: str) -> None:
    experiment = load_experiment(name, FOLDER)
    seeds = 2 if len(experiment.cells) <= 4 else 1  # to be done soon
    result = succeed("reproduce", name, "--quick", "--seeds", seeds, "--out", f"out/{name}", *CPU)
    results = Path(f"out/{name}/quick")
    page = results / f"{name}.md"
    assert_whole(page)
    assert page.read_text(encoding="utf-8").startswith(f"# {experiment.title}\n\n{experiment.source}. ")
    assert result.stderr.endswith(f"Written: {page}\n")

    found = json.loads((results / f"{name}.json").read_text(encoding="utf-8"))
    assert (found["experiment"], found["title"]) == (name, experiment.title)
    runs = {run["key"]: run for run in found["runs"]}
    assert {run["seed"] for run in runs.values()} == (set(range(seeds)) if experiment.cells else set())
    assert all("validation" in run and ("test" in run) == experiment.scored for run in runs.values())
    assert {Run(folder).config.seed for folder in Path(f"out/{name}/quick-runs").glob("*")} >= {
        r["seed"] for r in runs.values()
    }
    assert bool(found["found"]) == (experiment.measure is not None)
    assert f"[{name}]({name}.md)" in (results / "README.md").read_text(encoding="utf-8")
    assert not Path("results").exists()  # which are of the full version


def test_experiments_that_share_runs_follow_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that look into runs find what they need in folders that another experiment trained."""
    names = [name for name in ("cifar100-imbalanced", "features", "celeba", "examples") if name in NAMES]
    succeed("reproduce", *names, "--quick", "--seeds", 1, "--out", "out", *CPU)
    for name in names:
        assert_whole(Path(f"out/quick/{name}.md"))
    before = {path.name: path.read_bytes() for path in Path("out/quick").iterdir() if path.suffix != ".png"}

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("nothing is left to train")

    for verb in ("train", "resume", "train_together"):
        monkeypatch.setattr(suite, verb, refuse)
    succeed("reproduce", *names, "--quick", "--seeds", 1, "--out", "out", *CPU)
    assert {path.name: path.read_bytes() for path in Path("out/quick").iterdir() if path.suffix != ".png"} == before


def test_what_is_not_there_yet_can_be_shown() -> None:
    result = succeed("reproduce", "all", "--quick", "--show", "--out", "out", *CPU)
    for name in NAMES:
        assert f"No results of {name} in" in result.stderr
    assert not Path("out").exists()
