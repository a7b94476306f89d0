"""The verb demo: four methods on imbalanced digits, three seeds, table and figures, and what should come out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rectifier.cli.app import app
from rectifier.cli.training import show_comparison, with_resume_hint

if TYPE_CHECKING:
    from rich.table import Table

    from rectifier.report.comparison import ComparisonResult

SEEDS = 3
METHODS = ("ce", "crl:eta=0.5", "over-sampling", "cost-sensitive")

# Class-balanced accuracy in percent over seeds 0, 1 and 2, by argmax and with tuned thresholds. Other processors round
# otherwise; a point away is nothing to worry about.
EXPECTED = {
    "ce": (86.1, 88.9),
    "cost-sensitive": (86.1, 88.7),
    "crl (eta 0.5)": (85.7, 89.2),
    "over-sampling": (86.5, 88.2),
}


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="For runs, tables and figures.")] = Path(
        "rectifier-demo"
    ),
    seeds: Annotated[int, typer.Option("--seeds", help="How many.")] = SEEDS,
) -> None:
    """Train four methods on imbalanced digits and compare them: a first look, in half a minute."""
    import torch
    from rich.console import Console

    from rectifier.report.comparison import compare_runs
    from rectifier.training import many as suite
    from rectifier.training.presets import preset

    torch.set_num_threads(1)  # a network this small only waits for a second thread
    planned = suite.plan(preset("digits"), METHODS, seeds, out)
    result = compare_runs(with_resume_hint(lambda: suite.train_missing(planned), None))
    show_comparison(result, out, as_json=False, every=True, rule="argmax")
    if seeds == SEEDS:
        Console(highlight=False).print("", _beside_expected(result))


def _beside_expected(result: ComparisonResult) -> Table:
    from rich.table import Table

    table = Table("Class-balanced accuracy", "argmax", "expected", "tuned", "expected", box=None, pad_edge=False)
    for name, expected in EXPECTED.items():
        cells = []
        for rule, value in zip(("argmax", "tuned"), expected, strict=True):
            mean = result.overall(rule, "class_balanced_accuracy")["groups"][name]["mean"]
            cells += [f"{100 * (mean or 0):.1f}", f"{value:.1f}"]
        table.add_row(name, *cells)
    return table
