"""Options that several verbs share. Options that are settings of a run come from their declaration."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from rectifier.cli.app import Verb, app
from rectifier.training.settings import SETTINGS

if TYPE_CHECKING:
    from rectifier.training.config import Config

RUN_SETTINGS = (
    *("data", "images", "data_root", "network", "weights", "tune", "views", "size", "epochs", "batch_size", "lr"),
    *("devices", "nodes", "accelerator", "precision", "step"),
)

RunFolder = Annotated[Path, Argument(metavar="RUN", help="Folder of a finished run.")]
PresetName = Annotated[str | None, Option(help="Start from a preset. See: rectifier list presets.")]
ConfigFile = Annotated[
    Path | None, Option(metavar="FILE", help="Start from the config.json of a run. Other options override it.")
]
_ANY = "Set any setting, or an option of method, network or data. Repeatable. See: rectifier list settings."
Set = Annotated[list[str] | None, Option("--set", metavar="KEY=VALUE", help=_ANY)]
ReaderSeed = Annotated[int | None, Option(help=SETTINGS["split_seed"].help)]
_READER = "Set an option of the data reader, such as missing=NA. Repeatable. docs/data.md lists all."
ReaderSet = Annotated[list[str] | None, Option("--set", metavar="KEY=VALUE", help=_READER)]
Together = Annotated[int | None, Option(help="Runs to train at the same time on one GPU. \\[default: 8; 1 on a CPU]")]
Every = Annotated[bool, Option("--all", help="Show every label or class.")]
AsJson = Annotated[bool, Option("--json", help="Print JSON only.")]


def verb(
    *examples: str, settings: tuple[str, ...] = (), required: str = "", panel: str | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add a function to the command line, with examples below its help and an option for each of these settings.

    It receives the settings as ``**given``; those that are not on the command line are None.
    """
    lines = [f"[bold]rectifier {example}[/]" for example in examples]
    epilog = "\n\n".join(["Examples:", *lines]) if lines[1:] else "".join(f"Example: {line}" for line in lines)

    def added(command: Callable[..., None]) -> Callable[..., None]:
        own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.kind is not p.VAR_KEYWORD]
        parameters = [*(_setting_option(name, name == required, panel) for name in SETTINGS if name in settings), *own]
        command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
        )
        command.__annotations__ = {each.name: each.annotation for each in parameters}
        return app.command(command.__name__.strip("_").replace("_", "-"), cls=Verb, epilog=epilog)(command)

    return added


def _setting_option(name: str, required: bool, panel: str | None) -> inspect.Parameter:
    setting = SETTINGS[name]
    option = Option(
        ... if required else None,
        f"--{name.replace('_', '-')}",
        metavar="PATH" if name == "weights" else {"a path": "DIR", "a name or a path": "DATA"}.get(setting.wanted),
        help=setting.help + (f" \\[default: {setting.default_text}]" if setting.default_text else ""),
        rich_help_panel=panel,
    )
    kind = setting.kind if required else setting.kind | None
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=kind)


def refuse_others(context: typer.Context, allowed: str, message: str) -> None:
    """Refuse other options than those allowed on the command line; the environment may set any."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name not in allowed.split() and source is not None and source.name == "COMMANDLINE":
            raise ValueError(message.format(parameter.opts[0]))


def require_count(option: str, number: int | None) -> None:
    """Refuse a number below 1."""
    if number is not None and number < 1:
        raise ValueError(f"{option} must be at least 1.")


def build_config(given: dict[str, Any], preset: str | None, file: Path | None, settings: list[str] | None) -> Config:
    """Build a config: a preset or a file, then options, then ``--set``."""
    from rectifier.training import presets
    from rectifier.training.config import Config

    overrides = {name: value for name, value in given.items() if value is not None} | parsed_settings(settings)
    if preset and file:
        raise ValueError("Give either --preset or --config, not both.")
    if preset:
        start = presets.preset(preset)
    elif file:
        start = Config.from_file(file)
    elif "data" in overrides:
        start = Config(overrides["data"])
    else:
        raise ValueError("Give --data: a data set's name, a table or a folder. Or start from --preset or --config.")
    return start.with_settings(overrides)


def open_described(given: dict[str, Any], seed: int | None, settings: list[str] | None) -> Any:
    """Open the data that a command line describes."""
    from rectifier.data import sources

    options: dict[str, Any] = {"images": given["images"], "seed": seed, **parsed_settings(settings)}
    own = {name: f"--{name.replace('_', '-')}" for name in given if name != "images"}
    for key, flag in {**own, "spec": "--data", "root": "--data-root"}.items():
        if key in options:
            raise ValueError(f"{key} is not an option of the reader. Give it as {flag}.")
    return sources.open_data(given["data"], root=given["data_root"], **options)


def parsed_settings(settings: list[str] | None) -> dict[str, str]:
    """Split ``KEY=VALUE``."""
    options: dict[str, str] = {}
    for setting in settings or []:
        key, equals, value = (part.strip() for part in setting.partition("="))
        if not (equals and key):
            raise ValueError(f"Expected --set to be KEY=VALUE, but got {setting!r}.")
        if key in options:
            raise ValueError(f"--set gives {key} twice. Separate several values by commas.")
        options[key] = value
    return options
