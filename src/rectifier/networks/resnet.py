"""ResNet32 and its relatives for small images (He et al. 2016), and ResNet50 for large ones (DeepFashion)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn
from torch.nn.functional import max_pool2d, pad, relu

from rectifier._base import check
from rectifier.labels.columns import Sizes
from rectifier.networks.layers import he, zero_bias
from rectifier.networks.network import Network
from rectifier.networks.options import Widths, check_options, image_shape

WIDTHS = (16, 32, 64)
"""Number of maps of each stage of the network for small images."""

EXPANSION = 4
"""Number of maps that a block of ResNet50 gives, per map between its 1x1 convolutions."""


def resnet(
    sizes: Sizes,
    shape: Sequence[int],
    *,
    depth: int = 32,
    branch: Widths = 0,
    dropout: float = 0.0,
    classifier: str = "linear",
) -> Network:
    """Build a residual network for small images.

    It is the publication's: 6n + 2 layers, shortcuts without parameters ("option A": where a stage begins, every other
    pixel, and zeros for the new maps), weights from N(0, 2 / fan_out) as in the authors' code. Any size from 3 x 3.

    Own arguments (``Network`` explains the others):
        depth: number of layers with weights: 8, 14, 20, 26, 32, ...

    >>> network = resnet([100], (32, 32, 3))
    >>> sum(parameter.numel() for parameter in network.parameters())
    470004
    """
    sensible = check.is_count(depth) and depth > 2 and depth % 6 == 2
    wanted = "6n + 2 for a whole number n: 8, 14, 20, 26, 32 or more"
    check_options(branch, dropout, classifier, check.that("depth", depth, wanted, sensible))
    shape = image_shape("resnet32", shape, 3)  # the second halving needs two pixels: 3, 2, 1
    trunk, width = ResNet(shape[2], blocks=(depth - 2) // 6), WIDTHS[-1]
    return Network(trunk, width, sizes, shape, branch=branch, dropout=dropout, classifier=classifier, draw=zero_bias)


class ResNet(nn.Module):
    """The shared layers: images to 64 features."""

    def __init__(self, channels: int, blocks: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, WIDTHS[0], 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(WIDTHS[0])
        maps = [WIDTHS[0], *(width for width in WIDTHS for _ in range(blocks))]
        self.blocks = nn.Sequential(*(BasicBlock(before, after) for before, after in pairwise(maps)))
        he(self, "fan_out")

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.blocks(relu(self.norm(self.conv(images)))).mean((2, 3))
        return features


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut without parameters. More maps mean half the size."""

    def __init__(self, before: int, maps: int) -> None:
        super().__init__()
        self.new, self.stride = maps - before, 1 if before == maps else 2
        self.conv1 = nn.Conv2d(before, maps, 3, stride=self.stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(maps)
        self.conv2 = nn.Conv2d(maps, maps, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(maps)

    def forward(self, inputs: Tensor) -> Tensor:
        residual = self.norm2(self.conv2(relu(self.norm1(self.conv1(inputs)))))
        if self.new:
            inputs = pad(inputs[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.new))
        return relu(residual + inputs)


def resnet50(
    sizes: Sizes, shape: Sequence[int], *, branch: Widths = 0, dropout: float = 0.0, classifier: str = "linear"
) -> Network:
    """Build ResNet50.

    Unlike in the publication, the stride of a stage is in the 3x3 convolution, as is common today, and not in the first
    1x1. Weights are from N(0, 2 / fan_out). The layers have torchvision's names, so its weights fit:
    ``network.trunk.load_state_dict(weights, strict=False)`` loads all but ``fc``. Any size from 17 x 17. ``Network``
    explains the arguments.

    >>> import torch
    >>> with torch.device("meta"):  # shapes alone, no memory
    ...     network = resnet50([1000], (224, 224, 3))
    >>> sum(parameter.numel() for parameter in network.parameters())
    25557032
    """
    check_options(branch, dropout, classifier)
    shape = image_shape("resnet50", shape, 17)  # the fifth halving needs two pixels: 17, 9, 5, 3, 2, 1
    trunk = ResNet50(shape[2])
    return Network(trunk, 2048, sizes, shape, branch=branch, dropout=dropout, classifier=classifier, draw=zero_bias)


class ResNet50(nn.Module):
    """The shared layers: images to 2,048 features."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = _stage(64, 64, 3, stride=1)
        self.layer2 = _stage(256, 128, 4, stride=2)
        self.layer3 = _stage(512, 256, 6, stride=2)
        self.layer4 = _stage(1024, 512, 3, stride=2)
        he(self, "fan_out")

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = max_pool2d(relu(self.bn1(self.conv1(images))), 3, stride=2, padding=1)
        maps = self.layer4(self.layer3(self.layer2(self.layer1(maps))))
        return maps.mean((2, 3))


def _stage(before: int, maps: int, blocks: int, stride: int) -> nn.Sequential:
    rest = [Bottleneck(EXPANSION * maps, maps, stride=1) for _ in range(blocks - 1)]
    return nn.Sequential(Bottleneck(before, maps, stride), *rest)


class Bottleneck(nn.Module):
    """A 3x3 convolution between two 1x1 convolutions, and a shortcut."""

    def __init__(self, before: int, maps: int, stride: int) -> None:
        super().__init__()
        after = EXPANSION * maps
        self.conv1 = nn.Conv2d(before, maps, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(maps)
        self.conv2 = nn.Conv2d(maps, maps, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(maps)
        self.conv3 = nn.Conv2d(maps, after, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(after)
        self.downsample: nn.Module | None = None
        if before != after:
            projection = nn.Conv2d(before, after, 1, stride=stride, bias=False)
            self.downsample = nn.Sequential(projection, nn.BatchNorm2d(after))

    def forward(self, inputs: Tensor) -> Tensor:
        residual = relu(self.bn1(self.conv1(inputs)))
        residual = relu(self.bn2(self.conv2(residual)))
        residual = self.bn3(self.conv3(residual))
        return relu(residual + (inputs if self.downsample is None else self.downsample(inputs)))
