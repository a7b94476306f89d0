"""The options that several verbs share, and the data they describe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

DataSpec = Annotated[
    str,
    typer.Option(
        "--data",
        metavar="SPEC",
        help="digits, shapes, cifar10, cifar100, celeba, deepfashion, xdomain or fashion, with options as in"
        " cifar100:imb=1; a CSV or Parquet table; a folder per class; or a store.",
    ),
]
Images = Annotated[
    Path | None, typer.Option("--images", metavar="DIR", help="The folder that a table's image paths start from.")
]
DataRoot = Annotated[
    Path | None,
    typer.Option("--data-root", metavar="DIR", envvar="RECTIFIER_DATA", help="The folder that holds the data sets."),
]
Seed = Annotated[int | None, typer.Option("--seed", help="Seed of what the reader draws, such as a split.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="An option of the reader, such as missing=NA; may be repeated. docs/data.md lists them.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON alone.")]


def open_described(
    data: str, images: Path | None, root: Path | None, seed: int | None, settings: list[str] | None
) -> Any:
    """Open the data that the options of a command line describe."""
    from rectifier._base import check
    from rectifier.data import sources

    options: dict[str, Any] = parsed_settings(settings)
    if reserved := {"spec", "root"} & set(options):
        check.fail("--set", "an option of the reader", f"{reserved.pop()} (--data and --data-root say that)")
    given: dict[str, Any] = {"images": images, "seed": seed}  # these may come either way
    given |= {key: sources.literal(options.pop(key)) for key in ("images", "seed") if key in options}
    return sources.open_data(data, root=root, **given, **options)


def parsed_settings(settings: list[str] | None) -> dict[str, str]:
    """Take ``KEY=VALUE`` apart."""
    from rectifier._base import check

    options: dict[str, str] = {}
    for setting in settings or []:
        key, equals, value = setting.partition("=")
        if not (equals and key.strip()):
            check.fail("--set", "KEY=VALUE", repr(setting))
        if key.strip() in options:
            check.fail("--set", "given once for each key (several values are listed with commas)", repr(setting))
        options[key.strip()] = value.strip()
    return options
