"""rectifier demo: four methods on imbalanced digits, three seeds, with the results to expect."""

from __future__ import annotations

from pathlib import Path

from typer import Option

from rectifier.cli.app import show, with_resume_hint
from rectifier.cli.compare import show_comparison
from rectifier.cli.options import require_count, verb

SEEDS = 3
METHODS = ("ce", "crl:eta=0.5", "over-sampling", "cost-sensitive")

# Class-balanced accuracy in percent over seeds 0, 1 and 2, by argmax and with tuned thresholds. Processors round
# differently: a difference of one point is normal.
EXPECTED = {
    "ce": (86.1, 88.9),
    "cost-sensitive": (86.1, 88.7),
    "crl (eta 0.5)": (85.7, 89.2),
    "over-sampling": (86.5, 88.2),
}


@verb()
def demo(
    out: Path = Option(Path("rectifier-demo"), metavar="DIR", help="Folder for runs, tables and figures."),
    seeds: int = Option(SEEDS, help="Number of seeds per method."),
) -> None:
    """Train four methods on imbalanced digits and compare them. Takes half a minute."""
    import torch

    from rectifier.report.comparison import compare_runs
    from rectifier.report.layout import number_table
    from rectifier.training import many as suite
    from rectifier.training.presets import preset

    require_count("--seeds", seeds)
    torch.set_num_threads(1)  # a network this small is no faster with a second thread
    planned = suite.plan(preset("digits"), METHODS, seeds, out)
    with with_resume_hint():
        runs = suite.train_missing(planned)
    result = compare_runs(runs)
    show_comparison(result, out, as_json=False, every=True, rule="argmax")
    if seeds == SEEDS:
        table = number_table("Class-balanced accuracy, %", "argmax", "expected", "tuned", "expected")
        for name, expected in EXPECTED.items():
            cells = []
            for rule, value in zip(("argmax", "tuned"), expected, strict=True):
                mean = result.overall(rule, "class_balanced_accuracy")["groups"][name]["mean"] or 0
                cells += [f"{100 * mean:.1f}", f"{value:.1f}"]
            table.add_row(name, *cells)
        show(table)
