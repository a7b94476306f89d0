"""rectifier demo."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers.command_line import succeed
from rectifier.cli import demo as demonstration
from rectifier.training import presets
from rectifier.training.run.folder import Run


def test_demo_prints_expected_results_next_to_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    short = presets.Preset("short", {**presets.PRESETS["digits"].settings, "epochs": 1, "tensorboard": False})
    monkeypatch.setitem(presets.PRESETS, "digits", short)
    monkeypatch.setattr(demonstration, "METHODS", ("ce", "crl:eta=0.5"))
    monkeypatch.setattr(demonstration, "EXPECTED", {"ce": (12.3, 45.6), "crl (eta 0.5)": (78.9, 98.7)})
    shown = succeed("demo").stdout
    out = Path("rectifier-demo")
    assert len(list((out / "runs").iterdir())) == 6
    assert {"comparison.md", "summary.png"} <= {path.name for path in out.iterdir()}
    rows = [line.rsplit(maxsplit=4) for line in shown.splitlines()[-2:]]
    for (name, argmax, first, tuned, second), expected in zip(rows, demonstration.EXPECTED.items(), strict=True):
        assert (name, (float(first), float(second))) == expected
        runs = [Run(path).metrics["test"]["rules"] for path in out.glob(f"runs/{name.partition(' ')[0]}-*")]
        assert len(runs) == 3
        for rule, value in (("argmax", argmax), ("tuned", tuned)):
            mean = np.mean([rules[rule]["class_balanced_accuracy"] for rules in runs])
            assert float(value) == pytest.approx(100 * mean, abs=0.051)

    other = succeed("demo", "--seeds", 2)  # what is expected holds for three seeds
    assert "2 seeds" in other.stdout
    assert "expected" in shown
    assert "expected" not in other.stdout


def test_the_demo_expects_results_of_its_methods() -> None:
    assert {spec.partition(":")[0] for spec in demonstration.METHODS} == {
        name.partition(" ")[0] for name in demonstration.EXPECTED
    }
