"""Examples of rare classes that one run misses and another finds: their number, and a picture of some."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rectifier._base import check
from rectifier.data.dataset import Decoded, ImageData, ImageFiles, Pixels
from rectifier.data.decode import decode, image_size
from rectifier.data.sources import open_data
from rectifier.evaluation.scoring import PREFERRED
from rectifier.labels import columns
from rectifier.report.layout import INK, plain, save_figure
from rectifier.reproduce.experiment import PICTURES
from rectifier.reproduce.records import ratio_of
from rectifier.training.config import Config
from rectifier.training.run.folder import Run
from rectifier.training.run.predictions import Predictions

if TYPE_CHECKING:
    from matplotlib.axes import Axes

EACH = 4
"""Number of images of each kind in a row of the picture."""

GREEN, RED = "#1a9641", "#d7191c"


# Which classes.


@dataclass(frozen=True)
class RareClass:
    """The rarest class of a label among those with training and test images.

    ``position`` is the index of the label and ``number`` that of the class; ``ratio`` is the label's imbalance ratio.
    """

    label: str
    name: str
    position: int
    number: int
    ratio: float


def rare_classes(run: Run) -> list[RareClass]:
    """Return the rarest class of each label, the most imbalanced label first."""
    space, counts = run.space, run.data["counts"]
    found = []
    for position, label in enumerate(space.names):
        train, test = counts["train"][label], counts["test"][label]
        occurring = [name for name, n in train.items() if n and test[name]]
        if not occurring:
            continue
        name = min(occurring, key=train.__getitem__)
        ratio = ratio_of(train) or 1.0  # at least one class occurs
        found.append(RareClass(label, name, position, space.classes[position].index(name), ratio))
    return sorted(found, key=lambda one: (-one.ratio, one.label))


# How many.


class Exchange(NamedTuple):
    """How the predictions of two runs differ on a class, as masks ``(N,)`` of samples.

    Samples of the class: ``missed`` by the base, ``found`` among these by the other run, and ``lost``, which the base
    finds and the other misses. Samples of other classes taken for it: ``alarms`` of the base, and ``other_alarms``.
    """

    missed: Tensor
    found: Tensor
    lost: Tensor
    alarms: Tensor
    other_alarms: Tensor


def exchange(targets: Tensor, base: Tensor, other: Tensor, number: int) -> Exchange:
    """Compare two runs' predictions ``(N,)`` on one class; targets ``(N,)`` are negative where missing.

    >>> base, other = torch.tensor([0, 0, 1, 0, 1]), torch.tensor([1, 0, 0, 1, 1])
    >>> [int(mask.sum()) for mask in exchange(torch.tensor([1, 1, 1, 0, -1]), base, other, 1)]
    [2, 1, 1, 0, 1]
    """
    own, foreign = targets == number, (targets != number) & (targets >= 0)
    seen, seen_by_other = base == number, other == number
    return Exchange(
        missed=own & ~seen,
        found=own & ~seen & seen_by_other,
        lost=own & seen & ~seen_by_other,
        alarms=foreign & seen,
        other_alarms=foreign & seen_by_other,
    )


def decisions(run: Run, predictions: Predictions, rule: str) -> Tensor:
    """Return the classes ``(N, A)`` that a run predicts under a decision rule, as they are scored."""
    rules = run.rules
    offsets = torch.tensor(rules["offsets"][rules["preferred"] if rule == PREFERRED else rule])
    return columns.argmax(predictions.logits.double() + offsets.double(), predictions.space.sizes)


class Verdicts(NamedTuple):
    """Predictions ``(N, A)`` of two runs of one seed on the test images under one rule, with the targets."""

    seed: int
    ids: tuple[str, ...]
    targets: Tensor
    base: Tensor
    other: Tensor

    @classmethod
    def under(cls, base: Run, other: Run, rules: Iterable[str]) -> dict[str, Verdicts]:
        """Read the runs' saved predictions for each of some rules."""
        seed, first, second = base.config.seed, base.predictions("test"), other.predictions("test")
        if first.ids != second.ids or seed != other.config.seed:
            check.fail(f"test images and seed of {other.path}", f"those of {base.path}", "others")
        return {
            rule: cls(seed, first.ids, first.targets, decisions(base, first, rule), decisions(other, second, rule))
            for rule in rules
        }

    def on(self, rare: RareClass) -> Exchange:
        a = rare.position
        return exchange(self.targets[:, a], self.base[:, a], self.other[:, a], rare.number)


def count_exchanges(pairs: Sequence[tuple[Run, Run]], rules: Collection[str], most: int) -> dict[str, Any]:
    """Count the images of each label's rarest class that two runs find and miss, as values for JSON.

    Each pair has one seed. ``labels`` holds the ``most`` imbalanced labels, ``all`` the sums over every label. Each has
    the number of ``rare`` test images and of the ``others``, and the counts of an ``Exchange`` by rule and seed.
    """
    by_pair = [Verdicts.under(base, other, rules) for base, other in pairs]
    verdicts = {rule: [own[rule] for own in by_pair] for rule in rules}
    entries = [_entry(rare, verdicts) for rare in rare_classes(pairs[0][0])]
    return {"labels": entries[:most], "all": _summed(entries)}


