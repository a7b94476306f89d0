"""The verb list: what there is to choose from."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from rectifier.cli.app import app
from rectifier.cli.options import AsJson

KINDS = ("methods", "networks", "data", "presets", "settings")


@app.command("list", epilog="Example: [bold]rectifier list methods[/]")
def list_(
    kind: Annotated[str | None, typer.Argument(metavar="[KIND]", help=f"{', '.join(KINDS)}; all without.")] = None,
    as_json: AsJson = False,
) -> None:
    """List methods, networks, data sets, presets and settings."""
    from rich.console import Console
    from rich.text import Text

    from rectifier._base import check
    from rectifier.report.layout import bare_table

    if kind is not None:
        check.raise_all([check.choice("KIND", kind, KINDS)])
    found = {name: _entries(name) for name in ([kind] if kind else KINDS)}
    if as_json:
        typer.echo(json.dumps(found, indent=1))
        return
    screen = Console(highlight=False)
    for name, entries in found.items():
        table = bare_table()
        table.add_column(name.capitalize(), no_wrap=True)
        table.add_column("")
        for one, about in entries.items():
            table.add_row(Text(one), Text(about))
        screen.print(table, "")


def _entries(kind: str) -> dict[str, str]:
    """Return the names of one kind, and a line about each."""
    from dataclasses import MISSING, fields

    from rectifier.data.sources import SOURCES, source_options
    from rectifier.methods import METHODS
    from rectifier.networks.registry import NETWORKS, network_options
    from rectifier.training.config import SETTINGS, Config
    from rectifier.training.presets import PRESETS

    def with_options(about: str, options: tuple[str, ...]) -> str:
        return f"{about} [{', '.join(options)}]" if options else about

    if kind == "methods":
        return {name: with_options(method.about, method.options) for name, method in METHODS.items()}
    if kind == "networks":
        own = {name: with_options(network.about, network_options(name)) for name, network in NETWORKS.items()}
        return {**own, "timm:NAME, torchvision:NAME": "any network of these libraries, where they are installed"}
    if kind == "data":
        return {name: with_options(source.about, source_options(name)) for name, source in SOURCES.items()}
    if kind == "presets":
        return {name: preset.about for name, preset in PRESETS.items()}
    defaults = {f.name: f.default for f in fields(Config)}
    return {
        name: about if defaults[name] is MISSING else f"{about} [{_text(defaults[name])}]"
        for name, about in SETTINGS.items()
    }


def _text(value: object) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
