"""When CRL collapses to constant predictions: what happens, and what prevents it."""

import csv
from statistics import fmean
from typing import Any, cast

from torch import Tensor

from rectifier.report.comparison import PREFERRED
from rectifier.reproduce import Cell, Context, Experiment, ExperimentResult, views
from rectifier.training.run.folder import Run

from .recipes import CELEBA, QUICK_LABELS

BASE = "cross-entropy"
TRIED: dict[str, dict[str, Any]] = {
    BASE: {"method": "ce"},
    "CRL, eta 0.1": {"eta": 0.1},
    "CRL, eta 0.5": {"eta": 0.5},
    "CRL, eta 1": {"eta": 1.0},
    "eta 1, dropout": {"eta": 1.0, "network.dropout": 0.5},
    "eta 1, decay 0.0005": {"eta": 1.0, "weight_decay": 0.0005},
    "eta 1, a warm-up of 2 epochs": {"eta": 1.0, "warmup": 2.0},
    "eta 1, gradients clipped": {"eta": 1.0, "clip": 1.0},
    "eta 1, a tenth of the rate": {"eta": 1.0, "lr": 0.002},
    "eta 1, random pairs": {"eta": 1.0, "mining": "random"},
    "eta 1, from a quarter of training on": {"eta": 1.0, "rectify_from": 0.25},
}
HEADS = {
    "logits": "spread of logits",
    "features": "1,000 x deviation of features",
    "dead": "dead units (%)",
    "rectification": "100 x rectification at the end",
    "validation": "validation (%)",
}


def measure(context: Context) -> dict[str, Any]:
    return {row: {str(run.config.seed): _state(run) for run in context.runs(row, "")} for row in TRIED}


def _state(run: Run) -> dict[str, float]:
    """Return how much logits and features differ between images, and the last loss and score."""
    found = run.predictions("validation")
    features = cast(Tensor, found.features).float()  # which the experiment's settings save
    moves = (found.logits.amax(0) - found.logits.amin(0)).split(list(found.space.sizes))
    with (run.path / "history.csv").open(encoding="utf-8") as file:
        last = list(csv.DictReader(file))[-1]
    return {
        "logits": sorted(float(label.max()) for label in moves)[len(moves) // 2],
        "features": float(features.std(0).mean()),
        "dead": float((features.amax(0) == features.amin(0)).float().mean()),
        "rectification": float(last["rectification"]),
        "validation": float(last["validation"]),
    }


def show(result: ExperimentResult) -> str:
    lines = []
    for row, by_seed in result.found.items():
        if not by_seed:  # all of its runs diverged
            continue
        means = {name: fmean(one[name] for one in by_seed.values()) for name in HEADS}
        texts = [f"{means['logits']:.2f}", f"{1e3 * means['features']:.1f}"]
        texts += [f"{100 * means[name]:.1f}" for name in ("dead", "rectification", "validation")]
        cell = result.experiment.cell(row)
        gain = views.gain_text(result.gain(cell, PREFERRED))
        lines.append([row, *texts, views.spread(result.score(cell, PREFERRED)), gain])
    return "\n\n".join(
        [
            views.markdown_table(["setting", *HEADS.values(), "test, preferred rule (%)", "gain"], lines),
            "Values are means over seeds, after the last epoch, on validation images. The spread is how much the logits"
            " of the median label differ between images. The deviation of features is a mean over all units. A dead"
            " unit has the same output for all images. The margin of the rectification is 50 on this scale."
            " Validation is"
            " class-balanced accuracy by argmax, which is 50 for constant predictions. The last two columns are"
            " class-balanced accuracy on test under the preferred rule, and the gain over cross-entropy in points.",
        ]
    )


EXPERIMENT = Experiment(
    title="CRL that collapses to constant predictions on CelebA: divergence, dead units, or something else",
    source="Beyond the paper: when CRL helps",
    about=(
        "Training takes ten epochs, with a larger weight of CRL than in the tables, and with settings that might"
        " prevent the collapse."
    ),
    finding=(
        "After a collapse, features hardly differ between images, the rectification loss stays at its margin, and"
        " many units are dead, but not all. Hard mining among features that mean nothing yet pulls them to one point,"
        " as is known from triplet losses. Nothing diverges."
    ),
    show=show,
    settings={**CELEBA, "method": "crl", "epochs": 10, "validate_every": 2, "features": True, "select": "last"},
    cells=[
        Cell(
            row,
            settings=settings,
            against=None if row == BASE else BASE,
            quick={"lr": 0.005} if "lr" in settings else {},
        )
        for row, settings in TRIED.items()
    ],
    quick={**QUICK_LABELS, "epochs": 10},
    measure=measure,
)
