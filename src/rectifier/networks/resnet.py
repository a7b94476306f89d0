"""ResNet32 and its relatives for small images (He et al. 2016, section 4.2)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn.functional import pad, relu

from rectifier._base import check
from rectifier.labels.columns import Sizes
from rectifier.networks.layers import he, zero_bias
from rectifier.networks.network import Network
from rectifier.networks.options import Widths, head_complaints, image_shape

SMALLEST = 3
"""The side that leaves the second halving two pixels: 3, 2, 1."""


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

    The publication: 6n + 2 layers. A 3x3 convolution to 16 maps, then three stages of n blocks with 16, 32 and 64 maps;
    a block is two 3x3 convolutions with batch normalisation and a shortcut without parameters ("option A": where a
    stage begins, every other pixel, and zeros for the new maps); the average over the last maps; a linear classifier.
    0.46 M parameters for n = 5 and 10 classes. Weights from N(0, 2 / fan), here fan_out as in the authors' code.

    Ours: no other change. Any size from 3 x 3. ``branch`` and ``dropout`` are additions, off by default.

    Own arguments (``Network`` explains the others):
        depth: number of layers with weights: 8, 14, 20, 26, 32, ...

    >>> network = resnet([100], (32, 32, 3))
    >>> sum(parameter.numel() for parameter in network.parameters())
    470004
    """
    sensible = check.is_count(depth) and depth > 2 and depth % 6 == 2
    check.raise_all(
        [
            check.that("depth", depth, "6n + 2 for a whole number n: 8, 14, 20, 26, 32 or more", sensible),
            *head_complaints(branch, dropout, classifier),
        ]
    )
    shape = image_shape("resnet32", shape, SMALLEST)
    trunk = ResNet(shape[2], blocks=(depth - 2) // 6)
    return Network(
        trunk, WIDTHS[-1], sizes, shape, branch=branch, dropout=dropout, classifier=classifier, draw=zero_bias
    )


WIDTHS = (16, 32, 64)


class ResNet(nn.Module):
    """The shared layers: images to 64 features."""

    def __init__(self, channels: int, blocks: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, WIDTHS[0], 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(WIDTHS[0])
        before = (WIDTHS[0], *WIDTHS)
        self.blocks = nn.Sequential(
            *(
                BasicBlock(before[stage] if block == 0 else maps, maps)
                for stage, maps in enumerate(WIDTHS)
                for block in range(blocks)
            )
        )
        he(self, "fan_out")

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = self.blocks(relu(self.norm(self.conv(images))))
        return maps.mean((2, 3))


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
        return relu(residual + self._shortcut(inputs))

    def _shortcut(self, inputs: Tensor) -> Tensor:
        if self.new == 0:
            return inputs
        return pad(inputs[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.new))
