"""DeepID2, the network of the paper's face attribute experiments (Sun et al. 2014)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d, relu

from rectifier._base import check
from rectifier.labels.columns import Sizes
from rectifier.networks.layers import LocalConv2d, he
from rectifier.networks.network import Network
from rectifier.networks.options import Widths, check_options, image_shape


def deepid2(
    sizes: Sizes,
    shape: Sequence[int],
    *,
    local: bool = False,
    branch: Widths = 64,
    dropout: float = 0.0,
    classifier: str = "linear",
) -> Network:
    """Build DeepID2 with a branch for each label.

    In the publication the third convolution shares weights only within 2x2 regions, and the fourth shares none. The
    CRL paper adds a 64-d layer and a classifier for each attribute. Ours shares weights everywhere unless ``local``.
    Initial weights, which the publication leaves open, are from N(0, 2 / fan_in). Any size from 31 x 31.

    Own arguments (``Network`` explains the others):
        local: build the third and fourth convolution as in the publication.

    >>> network = deepid2([2] * 40, (55, 47, 3))
    >>> network.trunk.joined.in_features  # 1,200 + 960
    2160
    >>> network(torch.randn(8, 3, 55, 47)).features.shape
    torch.Size([8, 40, 64])
    """
    check_options(branch, dropout, classifier, check.switch("local", local))
    shape = image_shape("deepid2", shape, 31)  # the fourth convolution needs one: 31, 28, 14, 12, 6, 4, 2, 1
    trunk = DeepID2(*shape, local)
    return Network(trunk, 160, sizes, shape, branch=branch, dropout=dropout, classifier=classifier)


class DeepID2(nn.Module):
    """The shared layers: images to 160 features."""

    def __init__(self, height: int, width: int, channels: int, local: bool) -> None:
        super().__init__()
        third = (third_side(height), third_side(width))
        pooled = (third[0] // 2, third[1] // 2)
        fourth = (pooled[0] - 1, pooled[1] - 1)
        self.conv1 = nn.Conv2d(channels, 20, 4)
        self.conv2 = nn.Conv2d(20, 40, 3)
        self.conv3: nn.Module = LocalConv2d(40, 60, 3, third, region=2) if local else nn.Conv2d(40, 60, 3)
        self.conv4: nn.Module = LocalConv2d(60, 80, 2, fourth, region=1) if local else nn.Conv2d(60, 80, 2)
        self.joined = nn.Linear(60 * pooled[0] * pooled[1] + 80 * fourth[0] * fourth[1], 160)
        he(self, "fan_in")

    def forward(self, images: Tensor) -> Tensor:
        # ReLU after pooling gives the same maps from a quarter of the values.
        maps = relu(max_pool2d(self.conv1(images), 2))
        maps = relu(max_pool2d(self.conv2(maps), 2))
        third = relu(max_pool2d(self.conv3(maps), 2))
        fourth = relu(self.conv4(third))
        return relu(self.joined(torch.cat([third.flatten(1), fourth.flatten(1)], 1)))


def third_side(side: int) -> int:
    """Return the side of the third convolution's maps.

    >>> third_side(55), third_side(47)
    (10, 8)
    """
    return ((side - 3) // 2 - 2) // 2 - 2
