"""rectifier predict: labels of new images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from rectifier._base import console
from rectifier.cli.app import with_resume_hint
from rectifier.cli.options import RunFolder, verb
from rectifier.training.settings import SETTINGS


@verb("predict runs/first photos/ --out predictions.csv")
def predict(
    run: RunFolder,
    images: Annotated[
        list[str], Argument(metavar="IMAGE", help="Images, folders of images, or tables of image paths.")
    ],
    out: Path | None = Option(None, metavar="FILE", help="CSV file to write. \\[default: stdout]"),
    rule: str | None = Option(None, help="Decision rule: argmax, prior or tuned. \\[default: the best on validation]"),
    root: Path | None = Option(None, "--images", metavar="DIR", help=SETTINGS["images"].help),
    calibrated: bool = Option(False, "--calibrated", help="Calibrate probabilities with temperatures from validation."),
    batch_size: int = Option(256, help="Images per batch."),
    accelerator: str = Option("auto", help=SETTINGS["accelerator"].help),
) -> None:
    """Predict the labels of new images: a table of classes and probabilities."""
    from rectifier._base import check
    from rectifier.training.predict import check_writable, predict_images

    if out is not None:
        check_writable(out)
    with with_resume_hint(run):
        table = predict_images(
            run, images, rule=rule, root=root, batch_size=batch_size, device=accelerator, calibrated=calibrated
        )
    console.say(f"Decision rule: {table.rule}, {table.why}.")
    for name, reason in table.unreadable:
        console.say(f"Unreadable image: {name} ({reason})")
    if out is None:
        typer.echo(table.text(), nl=False)
    else:
        replaced = " The earlier file is replaced." if out.exists() else ""
        table.write(out)
        bad = len(table.unreadable)
        rows = f", {bad:,} unreadable (blank {'row' if bad == 1 else 'rows'})" if bad else ""
        console.say(f"{out}: {check.amount(len(table.images) - bad, 'image')} predicted{rows}.{replaced}")
