"""DARN, a network for clothing attributes that the paper compares with (Huang et al. 2015)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from rectifier._base import check
from rectifier.labels.columns import Sizes
from rectifier.networks.layers import fully_connected, he, maps_side, nin_units
from rectifier.networks.mtct import UNITS
from rectifier.networks.network import Network
from rectifier.networks.options import Widths, as_widths, head_complaints, image_shape, widths_complaint


def darn(
    sizes: Sizes,
    shape: Sequence[int],
    *,
    shared: Widths = (1024, 1024),
    branch: Widths = 128,
    dropout: float = 0.0,
    classifier: str = "linear",
) -> Network:
    """Build one sub-network of DARN: a network in network with a tree of fully connected layers.

    The publication: two sub-networks, one for shop images and one for customer photos. Each is a network in network
    (Lin et al. 2014) and two fully connected layers, on which a tree gives every attribute its own branch. Fully
    connected features, joined with pooled maps, also enter a triplet ranking loss across the two. Pre-trained on
    ImageNet; a detector finds the clothes.

    Ours: one sub-network, because there is one domain; no detector, no pre-training. The loss does the ranking, on
    ``Output.features`` ``(N, A, D)`` of all branches: ``features.flatten(1)`` joins them to one vector per image. Maps
    are not joined to them. Five units as in MTCT; the stem of the tree reads all of the last maps, in their places;
    widths as below; weights from N(0, 2 / fan_in) up to the stem; no dropout; any size from 71 x 71.

    Own arguments (``Network`` explains the others):
        shared: widths of the layers that all labels share, the stem of the tree.
        dropout: share dropped of the input of each fully connected layer except the first.

    >>> import torch
    >>> network = darn([6, 9, 55], (96, 72, 3))
    >>> network(torch.randn(2, 3, 96, 72)).features.shape
    torch.Size([2, 3, 128])
    """
    check.raise_all([widths_complaint("shared", shared), *head_complaints(branch, dropout, classifier)])
    shape = height, width, channels = image_shape("darn", shape, 71)  # as in MTCT
    maps = UNITS[-1][0] * maps_side(height, len(UNITS)) * maps_side(width, len(UNITS))
    trunk = nn.Sequential(*nin_units(channels, UNITS), nn.Flatten(), *fully_connected(maps, shared, dropout))
    he(trunk, "fan_in")
    features = (maps, *as_widths(shared))[-1]
    return Network(trunk, features, sizes, shape, branch=branch, dropout=dropout, classifier=classifier)
