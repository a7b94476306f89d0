"""Generated images with several labels, any imbalance and any share of missing labels, for tests and examples.

Each image shows one shape in one colour and one texture at one position, on a noisy grey background with a distractor.
Scale, rotation, shade and exact place vary, so a network must learn the attributes. A person can tell them all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rectifier._base import check
from rectifier.data.dataset import PARTS, ImageArray, ImageData, ImageSize, Pixels, as_size
from rectifier.labels import imbalance
from rectifier.labels.space import LabelSpace

CHUNK_PIXELS = 2**17  # drawn at once: few enough for the processor's cache


Plane = NDArray[np.floating[Any]]
Kinds = NDArray[np.int64]
Draw = Callable[[Plane, Plane], Plane]
Labels = Mapping[str, int] | Sequence[str] | str | None


def _star(u: Plane, v: Plane) -> Plane:
    """Fold the plane onto half of one of the five tips, where the star is the half-plane below one edge."""
    fifth = 2 * np.pi / 5
    angle = np.abs((np.arctan2(u, -v) + fifth / 2) % fifth - fifth / 2)
    radius = np.hypot(u, v)
    return 0.37 * (radius * np.cos(angle) - 1.15) + 0.93 * radius * np.sin(angle)


# Distance of a point from the shape, negative inside. u points right, v down; the shape's radius is 1.
SHAPES: dict[str, Draw] = {
    "circle": lambda u, v: np.hypot(u, v) - 0.95,
    "square": lambda u, v: np.maximum(np.abs(u), np.abs(v)) - 0.82,
    "triangle": lambda u, v: np.maximum(v - 0.2, 0.87 * np.abs(u) - 0.5 * v - 0.2) - 0.45,
    "cross": lambda u, v: np.maximum(np.maximum(np.abs(u), np.abs(v)) - 1, np.minimum(np.abs(u), np.abs(v)) - 0.36),
    "ring": lambda u, v: np.abs(np.hypot(u, v) - 0.7) - 0.3,
    "star": _star,
    "moon": lambda u, v: np.maximum(np.hypot(u, v) - 1, 0.7 - np.hypot(u - 0.7, v)),
    "diamond": lambda u, v: 0.83 * np.abs(u) + 0.55 * np.abs(v) - 0.64,
    "hourglass": lambda u, v: np.maximum(np.abs(v) - 0.95, 0.75 * np.abs(u) - 0.65 * np.abs(v) - 0.1),
    "half": lambda u, v: np.maximum(np.hypot(u, v - 0.55) - 1.15, v - 0.55),
}
# Red, green and blue in full light.
COLOURS: dict[str, tuple[float, float, float]] = {
    "red": (0.90, 0.10, 0.10),
    "green": (0.15, 0.75, 0.15),
    "blue": (0.15, 0.25, 0.95),
    "yellow": (0.95, 0.90, 0.10),
    "purple": (0.60, 0.10, 0.80),
    "cyan": (0.10, 0.90, 0.90),
    "orange": (1.00, 0.50, 0.05),
    "white": (0.97, 0.97, 0.97),
    "pink": (1.00, 0.60, 0.80),
    "brown": (0.50, 0.28, 0.10),
}
# Positive in full light, negative in shade; waves of a slope near 1 in radians.
TEXTURES: dict[str, Draw] = {
    "plain": lambda u, v: np.full_like(u, 9),
    "stripes": lambda u, v: np.sin(10 * v),
    "dots": lambda u, v: 0.6 - np.cos(9 * u) - np.cos(9 * v),
    "checker": lambda u, v: 2 * np.sin(7 * u) * np.sin(7 * v),
    "gradient": lambda u, v: -0.8 * v,
    "bars": lambda u, v: np.sin(10 * u),
    "diagonals": lambda u, v: np.sin(7 * (u + v)),
    "rings": lambda u, v: np.cos(10 * np.hypot(u, v)),
}
# The centre, right and down. One unit is a shift that leaves room for the shape.
POSITIONS: dict[str, tuple[int, int]] = {
    "left": (-1, 0),
    "right": (1, 0),
    "top": (0, -1),
    "bottom": (0, 1),
    "centre": (0, 0),
    "top left": (-1, -1),
    "bottom right": (1, 1),
    "top right": (1, -1),
    "bottom left": (-1, 1),
}
ATTRIBUTES = {"shape": (*SHAPES,), "colour": (*COLOURS,), "texture": (*TEXTURES,), "position": (*POSITIONS,)}


def shapes(
    *,
    samples: int = 2000,
    size: ImageSize = 32,
    ratio: float = 100.0,
    missing: float = 0.0,
    labels: Labels = None,
    noise: float = 0.05,
    validation: int | None = None,
    test: int | None = None,
    seed: int = 0,
    binary: bool = False,
) -> ImageData:
    """Draw a data set of images, uint8 ``(N, H, W, 3)``, with one to four labels.

    Args:
        samples: images in the training part.
        size: side, ``(H, W)`` or ``"HxW"``, from 16 to 512. From 32 on a person can tell every attribute.
        ratio: ratio of the most frequent to the rarest class of each label in training, 1 to 5,000. The classes in
            between fall off exponentially. Labels are independent, and ``seed`` shuffles which classes are rare. A
            label of two classes approaches the ratio as far as ``samples`` allows.
        missing: share of each label's training targets that is hidden (-1), at random; ``ratio`` counts them too. One
            image of each class always keeps its label. Validation and test keep all labels.
        labels: the labels and their numbers of classes: ``{"shape": 5, "colour": 8}`` or ``"shape=5/colour=8"``. A
            bare name (``"shape/colour"``, or a list) takes all classes; None is all of ATTRIBUTES. An attribute
            that is not a label still varies.
        noise: standard deviation of each pixel's noise, from 0 to 0.5; pixels range from 0 to 1.
        validation: images in the validation part, balanced over the classes of each label. The default is a fifth of
            ``samples``, but at least one for each class.
        test: the same for the test part.
        seed: seed of everything random. The training part does not depend on ``validation`` and ``test``.
        binary: make every class a binary label, named after its group as in DeepFashion: ``shape/circle``.

    >>> data = shapes(samples=600, ratio=50, labels="shape=4/colour=3")
    >>> [counts.tolist() for counts in data.counts("train")]
    [[153, 400, 8, 39], [10, 500, 90]]
    >>> [counts.tolist() for counts in data.counts("test")]
    [[30, 30, 30, 30], [40, 40, 40]]
    """
    complaints = [
        check.count("samples", samples),
        _within("ratio", ratio, 1, 5000),
        _within("missing", missing, 0, 1),
        _within("noise", noise, 0, 0.5),
        check.that("seed", seed, "a non-negative integer", check.is_natural(seed)),
    ]
    check.raise_all(complaints)
    sides, space = as_size(size), _space(labels)
    if sides is None or min(sides) < 16 or max(sides) > 512:
        check.fail("size", "from 16 to 512 pixels on each side", repr(size))
    lengths = [samples, *(max(samples // 5, *space.sizes) if n is None else n for n in (validation, test))]
    for part, length in zip(PARTS, lengths, strict=True):
        if not check.is_count(length) or length < max(space.sizes):
            check.fail(part, f"at least {max(space.sizes)} images, one for each class", repr(length))
    if round(missing * samples) > samples - max(space.sizes):
        most = 1 - max(space.sizes) / samples
        check.fail("missing", f"at most {most:g}, so that every class keeps a labelled image", missing)
    order, *generators = map(np.random.default_rng, np.random.SeedSequence(int(seed)).spawn(len(PARTS) + 1))
    sizes = [[order.permutation(long_tail(classes, samples, ratio)).tolist() for classes in space.sizes]]
    sizes += [[_even(classes, length) for classes in space.sizes] for length in lengths[1:]]
    pixels, targets = [], []
    for length, own, rng in zip(lengths, sizes, generators, strict=True):
        kinds = _deal(dict(zip(space.names, own, strict=True)), length, rng)
        pixels.append(draw(kinds, size=sides, noise=noise, rng=rng))
        targets.append(kinds[:, [list(ATTRIBUTES).index(name) for name in space.names]])
    _hide(targets[0], missing, generators[0])
    labelled = np.concatenate(targets)
    if binary:
        labelled, space = _one_label_a_class(labelled, space)
    return ImageData(
        "shapes",
        ImageArray(np.concatenate(pixels)),
        torch.from_numpy(labelled),
        space,
        torch.arange(len(PARTS)).repeat_interleave(torch.tensor(lengths)),
        tuple(f"{part}/{i:05d}" for part, length in zip(PARTS, lengths, strict=True) for i in range(length)),
        (
            f"Drawn with seed {seed}. Each label is long-tailed 1:{ratio:g} in training and balanced elsewhere.",
            *([f"{missing:.1%} of each label's training targets are hidden."] if missing else []),
        ),
    )


def _one_label_a_class(targets: Kinds, space: LabelSpace) -> tuple[Kinds, LabelSpace]:
    """Return whether each class is present, ``(N, C)``, -1 where its label is hidden."""
    own = zip(targets.T[:, :, None], space.sizes, strict=True)
    there = [np.where(one < 0, -1, one == np.arange(size)) for one, size in own]
    names = [f"{name}/{kind}" for name, kinds in zip(space.names, space.classes, strict=True) for kind in kinds]
    return np.concatenate(there, 1), LabelSpace.from_names({name: ["no", "yes"] for name in names})


def long_tail(classes: int, samples: int, ratio: float) -> list[int]:
    """Return class sizes that add up to ``samples``, the first ``ratio`` times the last.

    n_i = n_1 ratio^-(x^p), x from 0 to 1: ``imbalance.exponential_profile`` for p = 1; p is solved for the sum.

    >>> long_tail(4, 600, 50)
    [400, 153, 39, 8]
    """
    needed = sum(imbalance.exponential_profile(classes, round(ratio), 1))
    if samples < needed:
        check.fail("samples", f"at least {needed} for {classes} classes at ratio {ratio:g}", samples)
    if classes == 2:  # no class in between could absorb the rest
        smallest = max(1, round(samples / (1 + ratio)))
        return [samples - smallest, smallest]
    rank = np.linspace(0, 1, classes)
    smallest = max(1, int(samples / (ratio**rank).sum()))
    largest = round(smallest * ratio)
    low, high = 0.01, 100.0
    for _ in range(60):
        power = (low + high) / 2
        curve = largest * (smallest / largest) ** rank**power
        low, high = (power, high) if curve.sum() < samples else (low, power)
    whole = np.diff(np.rint(curve.cumsum()), prepend=0).astype(np.int64)
    left = _even(classes, samples - int(whole.sum()))  # 0, unless the classes are too few and small for the ratio
    return sorted((int(n) for n in whole + left), reverse=True)


def draw(kinds: Kinds, *, size: tuple[int, int], noise: float, rng: np.random.Generator) -> Pixels:
    """Draw one image for each row of ``kinds`` ``(N, 4)``, an index into each of ATTRIBUTES: uint8 ``(N, H, W, 3)``.

    Everything else comes from ``rng``: with equal generators, images differ only by their ``kinds``.
    """
    pixels = np.empty((len(kinds), *size, 3), np.uint8)
    step = max(1, CHUNK_PIXELS // (size[0] * size[1]))
    for start in range(0, len(kinds), step):
        pixels[start : start + step] = _draw_chunk(kinds[start : start + step], size, noise, rng)
    return pixels


def _draw_chunk(kinds: Kinds, size: tuple[int, int], noise: float, rng: np.random.Generator) -> Pixels:
    def vary(low: float, high: float, *shape: int) -> Plane:
        return rng.uniform(low, high, (len(kinds), *(shape or (1, 1)))).astype(np.float32)

    shape, colour, texture, position = kinds.T
    height, width = size
    rows = np.arange(height, dtype=np.float32)[:, None] + 0.5
    columns = np.arange(width, dtype=np.float32) + 0.5

    # The background: a tone, a slope across the image, a soft blob, all of one slightly tinted grey.
    slope = vary(-0.12, 0.12) * (rows / height - 0.5) + vary(-0.12, 0.12) * (columns / width - 0.5)
    blob = np.hypot(rows - vary(0, height), columns - vary(0, width)) - min(size) * vary(0.08, 0.2)
    grey = vary(0.35, 0.6) + slope + vary(-0.12, 0.12) * np.clip(0.5 - blob, 0, 1)
    image = grey[..., None] + vary(-0.03, 0.03, 1, 1, 3)

    # The shape in its own coordinates: shifted to its place, rotated a little, with radius 1.
    place = np.array(list(POSITIONS.values()), np.float32)[position, :, None, None]
    right = columns - width * (0.5 + 0.25 * place[:, 0] + vary(-0.03, 0.03))
    down = rows - height * (0.5 + 0.25 * place[:, 1] + vary(-0.03, 0.03))
    radius = min(size) * vary(0.22, 0.27)
    angle = vary(-0.2, 0.2)
    u = (np.cos(angle) * right + np.sin(angle) * down) / radius
    v = (np.cos(angle) * down - np.sin(angle) * right) / radius

    # Edges are blurred over about one pixel; those of a texture by its slope of about 10 per radius.
    inside = np.clip(0.5 - radius * _each(SHAPES, shape, u, v), 0, 1)
    waves = _each(TEXTURES, texture, u + vary(-0.15, 0.15), v + vary(-0.15, 0.15))
    light = np.clip(0.5 + np.maximum(radius / 10, 0.7) * waves, 0, 1)
    paint = np.array(list(COLOURS.values()), np.float32)[colour, None, None] + vary(-0.07, 0.07, 1, 1, 3)
    image += inside[..., None] * (paint * (0.2 + 0.8 * light[..., None]) - image)
    image += noise * rng.standard_normal(image.shape, np.float32)
    drawn: Pixels = np.rint(255 * image.clip(0, 1)).astype(np.uint8)
    return drawn


def _each(functions: Mapping[str, Draw], kind: Kinds, u: Plane, v: Plane) -> Plane:
    """Apply the function of its kind to each image ``(n, H, W)``."""
    values = np.empty_like(u)
    for k, function in enumerate(functions.values()):
        own = np.flatnonzero(kind == k)
        values[own] = function(u[own], v[own])
    return values


def _even(classes: int, samples: int) -> list[int]:
    return [samples // classes + (c < samples % classes) for c in range(classes)]


def _deal(counts: Mapping[str, Sequence[int]], samples: int, rng: np.random.Generator) -> Kinds:
    """Give every image a class of each attribute, ``(N, 4)``: labels by their class sizes, others at random."""
    columns = []
    for name, classes in ATTRIBUTES.items():
        sizes = counts.get(name) or _even(len(classes), samples)
        columns.append(rng.permutation(np.repeat(np.arange(len(sizes)), sizes)))
    return np.stack(columns, axis=1)


def _hide(targets: Kinds, share: float, rng: np.random.Generator) -> None:
    """Set a share of each column to -1, in place, but never the last sample of a class."""
    hidden = round(share * len(targets))
    for column in targets.T:
        order = rng.permutation(len(column))
        _, first = np.unique(column[order], return_index=True)
        column[np.delete(order, first)[:hidden]] = -1


def _space(labels: Labels) -> LabelSpace:
    """Bring every form of ``labels`` to the names of labels and classes."""
    if isinstance(labels, Mapping):
        wanted: list[tuple[str, Any]] = [*labels.items()]
    else:
        listed = ATTRIBUTES if labels is None else labels.split("/") if isinstance(labels, str) else labels
        parted = [str(entry).strip().partition("=") for entry in listed]
        wanted = [(name, int(n) if n.isdecimal() else n if equals else None) for name, equals, n in parted]
    classes: dict[str, tuple[str, ...]] = {}
    for name, number in wanted:  # None for all classes; a wrong number stays text, for the error
        check.raise_all([check.choice("every label", name, tuple(ATTRIBUTES))])
        if name in classes:
            check.fail("every label", "named once", f"{name!r} twice")
        most = len(ATTRIBUTES[name])
        if number is not None and not (check.is_count(number) and 2 <= number <= most):
            check.fail(f"the number of classes of label {name!r}", f"from 2 to {most}", repr(number))
        classes[name] = ATTRIBUTES[name][:number]
    return LabelSpace.from_names(classes)


def _within(what: str, value: object, low: float, high: float) -> str | None:
    return check.that(what, value, f"from {low:g} to {high:g}", check.is_real(value) and low <= value <= high)
