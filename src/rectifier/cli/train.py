"""rectifier train: train one run, or resume it. Options that are settings come from ``training/settings.py``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer
from typer import Option

from rectifier._base import console
from rectifier.cli import options
from rectifier.cli.app import show, with_resume_hint


@options.verb(
    "train --data labels.csv --images photos --epochs 20 --out runs/first",
    "train --preset cifar100 --data-root DIR --out runs/cifar",
    "train --resume runs/first",
    settings=(*options.RUN_SETTINGS, "method", "seed"),
    panel="Settings of the run",
)
def train(
    context: typer.Context,
    out: Path | None = Option(None, metavar="RUN", help="New folder for the run."),
    preset: options.PresetName = None,
    config: options.ConfigFile = None,
    settings: options.Set = None,
    resume: Path | None = Option(None, metavar="RUN", help="Resume a stopped run with its settings, except --step."),
    profile: bool = Option(False, "--profile", help="Time each phase of a training step."),
    every: options.Every = False,
    **given: Any,
) -> None:
    """Train a network and save the run: weights, metrics, predictions, logs."""
    from rectifier import training as work
    from rectifier.report.run_view import view
    from rectifier.training.engine.devices import is_first_process
    from rectifier.training.run.results import prior_note, rows

    if resume is not None:
        kept = "A resumed run keeps its settings. Remove {}, or start a new run without --resume."
        options.refuse_others(context, "resume every step", kept)
        with with_resume_hint():
            run = work.resume(resume, step=given["step"])
    else:
        if out is None:
            raise ValueError("Give --out: a new folder for the run.")
        wanted = options.build_config(given, preset, config, settings)
        with with_resume_hint(out, is_new=True):
            run = work.train(wanted, out, profile=profile)
    if is_first_process():
        show(view(rows(run), every=every, note=prior_note(run), baselines=run.baselines))
        console.say(f"Run: {run.path}")
