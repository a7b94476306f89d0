"""PANDA, a network of image regions that the paper compares with (Zhang et al. 2014)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, max_pool2d, relu

from rectifier._base import check
from rectifier.labels.columns import Sizes
from rectifier.networks.layers import ResponseNorm, he
from rectifier.networks.network import Network
from rectifier.networks.options import Widths, check_options, image_shape

WHOLE = (0.0, 0.0, 1.0, 1.0)
REGIONS = {
    "face": {
        "eyes": (0.38, 0.20, 0.62, 0.80),
        "nose": (0.46, 0.32, 0.68, 0.68),
        "mouth": (0.60, 0.28, 0.80, 0.72),
        "hair": (0.00, 0.05, 0.45, 0.95),
        "chin": (0.70, 0.20, 1.00, 0.80),
        "whole": WHOLE,
    },
    "grid": {
        **{
            f"row {row + 1} of 3, {side}": (row / 3, left, (row + 1) / 3, left + 0.5)
            for row in range(3)
            for side, left in (("left", 0.0), ("right", 0.5))
        },
        "whole": WHOLE,
    },
}
"""Top, left, bottom and right of each region, as shares of the image's height and width."""


def panda(
    sizes: Sizes,
    shape: Sequence[int],
    *,
    parts: str = "face",
    side: int = 56,
    maps: int = 64,
    features: int = 128,
    branch: Widths = 0,
    dropout: float = 0.0,
    classifier: str = "linear",
) -> Network:
    """Build PANDA: one small network for each part of the image and one for the whole, with joined features.

    The publication finds parts of persons with poselets, sees the whole with a larger pre-trained network, and decides
    with one support vector machine per attribute. Ours has fixed windows, because poselets need annotated poses: eyes,
    nose, mouth, hair, chin and the whole, for faces aligned as in CelebA. ``parts="grid"``, for clothing, has three
    rows of two windows and the whole. One linear classifier per label is trained with the network.

    Every part has four stages of convolution (5x5, 5x5, 3x3, 3x3), max pooling and normalisation over 5 maps, then a
    fully connected layer. Weights are from N(0, 2 / fan_in). Any size from 16 x 16.

    Own arguments (``Network`` explains the others):
        parts: ``"face"`` or ``"grid"``.
        side: height and width to which every part is resized, 16 or more.
        maps: filters of each convolution, per part.
        features: width of the fully connected layer, per part.

    >>> network = panda([2] * 40, (112, 112, 3))
    >>> network(torch.randn(2, 3, 112, 112)).features.shape  # 6 x 128
    torch.Size([2, 768])
    """
    own = [
        check.choice("parts", parts, tuple(REGIONS)),
        check.that("side", side, "an integer, 16 or more", check.is_count(side) and side >= 16),
        check.count("maps", maps),
        check.count("features", features),
    ]
    check_options(branch, dropout, classifier, *own)
    shape = height, width, channels = image_shape("panda", shape, 16)  # leaves the mouth, the flattest part, three rows
    windows = [
        (slice(round(top * height), round(bottom * height)), slice(round(left * width), round(right * width)))
        for top, left, bottom, right in REGIONS[parts].values()
    ]
    trunk = PANDA(channels, windows, side, maps, features)
    return Network(trunk, len(windows) * features, sizes, shape, branch=branch, dropout=dropout, classifier=classifier)


class PANDA(nn.Module):
    """The shared layers: images to ``features`` features of each part, one part after another.

    The networks of all parts are one network. Each part is a group of channels, and no layer mixes groups.
    """

    def __init__(
        self, channels: int, windows: Sequence[tuple[slice, slice]], side: int, maps: int, features: int
    ) -> None:
        super().__init__()
        self.windows, self.side = tuple(windows), side
        parts = len(windows)
        self.convolutions = nn.ModuleList(
            nn.Conv2d(parts * before, parts * maps, kernel, padding=kernel // 2, groups=parts)
            for before, kernel in ((channels, 5), (maps, 5), (maps, 3), (maps, 3))
        )
        self.norm = ResponseNorm(parts * maps, 5, groups=parts)
        # Fully connected within each part: a filter as large as the maps.
        self.connected = nn.Conv2d(parts * maps, parts * features, side // 16, groups=parts)
        he(self, "fan_in")

    def forward(self, images: Tensor) -> Tensor:
        size = (self.side, self.side)
        cut = [images[:, :, rows, columns] for rows, columns in self.windows]
        maps = torch.cat([interpolate(part, size, mode="bilinear", antialias=True) for part in cut], 1)
        for convolution in self.convolutions:
            maps = self.norm(relu(max_pool2d(convolution(maps), 2)))  # ReLU after pooling: the same, on fewer maps
        return relu(self.connected(maps)).flatten(1)
