"""Predictions image by image: the share of correct ones, and a picture of some images with their predictions."""

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
    """A prediction for one label of an image; ``right`` is None where the label is missing."""

    label: str
    name: str
    right: bool | None


def shares_right(run: Run, predictions: Predictions, rule: str) -> dict[str, float]:
    """Return the share of correct predictions for each label, and the share of images without a wrong label.

    Images without the label do not count; for all labels together, images with at least one label do.
    """
    known = predictions.targets >= 0
    right = (decisions(run, predictions, rule) == predictions.targets) & known
    by_label = right.sum(0) / known.sum(0)
    whole = (right == known).all(1)[known.any(1)].double().mean()
    return {**dict(zip(predictions.space.names, by_label.tolist(), strict=True)), WHOLE: float(whole)}


def first_answers(run: Run, predictions: Predictions, most: int, rule: str) -> dict[str, list[Answer]]:
    """Return the predictions for the first images by their ids."""
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
    """Draw images with their predictions: wrong ones in red, those without a known label in brackets."""
    from matplotlib.figure import Figure

    rows = -(-len(images) // _ACROSS)
    figure = Figure((2.9 * _ACROSS, 2.2 * rows), layout="constrained")
    for axis in (axes := figure.subplots(rows, 2 * _ACROSS, squeeze=False).flatten()):
        axis.set_axis_off()
    for picture, text, image, own in zip(axes[::2], axes[1::2], images, answers, strict=False):
        picture.imshow(image.squeeze(), cmap="gray", vmin=0, vmax=255)
        for line, answer in enumerate(own):
            name = plain(f"({answer.name})" if answer.right is None else answer.name)
            place = 0.95 - line * 0.9 / max(1, len(own))
            text.text(-0.1, place, name, fontsize=8, va="top", color=RED if answer.right is False else INK)
    save_figure(figure, path)
