"""DARN, a network for clothing attributes that the paper compares with (Huang et al. 2015)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from rectifier.labels.columns import Sizes
from rectifier.networks.layers import fully_connected, he
from rectifier.networks.mtct import MTCT, maps_side, nin_units
from rectifier.networks.network import Network
from rectifier.networks.options import Widths, as_widths, check_options, image_shape, widths_complaint


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
