"""rectifier list: what there is to choose from."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from typer import Argument

from rectifier.cli.app import require_choice, show
from rectifier.cli.options import AsJson, verb
from rectifier.training.settings import SETTINGS

if TYPE_CHECKING:
    from rectifier.methods import Method

KINDS = ("methods", "networks", "data", "presets", "settings")


@verb("list methods")
def list_(
    kind: str | None = Argument(None, metavar="KIND", help=f"One of {', '.join(KINDS)}. \\[default: all]"),
    as_json: AsJson = False,
) -> None:
    """List methods, networks, data sets, presets and settings, with their options."""
    from rich.console import Group
    from rich.text import Text

    from rectifier.report.layout import bare_table

    if kind is not None:
        require_choice("KIND", kind, KINDS)
    found = {name: _entries(name) for name in ([kind] if kind else KINDS)}
    tables = []
    for title, entries in found.items():
        table = bare_table()
        table.add_column(title.capitalize(), no_wrap=True)
        for name, about in entries.items():
            table.add_row(Text(name), Text(about))
        tables.append(Group(table, ""))
    show(Group(*tables), found, as_json=as_json)


def _entries(kind: str) -> dict[str, str]:
    """Return the names of one kind, each with a line about it; options or the default follow in brackets."""
    if kind == "settings":  # before the imports of torch
        return {name: _with(setting.help, setting.default_text) for name, setting in SETTINGS.items()}
    from rectifier.data.sources import SOURCES, source_options
    from rectifier.methods import METHODS
    from rectifier.networks.pretrained import is_pretrained
    from rectifier.networks.registry import NETWORKS, network_options
    from rectifier.training.config import HEAD_OPTIONS
    from rectifier.training.presets import PRESETS

    if kind == "methods":
        return {name: _with(one.about, _method_options(one)) for name, one in METHODS.items()}
    if kind == "networks":
        heads = ", ".join(HEAD_OPTIONS)
        own = {
            name: _with(one.about, heads if is_pretrained(name) else _defaults(network_options(name), one.build))
            for name, one in NETWORKS.items()
        }
        return {
            **own,
            "timm:NAME, torchvision:NAME": "any network of these libraries, if installed",
            "hf:FOLDER": "a local image model of transformers",
        }
    if kind == "data":
        return {name: _with(one.about, _defaults(source_options(name), one.read)) for name, one in SOURCES.items()}
    return {name: preset.about for name, preset in PRESETS.items()}


def _method_options(method: Method) -> str:
    from rectifier.losses import Design
    from rectifier.methods import METHODS

    if method is not METHODS["crl"] and method.options == METHODS["crl"].options:
        return "options as of crl"
    builders = [Design] if method.rectification else []
    return _defaults(method.options, *builders, *(part.build for part in method.parts.values()))


def _defaults(options: Sequence[str], *builders: Callable[..., Any]) -> str:
    """Return the options, with those defaults that the signatures of the builders state."""
    parameters = [p for build in builders for p in inspect.signature(build).parameters.values()]
    known = {p.name: f"{p.name}={p.default}" for p in parameters if p.default is not None and p.default is not p.empty}
    return ", ".join(known.get(name, name) for name in options)


def _with(about: str, bracketed: str) -> str:
    return f"{about} [{bracketed}]" if bracketed else about
