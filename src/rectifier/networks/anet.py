"""ANet, a network for face attributes that the paper compares with (Liu et al. 2015)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d, relu

from rectifier._base import check
from rectifier.labels.columns import Sizes
from rectifier.networks.deepid2 import third_side
from rectifier.networks.layers import LocalConv2d, he
from rectifier.networks.network import Network
from rectifier.networks.options import Widths, check_options, image_shape


def anet(
    sizes: Sizes,
    shape: Sequence[int],
    *,
    features: int = 160,
    region: int = 2,
    shift: int = 6,
    branch: Widths = 0,
    dropout: float = 0.0,
    classifier: str = "linear",
) -> Network:
    """Build ANet: four convolutions on shifted crops, the last two with weights for each region of the face.

    The publication finds faces with another network, LNet, pre-trains on identities, joins the features of several
    crops, and decides with one support vector machine per attribute. Ours takes aligned faces and trains one linear
    classifier per label with the network. Filters and features are those of DeepID2, weights from N(0, 2 / fan_in).

    Crops are at the four corners and the centre of the image. In evaluation the features are the mean over all crops.
    In training each image shows one crop, drawn from PyTorch's random state like dropout. Any size from 31 x 31 plus
    ``shift``.

    Own arguments (``Network`` explains the others):
        features: width of the fully connected layer.
        region: side of the cells that share weights, in the third and fourth convolution.
        shift: by how many pixels a crop is smaller than the image; 0 for the image itself.

    >>> network = anet([2] * 40, (61, 53, 3))
    >>> network.trunk.crop  # as in DeepID2
    (55, 47)
    >>> network(torch.randn(8, 3, 61, 53)).features.shape
    torch.Size([8, 160])
    """
    own = check.count("features", features), check.count("region", region)
    shifted = check.that("shift", shift, "a number of pixels, 0 or more", check.is_natural(shift))
    check_options(branch, dropout, classifier, *own, shifted)
    shape = image_shape("anet", shape, 31 + shift)  # as in DeepID2
    trunk = ANet(*shape, features, region, shift)
    return Network(trunk, features, sizes, shape, branch=branch, dropout=dropout, classifier=classifier)


class ANet(nn.Module):
    """The shared layers: images to ``features`` features, by way of crops."""

    def __init__(self, height: int, width: int, channels: int, features: int, region: int, shift: int) -> None:
        super().__init__()
        self.crop = (height - shift, width - shift)
        middle = shift // 2
        corners = ((0, 0), (0, shift), (shift, 0), (shift, shift))
        self.places = tuple(dict.fromkeys([*corners, (middle, middle)]))  # upper left pixel of each crop
        third = (third_side(self.crop[0]), third_side(self.crop[1]))
        fourth = (third[0] // 2 - 1, third[1] // 2 - 1)
        self.conv1 = nn.Conv2d(channels, 20, 4)
        self.conv2 = nn.Conv2d(20, 40, 3)
        self.conv3 = LocalConv2d(40, 60, 3, third, region)
        self.conv4 = LocalConv2d(60, 80, 2, fourth, region)
        self.connected = nn.Linear(80 * fourth[0] * fourth[1], features)
        he(self, "fan_in")

    def forward(self, images: Tensor) -> Tensor:
        height, width = self.crop
        crops = torch.stack([images[:, :, top : top + height, left : left + width] for top, left in self.places])
        if self.training:
            row = torch.arange(len(images), device=images.device)
            drawn = torch.randint(len(self.places), row.shape, device=images.device)
            return self._features(crops[drawn, row])
        features: Tensor = self._features(crops.flatten(0, 1)).unflatten(0, crops.shape[:2])
        return features.mean(0)

    def _features(self, crops: Tensor) -> Tensor:
        maps = max_pool2d(relu(self.conv1(crops)), 2)
        maps = max_pool2d(relu(self.conv2(maps)), 2)
        maps = max_pool2d(relu(self.conv3(maps)), 2)
        return relu(self.connected(relu(self.conv4(maps)).flatten(1)))
