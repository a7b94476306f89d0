"""DARN, a network for clothing attributes that the paper compares with (Huang et al. 2015)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from rectifier._base import check
from rectifier.labels.columns import Sizes
from rectifier.networks.connected import fully_connected
from rectifier.networks.initial import he
from rectifier.networks.network import Network
from rectifier.networks.nin import maps_side, nin_units
from rectifier.networks.options import Widths, as_widths, head_complaints, image_shape, widths_complaint

SMALLEST = 71
"""The side at which the last pooling has two places to pool: 71, 16, 8, 4, 2."""

UNITS = ((96, 11), (256, 5), (384, 3), (512, 3), (512, 3))
"""Of each unit: its maps, and the side of its filters."""


def darn(
    sizes: Sizes,
    shape: Sequence[int],
    *,
    shared: Widths = (1024, 1024),
    branch: Widths = 128,
    dropout: float = 0.0,
    classifier: str = "linear",
) -> Network:
    """Build one sub-network of DARN: a network in network under a tree of fully connected layers.

    The publication: two sub-networks, one for images of shops and one for photos of customers, each a network in
    network (Lin et al. 2014) followed by two fully connected layers, above which a tree gives every attribute its own
    branch. Fully connected features, joined with pooled maps, also go into a triplet ranking loss across the two.
    Pre-trained on ImageNet; clothes found by a detector.

    Ours: one sub-network, since there is one domain; no detector, no pre-training. Ranking is for the loss: what it may
    rank is ``Output.features`` ``(N, A, D)``, the features of all branches; joined, ``features.flatten(1)``, they are
    one vector an image. Maps are not joined to them. Five units as in MTCT; the tree's stem reads all of the last
    maps, in their places; widths as below; weights from N(0, 2 / fan_in) up to the tree's stem; no dropout; any size
    from 71 x 71.

    Args:
        sizes: the classes of each label, or a ``LabelSpace``.
        shape: ``(H, W, C)`` of the images.
        shared: the widths of the layers that all labels share, the tree's stem.
        branch: the width, or widths, of each label's own layers before its classifier.
        dropout: the share dropped of the input of each fully connected layer but the first.
        classifier: ``"linear"``, or ``"cosine"``: 30 times the cosine, without bias.

    >>> import torch
    >>> network = darn([6, 9, 55], (96, 72, 3))
    >>> network(torch.randn(2, 3, 96, 72)).features.shape
    torch.Size([2, 3, 128])
    """
    check.raise_all([widths_complaint("shared", shared), *head_complaints(branch, dropout, classifier)])
    shape = height, width, channels = image_shape("darn", shape, SMALLEST)
    maps = UNITS[-1][0] * maps_side(height, len(UNITS)) * maps_side(width, len(UNITS))
    trunk = nn.Sequential(*nin_units(channels, UNITS), nn.Flatten(), *fully_connected(maps, shared, dropout))
    he(trunk, "fan_in")
    features = (maps, *as_widths(shared))[-1]
    return Network(trunk, features, sizes, shape, branch=branch, dropout=dropout, classifier=classifier)
