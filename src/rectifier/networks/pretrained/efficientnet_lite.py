"""EfficientNet-Lite0, 1 and 2, for CPUs: EfficientNet (Tan & Le 2019) without squeeze-excite and with ReLU6.

Two factors scale the table of stages: one the number of maps, one the number of blocks. Stem and head keep their sizes.
All padding is TensorFlow's "same", which the published weights were trained with: where a row or column of zeros is
missing to one side, it goes to the bottom and to the right.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn.functional import conv2d, pad, relu6

from rectifier.labels.columns import Sizes
from rectifier.networks.layers import fully_connected, he
from rectifier.networks.network import Network
from rectifier.networks.options import Widths, as_widths, check_options, image_shape, widths_complaint
from rectifier.networks.pretrained.backbone import GreyAsColour

FEATURES = 1280
"""Number of features of every variant."""

SMALLEST = 32
"""Smallest side of an image: five halvings leave one pixel."""


class Variant(NamedTuple):
    """What distinguishes one variant from another."""

    width: float  # factor of the number of maps
    depth: float  # factor of the number of blocks
    size: int  # side of the images that its weights were trained with


VARIANTS = {
    "efficientnet-lite0": Variant(1.0, 1.0, 224),
    "efficientnet-lite1": Variant(1.0, 1.1, 240),
    "efficientnet-lite2": Variant(1.1, 1.2, 260),
}


class Stage(NamedTuple):
    """Blocks of one shape, before scaling."""

    blocks: int
    kernel: int
    stride: int  # of the first block
    expansion: int
    maps: int


STAGES = (
    Stage(1, 3, 1, 1, 16),
    Stage(2, 3, 2, 6, 24),
    Stage(2, 5, 2, 6, 40),
    Stage(3, 3, 2, 6, 80),
    Stage(3, 5, 1, 6, 112),
    Stage(4, 5, 2, 6, 192),
    Stage(1, 3, 1, 6, 320),
)


def efficientnet_lite(
    name: str,
    sizes: Sizes,
    shape: Sequence[int],
    *,
    pretrained: bool = False,
    hidden: Widths = 0,
    branch: Widths = 0,
    dropout: float = 0.0,
    classifier: str = "linear",
) -> Network:
    """Build an EfficientNet-Lite with our head. Any size from 32 x 32; grey images are repeated for three channels.

    Own arguments (``Network`` explains the others):
        name: ``efficientnet-lite0``, ``efficientnet-lite1`` or ``efficientnet-lite2``.
        pretrained: start from ImageNet weights. Images must then be prepared as ``load_backbone`` says.
        hidden: widths of fully connected layers between the 1,280 features and the head.

    >>> import torch
    >>> network = efficientnet_lite("efficientnet-lite0", [10], (64, 64, 3))
    >>> network(torch.randn(2, 3, 64, 64)).features.shape
    torch.Size([2, 1280])
    """
    check_options(branch, dropout, classifier, widths_complaint("hidden", hidden))
    shape = image_shape(name, shape, SMALLEST)
    trunk = EfficientNetLite(VARIANTS[name], grey=shape[2] == 1)
    if pretrained:
        from rectifier.networks.pretrained.packages import load_packaged

        load_packaged(trunk, name)
    if widths := as_widths(hidden):
        trunk.append_hidden(widths, dropout)
    return Network(trunk, (FEATURES, *widths)[-1], sizes, shape, branch=branch, dropout=dropout, classifier=classifier)


class EfficientNetLite(nn.Sequential):
    """The shared layers: images ``(N, 3, H, W)`` to 1,280 features, as a plain sequence of steps."""

    def __init__(self, variant: Variant, *, grey: bool = False) -> None:
        shapes = list(block_shapes(variant))
        blocks, head = nn.Sequential(*map(Block, shapes)), ConvNorm(shapes[-1].after, FEATURES)
        steps: list[tuple[str, nn.Module]] = [("colour", GreyAsColour())] if grey else []
        steps += [("stem", ConvNorm(3, 32, 3, stride=2)), ("blocks", blocks), ("head", head), ("pool", SpatialMean())]
        super().__init__(OrderedDict(steps))
        he(self, "fan_out")

    def append_hidden(self, widths: Sequence[int], dropout: float) -> None:
        """Append fully connected layers with ReLU, and dropout before each."""
        layers = fully_connected(FEATURES, widths, dropout)
        self.add_module("hidden", nn.Sequential(nn.Dropout(dropout), *layers))


class BlockShape(NamedTuple):
    """What an inverted residual block is built from."""

    before: int  # maps
    after: int
    expansion: int
    kernel: int
    stride: int


def block_shapes(variant: Variant) -> Iterator[BlockShape]:
    """Yield the shape of every block, from the input to the output."""
    before = 32
    for number, stage in enumerate(STAGES):
        fixed = number in (0, len(STAGES) - 1)  # the first and last stage are never repeated more often
        blocks = stage.blocks if fixed else math.ceil(stage.blocks * variant.depth)
        after = scaled_maps(stage.maps, variant.width)
        for block in range(blocks):
            yield BlockShape(before, after, stage.expansion, stage.kernel, 1 if block else stage.stride)
            before = after


def scaled_maps(maps: int, factor: float) -> int:
    """Return the scaled number of maps: the nearest multiple of 8 that is not more than a tenth too small.

    >>> scaled_maps(24, 1.0), scaled_maps(24, 1.1), scaled_maps(40, 1.1)
    (24, 24, 48)
    """
    scaled = maps * factor
    nearest = max(8, int(scaled + 4) // 8 * 8)
    return nearest + 8 if nearest < 0.9 * scaled else nearest


class Block(nn.Module):
    """An inverted residual block: 1x1 convolution to more maps, one filter per map, 1x1 convolution to fewer maps."""

    def __init__(self, shape: BlockShape) -> None:
        super().__init__()
        before, after, expansion, kernel, stride = shape
        wide = before * expansion
        self.expand = ConvNorm(before, wide) if expansion > 1 else None
        self.depthwise = ConvNorm(wide, wide, kernel, stride=stride, groups=wide)
        self.project = ConvNorm(wide, after, relu=False)
        self.residual = stride == 1 and before == after

    def forward(self, inputs: Tensor) -> Tensor:
        wide = inputs if self.expand is None else self.expand(inputs)
        maps: Tensor = self.project(self.depthwise(wide))
        return inputs + maps if self.residual else maps


class ConvNorm(nn.Module):
    """A convolution with "same" padding, batch normalisation, and ReLU6 unless ``relu`` is False."""

    def __init__(
        self, before: int, after: int, kernel: int = 1, *, stride: int = 1, groups: int = 1, relu: bool = True
    ) -> None:
        super().__init__()
        self.conv = SameConv2d(before, after, kernel, stride=stride, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(after, eps=1e-3, momentum=0.01)
        self.relu = relu

    def forward(self, inputs: Tensor) -> Tensor:
        maps: Tensor = self.norm(self.conv(inputs))
        return relu6(maps) if self.relu else maps


class SameConv2d(nn.Conv2d):
    """A convolution that gives ceil(side / stride) pixels per side, padded as in TensorFlow."""

    def forward(self, inputs: Tensor) -> Tensor:
        (top, bottom), (left, right) = self.padding_of(inputs.shape[2], inputs.shape[3])
        if top == bottom and left == right:  # the convolution itself adds equal zeros to both sides
            return conv2d(inputs, self.weight, None, self.stride, (top, left), self.dilation, self.groups)
        return conv2d(pad(inputs, (left, right, top, bottom)), self.weight, None, self.stride, groups=self.groups)

    def padding_of(self, height: int, width: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return the zeros before and after each axis for an input of this size.

        >>> SameConv2d(3, 32, 3, stride=2).padding_of(224, 225)
        ((0, 1), (1, 1))
        """
        return self._missing(height), self._missing(width)

    def _missing(self, side: int) -> tuple[int, int]:
        kernel, stride = self.kernel_size[0], self.stride[0]
        total = max((math.ceil(side / stride) - 1) * stride + kernel - side, 0)
        return total // 2, total - total // 2


class SpatialMean(nn.Module):
    """The mean over all positions: ``(N, C, H, W)`` to ``(N, C)``."""

    def forward(self, maps: Tensor) -> Tensor:
        return maps.mean((2, 3))
