"""rectifier compare: means, intervals and paired differences of runs, which it trains where they are missing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import typer
from typer import Argument, Option

from rectifier._base import console
from rectifier.cli import options
from rectifier.cli.app import require_choice, show, with_resume_hint


@options.verb(
    "compare runs/*",
    "compare --data digits --network mlp --methods ce,crl:eta=0.5 --out comparison",
    settings=options.RUN_SETTINGS,
    panel="Settings of the runs",
)
def compare(
    context: typer.Context,
    runs: list[Path] | None = Argument(None, metavar="RUN", help="Finished runs. Without any, runs are trained."),
    out: Path | None = Option(None, metavar="DIR", help="Folder for runs, tables and figures."),
    methods: str = Option("ce,crl", help="Methods, separated by commas, with options as in crl:eta=0.5:kappa=2."),
    seeds: int = Option(3, help="Number of seeds per method."),
    seed: int = Option(0, help="First seed."),
    resplit: bool = Option(False, "--resplit", help="Draw a new split for each seed."),
    together: options.Together = None,
    baseline: str | None = Option(None, help="Group to compare against. \\[default: ce]"),
    rule: str = Option(
        "argmax", help="Decision rule of the tables per label: argmax, prior, tuned or preferred (best on validation)."
    ),
    preset: options.PresetName = None,
    config: options.ConfigFile = None,
    settings: options.Set = None,
    as_json: options.AsJson = False,
    every: options.Every = False,
    **given: Any,
) -> None:
    """Compare runs: means with 95 % intervals, and differences paired by seed. Train missing runs."""
    from rectifier.report.comparison import COMPARED, compare_runs
    from rectifier.training import many as suite
    from rectifier.training.engine.devices import is_first_process

    require_choice("--rule", rule, COMPARED)
    options.require_count("--seeds", seeds)
    if runs:
        kept = "Finished runs keep their settings. Remove {}, or the folders of the runs."
        options.refuse_others(context, "runs out baseline rule as_json every", kept)
        if twice := [run for run in runs if runs.count(run) > 1]:
            raise ValueError(f"{twice[0]} is given twice.")
        with with_resume_hint(*runs):
            result = compare_runs(runs, baseline)
    else:
        if out is None:
            raise ValueError("Give --out: a folder for runs, tables and figures. Or give the folders of finished runs.")
        first = options.build_config(given, preset, config, settings)
        names = split_methods(methods)
        for name in dict.fromkeys(name for name in names if names.count(name) > 1):
            console.say(f"--methods names {name} twice. It is used once.")
        planned = suite.plan(first, names, range(seed, seed + seeds), out, resplit=resplit)
        with with_resume_hint():
            found = suite.train_missing(planned, together)
        if not is_first_process():
            return
        result = compare_runs(found, baseline)
    show_comparison(result, out, as_json, every, rule)


def split_methods(given: str) -> list[str]:
    """Split a list of methods at its commas; a number after a comma belongs to the option before it.

    >>> split_methods("ce, lmle:margins=0.1,0.2:rounds=2")
    ['ce', 'lmle:margins=0.1,0.2:rounds=2']
    """
    names = re.split(r",(?!\s*[-+.\d]+(?:e[-+]?\d+)?\s*(?:[:,]|$))", given)
    found = [name.strip() for name in names if name.strip()]
    if wrong := [name for name in found if "=" in name.partition(":")[0]]:
        raise ValueError(f"No method {wrong[0]!r}. Separate the options of a method with colons: crl:eta=0.5:kappa=2.")
    return found


def show_comparison(result: Any, out: Path | None, as_json: bool, every: bool, rule: str) -> None:
    """Print a comparison, and write its tables and figures if a folder is given."""
    from rectifier.report.comparison.figure import draw
    from rectifier.report.comparison.tables import write_tables
    from rectifier.report.comparison.view import view

    plain = result.as_dict() if as_json else None
    show(lambda width: view(result, width=width, every=every, rule=rule), plain, as_json=as_json)
    if out is not None:
        written = [*write_tables(result, out), *draw(result, out, rule=rule)]
        console.say(f"Written to {out}: {', '.join(path.name for path in written)}")
