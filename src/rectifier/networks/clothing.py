"""Networks for clothing attributes: MTCT is the paper's own, and it compares with DDAN, DARN and FashionNet.

The first three are networks in network (Lin et al. 2014). Their first units have the sizes given there. All networks
start from weights of N(0, 2 / fan_in), without pre-training on ImageNet, and have no detector.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from rectifier.labels.columns import Sizes
from rectifier.networks.layers import fully_connected, he
from rectifier.networks.network import Network
from rectifier.networks.options import Widths, as_widths, check_options, image_shape, widths_complaint

Units = tuple[tuple[int, int], ...]
"""Number of maps and side of the filters, for each unit."""

MTCT: Units = ((96, 11), (256, 5), (384, 3), (512, 3), (512, 3))
DDAN: Units = ((96, 11), (256, 5), (384, 3), (1024, 3))

VGG = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
"""Number of maps and of convolutions, for each stage of VGG-16."""


def mtct(
    sizes: Sizes, shape: Sequence[int], *, branch: Widths = (512, 128), dropout: float = 0.0, classifier: str = "linear"
) -> Network:
    """Build MTCT (Dong, Gong, Zhu 2017): five units, then three fully connected layers for each label.

    The publication gives no widths. Ours: 512 maps in the last two units, the average over the last maps, branches of
    512 and 128. Any size from 71 x 71. ``Network`` explains the arguments.

    >>> import torch
    >>> network = mtct([6, 9, 55], (96, 72, 3))
    >>> network(torch.randn(2, 3, 96, 72)).logits.shape
    torch.Size([2, 70])
    """
    check_options(branch, dropout, classifier)
    shape = image_shape("mtct", shape, 71)  # the last pooling needs two places: 71, 16, 8, 4, 2
    trunk = _averaged_units(shape[2], MTCT)
    return Network(trunk, MTCT[-1][0], sizes, shape, branch=branch, dropout=dropout, classifier=classifier)


def ddan(
    sizes: Sizes, shape: Sequence[int], *, branch: Widths = (512, 128), dropout: float = 0.0, classifier: str = "linear"
) -> Network:
    """Build one column of DDAN (Chen et al. 2015): four units, then fully connected layers for each label.

    The publication has a column for shop images and one for photos of people, with alignment costs between them. Ours
    has one column, because there is one domain. It ends in the average over the last maps and branches of 512 and 128.
    Any size from 39 x 39. ``Network`` explains the arguments.
    """
    check_options(branch, dropout, classifier)
    shape = image_shape("ddan", shape, 39)  # the last pooling needs two places: 39, 8, 4, 2
    trunk = _averaged_units(shape[2], DDAN)
    return Network(trunk, DDAN[-1][0], sizes, shape, branch=branch, dropout=dropout, classifier=classifier)


def darn(
    sizes: Sizes,
    shape: Sequence[int],
    *,
    shared: Widths = (1024, 1024),
    branch: Widths = 128,
    dropout: float = 0.0,
    classifier: str = "linear",
) -> Network:
    """Build one sub-network of DARN (Huang et al. 2015): MTCT's units with a tree of fully connected layers.

    The publication has a sub-network for shop images and one for customer photos, and ranks their features with
    triplets. Ours has one sub-network, because there is one domain. The loss does the ranking, on ``Output.features``
    ``(N, A, D)`` of all branches, without the pooled maps that the publication adds. The stem of the tree reads all of
    the last maps, in their places. Any size from 71 x 71.

    Own arguments (``Network`` explains the others):
        shared: widths of the layers that all labels share, the stem of the tree.
        dropout: share dropped of the input of each fully connected layer except the first.

    >>> import torch
    >>> network = darn([6, 9, 55], (96, 72, 3))
    >>> network(torch.randn(2, 3, 96, 72)).features.shape
    torch.Size([2, 3, 128])
    """
    check_options(branch, dropout, classifier, widths_complaint("shared", shared))
    shape = height, width, channels = image_shape("darn", shape, 71)  # as in MTCT
    maps = MTCT[-1][0] * maps_side(height, len(MTCT)) * maps_side(width, len(MTCT))
    trunk = nn.Sequential(*nin_units(channels, MTCT), nn.Flatten(), *fully_connected(maps, shared, dropout))
    he(trunk, "fan_in")
    features = (maps, *as_widths(shared))[-1]
    return Network(trunk, features, sizes, shape, branch=branch, dropout=dropout, classifier=classifier)


def fashionnet(
    sizes: Sizes,
    shape: Sequence[int],
    *,
    shared: Widths = (4096, 4096),
    branch: Widths = 0,
    dropout: float = 0.5,
    classifier: str = "linear",
) -> Network:
    """Build the global branch of FashionNet (Liu et al. 2016): VGG-16 and a classifier for each label.

    The publication has three branches after the fourth stage of VGG-16 (Simonyan and Zisserman 2015): one finds
    landmarks of clothes, one pools the maps around them, one sees the whole image. Ours is the last alone, because the
    others need annotated landmarks. It has VGG-16's convolutions, two fully connected layers and dropout.

    The convolutions have torchvision's names, so its weights fit: ``network.trunk.load_state_dict(weights,
    strict=False)`` loads all but ``classifier``. Any size from 32 x 32.

    Own arguments (``Network`` explains the others):
        shared: widths of the fully connected layers that all labels share.
        dropout: share dropped of the input of each fully connected layer except the first.

    >>> import torch
    >>> with torch.device("meta"):  # shapes alone, no memory
    ...     network = fashionnet([1000], (224, 224, 3))
    >>> sum(parameter.numel() for parameter in network.parameters())  # VGG-16's
    138357544
    """
    check_options(branch, dropout, classifier, widths_complaint("shared", shared))
    shape = height, width, channels = image_shape("fashionnet", shape, 32)  # five poolings: 32, 16, ..., 1
    maps = VGG[-1][0] * (height // 32) * (width // 32)
    trunk = FashionNet(channels, fully_connected(maps, shared, dropout))
    features = (maps, *as_widths(shared))[-1]
    return Network(trunk, features, sizes, shape, branch=branch, dropout=dropout, classifier=classifier)


class FashionNet(nn.Module):
    """The shared layers: images to the features of VGG-16."""

    def __init__(self, channels: int, connected: list[nn.Module]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for maps, convolutions in VGG:
            for _ in range(convolutions):
                layers += [nn.Conv2d(channels, maps, 3, padding=1), nn.ReLU()]
                channels = maps
            layers += [nn.MaxPool2d(2)]
        self.features = nn.Sequential(*layers)
        self.connected = nn.Sequential(*connected)
        he(self, "fan_in")

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.connected(self.features(images).flatten(1))
        return features


def _averaged_units(channels: int, units: Units) -> nn.Sequential:
    trunk = nn.Sequential(*nin_units(channels, units), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    he(trunk, "fan_in")
    return trunk


def nin_units(channels: int, units: Sequence[tuple[int, int]]) -> list[nn.Module]:
    """Return units of a convolution and two 1x1 convolutions, each with ReLU, and 3x3 max pooling between units.

    The first convolution has stride 4, the poolings have stride 2. The other layers keep the size of their maps.
    """
    layers: list[nn.Module] = []
    for maps, side in units:
        if layers:
            layers += [nn.MaxPool2d(3, 2, ceil_mode=True), nn.Conv2d(channels, maps, side, padding=side // 2)]
        else:
            layers += [nn.Conv2d(channels, maps, side, stride=4)]
        layers += [nn.ReLU(), nn.Conv2d(maps, maps, 1), nn.ReLU(), nn.Conv2d(maps, maps, 1), nn.ReLU()]
        channels = maps
    return layers


def maps_side(side: int, units: int) -> int:
    """Return the side of the maps after so many units, 0 where the image is too small.

    >>> maps_side(227, 1), maps_side(227, 5), maps_side(71, 5), maps_side(70, 5)
    (55, 3, 1, 0)
    """
    first = max(0, (side - 11) // 4 + 1)
    return first >> (units - 1)  # each pooling halves and rounds down: its last window may cross the edge
