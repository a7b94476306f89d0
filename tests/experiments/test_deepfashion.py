"""DeepFashion is scored by groups of labels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from helpers.experiments import page, run
from helpers.fakes import write_deepfashion
from rectifier.reproduce import load_experiment, reproduce
from rectifier.reproduce.request import Request


def test_deepfashion_is_scored_by_groups(tmp_path: Path) -> None:
    write_deepfashion(tmp_path / "data", images=60)
    small = {"network": "mlp", "epochs": 1, "size": "16x16", "batch_size": 16, "padding": 0}
    known = load_experiment("deepfashion")
    experiment = replace(known, settings={**known.settings, **small})
    settings = {"accelerator": "cpu", "data_root": str(tmp_path / "data")}
    request = Request(results=tmp_path / "results", runs=tmp_path / "runs", settings=settings, seeds=2)
    result = reproduce("deepfashion", experiment, request)
    groups = result.all_records[0]["test"]["argmax"]["group_top5"]
    assert len(groups) > 1
    head, _, line, *_ = [row for row in page(result).splitlines() if row.startswith("|")]
    assert [name.strip() for name in head.split("|")[3:-1:2]] == [*groups, "mean"]
    shown = [float(text.split("±")[0]) for text in line.split("|")[3:-1:2]]
    by_hand = [result.values(experiment.cells[0], "argmax", name, "group_top5") for name in groups]
    means = [100 * sum(v for v in values.values() if v is not None) / len(values) for values in by_hand]
    assert shown == pytest.approx([*means, sum(means) / len(means)], abs=0.051)


def test_quick_deepfashion_has_groups_and_the_papers_numbers(tmp_path: Path) -> None:
    result = run("deepfashion", tmp_path, quick=True)
    head, _, line, *_ = [row.split("|")[1:-1] for row in page(result).splitlines() if row.startswith("|")]
    assert [name.strip() for name in head[2:]] == ["texture", "paper", "shape", "paper", "mean", "paper"]
    assert [text.strip() for text in line[3::2]] == ["53.29", "53.02", "52.2"]
