"""Answers of a run, image by image: how many are right, and a picture of some with what the run says of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rectifier.data.dataset import Pixels
from rectifier.report.layout import INK, plain, save_figure
from rectifier.training.run.folder import Run
from rectifier.training.run.predictions import Predictions

from .pictures import RED, decisions

WHOLE = "all labels of an image"
_ACROSS = 4  # images in a row


class Answer(NamedTuple):
    """What a run says of one label of an image; ``right`` is None where nobody knows."""

    label: str
    name: str
    right: bool | None


def shares_right(run: Run, predictions: Predictions, rule: str) -> dict[str, float]:
    """Return of each label the share of images that a run is right about, and that of images with no label wrong.

    Images whose label is missing do not count; of all labels together, those with at least one do.
    """
    known = predictions.targets >= 0
    right = (decisions(run, predictions, rule) == predictions.targets) & known
    by_label = right.sum(0) / known.sum(0)
    whole = (right == known).all(1)[known.any(1)].double().mean()
    return {**dict(zip(predictions.space.names, by_label.tolist(), strict=True)), WHOLE: float(whole)}


def first_answers(run: Run, predictions: Predictions, most: int, rule: str) -> dict[str, list[Answer]]:
    """Return what a run says of the first images, by their ids."""
    decided, targets = decisions(run, predictions, rule)[:most].tolist(), predictions.targets[:most].tolist()
    space = predictions.space
    return {
        name: [
            Answer(label, classes[ours], None if theirs < 0 else ours == theirs)
            for label, classes, ours, theirs in zip(space.names, space.classes, own, true, strict=True)
        ]
        for name, own, true in zip(predictions.ids[:most], decided, targets, strict=True)
    }


def draw_answers(images: Sequence[Pixels], answers: Sequence[Sequence[Answer]], path: Path) -> None:
    """Draw images with their answers beside them: wrong ones in red, those that nobody knows about in brackets."""
    from matplotlib.figure import Figure

    rows = -(-len(images) // _ACROSS)
    figure = Figure((2.9 * _ACROSS, 2.2 * rows), layout="constrained")
    for axis in (axes := figure.subplots(rows, 2 * _ACROSS, squeeze=False).flatten()):
        axis.set_axis_off()
    for picture, text, image, own in zip(axes[::2], axes[1::2], images, answers, strict=False):
        picture.imshow(image.squeeze(), cmap="gray", vmin=0, vmax=255)
        for line, answer in enumerate(own):
            told = plain(f"({answer.name})" if answer.right is None else answer.name)
            place = 0.95 - line * 0.9 / max(1, len(own))
            text.text(-0.1, place, told, fontsize=8, va="top", color=RED if answer.right is False else INK)
    save_figure(figure, path)
