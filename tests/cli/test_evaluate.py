"""rectifier evaluate."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from helpers.command_line import Photos, contents, refuse, succeed
from rectifier.training.run.folder import Run
from rectifier.training.run.results import score_predictions


def test_evaluate_gives_what_the_run_holds(photos: Photos) -> None:
    before = contents(photos.run)
    result = succeed("evaluate", photos.run, "--json")
    assert json.loads(result.stdout) == json.loads((photos.run / "metrics.json").read_text())
    assert result.stderr == ""
    assert succeed("evaluate", photos.run).stdout == photos.result.stdout
    validation = succeed("evaluate", photos.run, "--part", "validation").stdout
    assert validation.startswith("Metrics on validation")
    assert contents(photos.run) == before


def test_evaluate_adds_one_rule_and_leaves_the_run_as_it_is(shapes: Path) -> None:
    before = contents(shapes)
    kept = json.loads((shapes / "metrics.json").read_text())
    found = json.loads(succeed("evaluate", shapes, "--posthoc", "threshold-adjustment", "--json").stdout)
    for part in ("validation", "test"):
        assert list(found[part]["rules"]) == ["argmax", "prior", "tuned", "threshold-adjustment"]
        added = found[part]["rules"].pop("threshold-adjustment")
        assert added != kept[part]["rules"]["argmax"]
        assert found[part] == kept[part]
    assert contents(shapes) == before


def test_evaluate_names_the_rule_that_predict_uses(shapes: Path) -> None:
    changed = Run(shutil.copytree(shapes, "run"))
    draw, found = torch.Generator().manual_seed(8), {}
    for part in ("validation", "test"):
        kept = changed.predictions(part)
        found[part] = replace(kept, logits=torch.randn(kept.logits.shape, generator=draw))
        changed.save_predictions(part, found[part])
    rules, metrics = score_predictions(found, changed.train_counts, changed.config.method)
    changed.save_results(rules, metrics)
    more = ("--posthoc", "threshold-adjustment")
    scores = json.loads(succeed("evaluate", "run", *more, "--json").stdout)["validation"]["rules"]
    # The added rule has more of validation than the run's own, but predict does not know it.
    assert scores["threshold-adjustment"]["class_balanced_accuracy"] > max(rules["validation"].values())
    shown = succeed("evaluate", "run", *more).stdout
    assert re.search(rf"\b{rules['preferred']}\b", shown.splitlines()[-1])


def with_method(run: Path, name: str) -> Run:
    """Return a copy of a run that says it was trained with another method."""
    changed = Run(shutil.copytree(run, name))
    settings = json.loads((changed.path / "config.json").read_text())
    (changed.path / "config.json").write_text(json.dumps({**settings, "method": name, "method_options": {}}))
    return changed


def test_evaluate_says_why_prior_equals_argmax(shapes: Path) -> None:
    run = with_method(shapes, "over-sampling")
    found = {part: run.predictions(part) for part in ("validation", "test")}
    run.save_results(*score_predictions(found, run.train_counts, "over-sampling"))
    shown = succeed("evaluate", "over-sampling").stdout
    note = "The rule prior adds nothing for over-sampling: training already corrects for class frequencies."
    assert note in " ".join(shown.split())
    rules = json.loads(succeed("evaluate", "over-sampling", "--json").stdout)["test"]["rules"]
    assert rules["prior"] == rules["argmax"]
    assert "adds nothing" not in succeed("evaluate", shapes).stdout
    both = succeed("compare", shapes, "over-sampling").stdout
    assert note in " ".join(both.split())
    assert "adds nothing" not in succeed("compare", shapes).stdout


def test_a_run_keeps_the_rules_that_it_was_saved_with(shapes: Path) -> None:
    """Its prior was subtracted when it was scored, before a rule knew what its method does."""
    run = with_method(shapes, "over-sampling")
    before = contents(run.path)
    shown = succeed("evaluate", "over-sampling", "--json")
    assert json.loads(shown.stdout) == json.loads((run.path / "metrics.json").read_text())
    assert "adds nothing" not in succeed("evaluate", "over-sampling").stdout
    assert contents(run.path) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--posthoc", "threshold-adjustmnet"], "Did you mean 'threshold-adjustment'?"),
        (["--part", "tset"], "Did you mean 'test'?"),
    ],
)
def test_evaluate_answers_a_misspelt_name_with_the_nearest(shapes: Path, options: list[str], message: str) -> None:
    assert message in refuse("evaluate", shapes, *options)