def _entry(rare: RareClass, verdicts: Mapping[str, Sequence[Verdicts]]) -> dict[str, Any]:
    own = next(iter(verdicts.values()))[0].targets[:, rare.position]
    return {
        "label": rare.label,
        "class": rare.name,
        "ratio": rare.ratio,
        "rare": int((own == rare.number).sum()),
        "others": int(((own != rare.number) & (own >= 0)).sum()),
        "rules": {rule: _counts(rare, by_seed) for rule, by_seed in verdicts.items()},
    }


def _counts(rare: RareClass, by_seed: Sequence[Verdicts]) -> dict[str, dict[str, int]]:
    masks = {str(one.seed): one.on(rare)._asdict() for one in by_seed}
    return {kind: {seed: int(own[kind].sum()) for seed, own in masks.items()} for kind in Exchange._fields}


def _summed(entries: Sequence[Any]) -> Any:
    """Add up nested mappings of numbers; text and ratios are left out."""
    if not isinstance(entries[0], Mapping):
        return sum(entries)
    kept = [key for key in entries[0] if key not in ("label", "class", "ratio")]
    return {key: _summed([entry[key] for entry in entries]) for key in kept}


# Which ones.


def find_examples(base: Run, other: Run, most: int, rule: str = "argmax") -> dict[str, dict[str, list[str]]]:
    """Return ids of test images for each of the ``most`` imbalanced labels.

    They are the first ``EACH`` test images of its rarest class that are ``found``, which the base misses and the other
    run finds, and ``lost``, the reverse.
    """
    verdicts, shown = Verdicts.under(base, other, [rule])[rule], {}
    for rare in rare_classes(base)[:most]:
        masks = verdicts.on(rare)
        kinds = {"found": masks.found, "lost": masks.lost}
        shown[rare.label] = {kind: _first_ids(verdicts.ids, mask) for kind, mask in kinds.items()}
    return shown


def _first_ids(ids: Sequence[str], mask: Tensor) -> list[str]:
    return [ids[i] for i in mask.nonzero()[:EACH, 0].tolist()]


def open_images(config: Config, data_root: str | None = None) -> ImageData:
    """Open the data of a run, from ``data_root`` if given; image files keep their full size."""
    root, seed = data_root or config.data_root, config.seed if config.resplit else config.split_seed
    return open_data(config.data, root=root, images=config.images, seed=seed, **config.data_options)


def read_images(data: ImageData, ids: Sequence[str]) -> list[Pixels]:
    """Return images, uint8 ``(H, W, C)``, by their ids."""
    positions = {name: i for i, name in enumerate(data.ids)}
    absent = [name for name in ids if name not in positions]
    if absent:
        check.fail(f"data {data.name!r}", "what the run was trained on", f"data without the image {absent[0]!r}")
    index = [positions[name] for name in ids]
    if isinstance(data.images, ImageFiles):
        paths = [data.images.root / data.images.paths[i] for i in index]
        return [decode(path, image_size(path)) for path in paths]
    if not isinstance(data.images, Decoded):
        check.fail(f"the images of {data.name!r}", "files or pixels", type(data.images).__name__)
    return list(data.images.gather(np.array(index, np.int64)))


# The picture.


def whereabouts(name: str) -> str:
    """Return where to find a picture that shows images of the data."""
    full, small = PICTURES[False], PICTURES[True]
    return f"The picture `{name}.png` is in `{full}` (small version: `{small}`) below `--out`"


class ExampleRow(NamedTuple):
    """A row of the picture: its title, images in green frames and images in red frames."""

    title: str
    found: Sequence[Pixels]
    lost: Sequence[Pixels]


def draw_examples(rows: Sequence[ExampleRow], heads: tuple[str, str], path: Path) -> None:
    """Draw one row of examples for each label: found ones on the left in green frames, lost ones in red."""
    from matplotlib.figure import Figure

    height, width = next((image.shape[:2] for row in rows for image in (*row.found, *row.lost)), (1, 1))
    figure = Figure((1.2 * 2 * EACH, 1.1 * len(rows) * height / width))
    widths = [1.0] * EACH + [0.25] + [1.0] * EACH  # with a gap between the two kinds
    grid = figure.add_gridspec(len(rows), len(widths), width_ratios=widths, hspace=0.08, wspace=0.08)
    for line, row in enumerate(rows):
        kinds = ((row.found, GREEN, heads[0], 0), (row.lost, RED, heads[1], EACH + 1))
        for images, colour, head, start in kinds:
            axes = [figure.add_subplot(grid[line, start + i], box_aspect=height / width) for i in range(EACH)]
            _fill(axes, images, colour)
            if line == 0:
                axes[0].set_title(plain(head), loc="left", color=colour, fontsize=10)
            if start == 0:
                axes[0].set_ylabel(plain(row.title), rotation=0, ha="right", va="center", color=INK, fontsize=9)
    save_figure(figure, path, bbox_inches="tight")


def _fill(axes: Sequence[Axes], images: Sequence[Pixels], colour: str) -> None:
    for axis in axes:
        axis.set_xticks([])
        axis.set_yticks([])
        axis.spines[:].set_visible(False)
    for axis, image in zip(axes, images, strict=False):
        axis.imshow(image.squeeze(), cmap="gray", vmin=0, vmax=255)
        axis.spines[:].set(visible=True, color=colour, linewidth=2.5)
    if not len(images):
        axes[0].text(0.5, 0.5, "none", ha="center", va="center", color=INK, fontsize=9, transform=axes[0].transAxes)
