"""The scripts of docs/integrations.md run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import rectifier.losses
import rectifier.samplers
from helpers.scripts import ROOT, VISION, run, run_with_torchvision

PAGE = (ROOT / "docs" / "integrations.md").read_text()

SCRIPTS = {
    heading: block[1]
    for heading, text in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    if (block := re.search(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
}
FRAMEWORKS = (
    *("Plain PyTorch", "Lightning", "Hugging Face Trainer", "accelerate", "skorch"),
    *("timm", "torchvision"),
)


def printed_by(heading: str, folder: Path, *before: str, after: tuple[str, ...] = ()) -> str:
    vision = heading in ("timm", "torchvision")
    script = SCRIPTS[heading]
    printed = run_with_torchvision(script, folder) if vision else run(script, folder, *before, after=after)
    assert "set_progress was not called" not in printed
    return printed


def accuracy(printed: str) -> float:
    found = re.search(r"class-balanced accuracy\D+([01]\.\d+)", printed)
    assert found, printed
    return float(found[1])


def test_the_page_has_a_script_for_each_framework() -> None:
    assert tuple(SCRIPTS) == FRAMEWORKS


@pytest.mark.parametrize("heading", FRAMEWORKS)
def test_a_script_shows_a_loss_a_sampler_the_metric_and_a_rule_in_under_40_lines(heading: str) -> None:
    names = set(re.findall(r"\w+", SCRIPTS[heading]))
    assert names & set(rectifier.losses.__all__)
    assert names & set(rectifier.samplers.__all__)
    assert names & {"TunedThresholds", "PriorRule"}
    assert "ClassBalancedAccuracy" in names
    assert len(SCRIPTS[heading].splitlines()) < 40
    assert max(map(len, SCRIPTS[heading].splitlines())) <= 120


@pytest.mark.parametrize("heading", ["Plain PyTorch", "Hugging Face Trainer", "accelerate", "skorch"])
def test_a_script_runs(heading: str, tmp_path: Path) -> None:
    assert accuracy(printed_by(heading, tmp_path)) > 0.75


@pytest.mark.parametrize("processes", ["1", "2"])
def test_the_script_for_lightning_runs_in_one_and_in_two_processes(processes: str, tmp_path: Path) -> None:
    printed = printed_by("Lightning", tmp_path, after=(processes,))
    assert accuracy(printed) > 0.75
    assert ("Starting with 2 processes" in printed) == (processes == "2")


def test_the_script_for_accelerate_runs_in_two_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = ("-m", "torch.distributed.run", "--nproc_per_node", "2", "--standalone")
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    printed = printed_by("accelerate", tmp_path, *launch)
    assert accuracy(printed) > 0.75
    assert "2 processes" in printed


@pytest.mark.skipif(not VISION.is_dir(), reason=f"timm and torchvision are not in {VISION}")
@pytest.mark.parametrize("heading", ["timm", "torchvision"])
def test_a_script_with_images_runs(heading: str, tmp_path: Path) -> None:
    assert accuracy(printed_by(heading, tmp_path)) > 0.6
