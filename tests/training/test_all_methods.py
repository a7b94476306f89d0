"""One comparison over all methods: on images with one label, and on images with several, some missing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from helpers.training import config
from rectifier._base import console
from rectifier.methods import METHODS, find_method
from rectifier.report.comparison import compare_runs
from rectifier.training import many as suite
from rectifier.training.run.folder import Run

DATA = {
    "one label": "digits",
    "several labels": "shapes:samples=160,size=16,ratio=6,labels=shape=4/colour=3/texture=2,missing=0.1",
}
TOGETHER = ["crl+logit-adjustment", "crl+balanced-softmax", "crl+ldam-drw", "crl+crt", "crl+mixup+threshold-adjustment"]


@pytest.mark.parametrize("data", DATA)
def test_one_comparison_over_all_methods(tmp_path: Path, data: str) -> None:
    # The asymmetric loss is for labels of two classes; with others there is at least one of them.
    names = [name for name in (*METHODS, *TOGETHER) if name != "asymmetric" or data == "several labels"]
    specs = [f"{name}:cluster_size=20" if name == "lmle" else name for name in names]
    common = config(DATA[data], epochs=5, batch_size=40, features=False)
    with console.quiet():
        runs = suite.train_missing(suite.plan(common, specs, 1, tmp_path))
        result = compare_runs(runs)
    scores = result.overall("argmax", "class_balanced_accuracy")["groups"]
    assert len(scores) == len(names)
    assert all(0 < score["mean"] < 1 for score in scores.values())
    assert [run.config.method for run in runs] == names
    last = (runs[names.index("lmle")].path / "history.csv").read_text().splitlines()
    row = dict(zip(last[0].split(","), last[-1].split(","), strict=True))
    assert float(row["comparisons"]) > 0  # its rounds have started
    assert_each_differs(dict(zip(names, runs, strict=True)))
    files = [{path.name for path in run.path.iterdir()} for run in runs]
    assert ["decision.safetensors" in own for own in files] == [
        find_method(name).decision is not None for name in names
    ]


def assert_each_differs(runs: dict[str, Run]) -> None:
    """Every method leaves other scores of the test images than cross-entropy: its logits, or what is added to them."""

    def scores(name: str) -> Tensor:
        run = runs[name]
        offsets = torch.tensor(run.rules["offsets"]["argmax"])
        return run.predictions("test").logits + offsets

    ours = {name: scores(name) for name in runs}
    same = [name for name in runs if name != "ce" and torch.allclose(ours[name], ours["ce"], atol=1e-4)]
    assert not same
    assert not torch.allclose(ours["ldam-drw"], ours["ldam"], atol=1e-4)  # weights of an epoch that was re-weighted
    centres = runs["lmle"].decision()
    assert centres is not None
    assert len(centres[1]["class_of"]) > runs["lmle"].space.columns  # some class has several clusters
