"""One comparison over all methods: on images with one label, and on images with several, some missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from rectifier import console
from rectifier.compare import suite
from rectifier.methods import METHODS, find_method
from test_training import config

DATA = {
    "one label": "digits",
    "several labels": "shapes:samples=160,size=16,ratio=6,labels=shape=4/colour=3/texture=2,missing=0.1",
}
TOGETHER = ["crl+logit-adjustment", "crl+balanced-softmax", "crl+ldam-drw", "crl+crt", "crl+mixup+threshold-adjustment"]


@pytest.mark.parametrize("data", DATA)
def test_one_comparison_over_all_methods(tmp_path: Path, data: str) -> None:
    # The asymmetric loss is for labels of two classes; with others there is at least one of them.
    names = [name for name in (*METHODS, *TOGETHER) if name != "asymmetric" or data == "several labels"]
    common = config(DATA[data], epochs=5, batch_size=40, features=False)
    with console.quiet():
        runs = suite.train_missing(suite.plan(common, names, 1, tmp_path))
        result = suite.compare_runs(runs)
    scores = result["rules"]["argmax"]["test"]["class_balanced_accuracy"]["groups"]
    assert len(scores) == len(names)
    assert all(0 < score["mean"] < 1 for score in scores.values())
    assert [run.config.method for run in runs] == names
    last = (runs[names.index("lmle")].path / "history.csv").read_text().splitlines()
    row = dict(zip(last[0].split(","), last[-1].split(","), strict=True))
    assert float(row["comparisons"]) > 0  # its rounds have begun
    files = [{path.name for path in run.path.iterdir()} for run in runs]
    assert ["decision.safetensors" in own for own in files] == [
        find_method(name).decision is not None for name in names
    ]
