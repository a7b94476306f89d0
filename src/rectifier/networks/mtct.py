"""MTCT, the network of the paper's clothing attribute experiments (Dong, Gong, Zhu 2017)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from rectifier._base import check
from rectifier.labels.columns import Sizes
from rectifier.networks.layers import he, nin_units
from rectifier.networks.network import Network
from rectifier.networks.options import Widths, head_complaints, image_shape

UNITS = ((96, 11), (256, 5), (384, 3), (512, 3), (512, 3))
"""Number of maps and side of the filters, for each unit."""


def mtct(
    sizes: Sizes, shape: Sequence[int], *, branch: Widths = (512, 128), dropout: float = 0.0, classifier: str = "linear"
) -> Network:
    """Build MTCT: five network-in-network units, then three fully connected layers for each label.

    The publication: five stacked network-in-network units (Lin et al. 2014: a convolution and two 1x1 convolutions,
    each with ReLU, max pooling between units) and for each attribute a branch of three fully connected layers, the last
    of which classifies; pre-trained on ImageNet. It gives no widths.

    Ours: the ImageNet form of Lin et al. for the first three units (96 11x11 filters with stride 4, 256 5x5, 384 3x3)
    and 512 3x3 for the other two; 3x3 pooling with stride 2; the average over the last maps, as there; branches of 512
    and 128; weights from N(0, 2 / fan_in) and no pre-training; no dropout; any size from 71 x 71.

    ``Network`` explains the arguments.

    >>> import torch
    >>> network = mtct([6, 9, 55], (96, 72, 3))
    >>> network(torch.randn(2, 3, 96, 72)).logits.shape
    torch.Size([2, 70])
    """
    check.raise_all(head_complaints(branch, dropout, classifier))
    shape = image_shape("mtct", shape, 71)  # the last pooling needs two places: 71, 16, 8, 4, 2
    trunk = nn.Sequential(*nin_units(shape[2], UNITS), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    he(trunk, "fan_in")
    return Network(trunk, UNITS[-1][0], sizes, shape, branch=branch, dropout=dropout, classifier=classifier)
