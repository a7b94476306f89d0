"""rectifier evaluate: score saved predictions."""

from __future__ import annotations

from typer import Option

from rectifier.cli.app import app, show, with_resume_hint
from rectifier.cli.options import AsJson, RunFolder


@app.command(epilog="Example: [bold]rectifier evaluate runs/first --posthoc threshold-adjustment[/]")
def evaluate(
    run: RunFolder,
    posthoc: str | None = Option(
        None, help="Add a decision rule, fitted on validation: threshold-adjustment or logit-adjustment."
    ),
    part: str = Option("test", help="Part to score: test or validation."),
    as_json: AsJson = False,
    every: bool = Option(False, "--all", help="Show the results of every label."),
) -> None:
    """Score the saved predictions of a run under every decision rule."""
    from rectifier._base import check
    from rectifier.evaluation.rows import nest
    from rectifier.report.run_view import view
    from rectifier.training.run.results import evaluate as score

    check.raise_all([check.choice("--part", part, ("test", "validation"))])
    with with_resume_hint(run):
        scored = score(run, posthoc)
    show(nest(scored), as_json, lambda _: view(scored, part, every=every))
