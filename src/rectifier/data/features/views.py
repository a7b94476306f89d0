"""The views of an image: as it is, mirrored, and crops that its content decides."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from rectifier.data.dataset import Pixels
from rectifier.data.decode import fitted

SMALLEST, WIDEST = 0.6, 4 / 3  # share of the area, and ratio of the sides, of a crop
_MARGIN = 1.5  # crops come from a larger image, so they lose no sharpness


@dataclass(frozen=True)
class Views:
    """View 0 is the image, view 1 its mirror image, all others are random crops; odd ones are mirrored.

    A crop depends only on its number and on the content of the image.

    >>> image = Image.fromarray(np.array([[[0, 0, 0], [9, 9, 9]]], np.uint8))
    >>> Views((1, 2), "stretch", "bilinear").of(image, (0, 1), b"digest")[..., 0].tolist()
    [[[0, 9]], [[9, 0]]]
    """

    size: tuple[int, int]
    fit: str
    interpolation: str

    def of(self, image: Image.Image, numbers: Sequence[int], digest: bytes) -> Pixels:
        """Return these views of an RGB image, uint8 ``(n, H, W, 3)``."""
        out = np.empty((len(numbers), *self.size, 3), np.uint8)
        plain = fitted(image, self.size, self.fit, self.interpolation) if min(numbers) < 2 else image
        height, width = (math.ceil(_MARGIN * side) for side in self.size)
        frame = fitted(image, (height, width), self.fit, self.interpolation) if max(numbers) > 1 else image
        for pixels, number in zip(out, numbers, strict=True):
            pixels[:] = np.asarray(plain if number < 2 else self._crop(frame, number, digest))
            if number % 2:
                pixels[:] = pixels[:, ::-1].copy()
        return out

    def _crop(self, frame: Image.Image, number: int, digest: bytes) -> Image.Image:
        left, top, right, bottom = crop_box(number, digest)
        box = left * frame.width, top * frame.height, right * frame.width, bottom * frame.height
        return frame.resize(self.size[::-1], Image.Resampling[self.interpolation.upper()], box)


def crop_box(number: int, digest: bytes) -> tuple[float, float, float, float]:
    """Return left, top, right and bottom of a crop, as shares of the image's sides."""
    draw = random.Random(digest + number.to_bytes(4, "little"))
    area, ratio = draw.uniform(SMALLEST, 1), math.exp(draw.uniform(-1, 1) * math.log(WIDEST))
    width, height = min(1.0, math.sqrt(area * ratio)), min(1.0, math.sqrt(area / ratio))
    left, top = draw.random() * (1 - width), draw.random() * (1 - height)
    return left, top, min(1.0, left + width), min(1.0, top + height)
