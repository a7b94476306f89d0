"""DDAN, a network for clothing attributes that the paper compares with (Chen et al. 2015)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from rectifier._base import check
from rectifier.labels.columns import Sizes
from rectifier.networks.layers import he, nin_units
from rectifier.networks.network import Network
from rectifier.networks.options import Widths, head_complaints, image_shape

UNITS = ((96, 11), (256, 5), (384, 3), (1024, 3))
"""Number of maps and side of the filters, for each unit."""


def ddan(
    sizes: Sizes, shape: Sequence[int], *, branch: Widths = (512, 128), dropout: float = 0.0, classifier: str = "linear"
) -> Network:
    """Build one column of DDAN: a network in network, then fully connected layers for each label.

    The publication: two columns of network in network (Lin et al. 2014), one for shop images and one for photos of
    people, with shared lower layers and alignment costs between the upper layers. On top, a branch of fully connected
    layers per attribute. Pre-trained on ImageNet; a detector finds the persons.

    Ours: one column, because there is one domain, so no alignment cost; no detector; no pre-training. The column is the
    ImageNet form of Lin et al. (96 11x11 filters with stride 4, 256 5x5, 384 3x3, 1,024 3x3) with the average over its
    last maps; branches of 512 and 128; weights from N(0, 2 / fan_in); no dropout; any size from 39 x 39.

    ``Network`` explains the arguments.

    >>> import torch
    >>> network = ddan([6, 9, 55], (64, 48, 3))
    >>> network(torch.randn(2, 3, 64, 48)).features.shape
    torch.Size([2, 3, 128])
    """
    check.raise_all(head_complaints(branch, dropout, classifier))
    shape = image_shape("ddan", shape, 39)  # the last pooling needs two places: 39, 8, 4, 2
    trunk = nn.Sequential(*nin_units(shape[2], UNITS), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    he(trunk, "fan_in")
    return Network(trunk, UNITS[-1][0], sizes, shape, branch=branch, dropout=dropout, classifier=classifier)
