"""FashionNet, a network for clothing attributes that the paper compares with (Liu et al. 2016)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from rectifier.labels.columns import Sizes
from rectifier.networks.layers import fully_connected, he
from rectifier.networks.network import Network
from rectifier.networks.options import Widths, as_widths, check_options, image_shape, widths_complaint

VGG = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
"""Number of maps and of convolutions, for each stage of VGG-16."""


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
