"""rectifier evaluate: score saved predictions."""

from __future__ import annotations

from typer import Option

from rectifier.cli.app import require_choice, show, with_resume_hint
from rectifier.cli.options import AsJson, Every, RunFolder, verb


@verb("evaluate runs/first --posthoc threshold-adjustment")
def evaluate(
    run: RunFolder,
    posthoc: str | None = Option(
        None, help="Add a decision rule, fitted on validation: threshold-adjustment or logit-adjustment."
    ),
    part: str = Option("test", help="Part to score: test or validation."),
    as_json: AsJson = False,
    every: Every = False,
) -> None:
    """Score the saved predictions of a run under every decision rule."""
    from rectifier.evaluation.rows import nest
    from rectifier.report.run_view import view
    from rectifier.training.run.folder import Run
    from rectifier.training.run.results import evaluate as score
    from rectifier.training.run.results import prior_note

    require_choice("--part", part, ("test", "validation"))
    with with_resume_hint(run):
        opened = Run.open(run)
        scored, note = score(opened, posthoc), prior_note(opened)
    shown = view(scored, part, every=every, note=note, baselines=opened.baselines)
    show(shown, nest(scored), as_json=as_json)
