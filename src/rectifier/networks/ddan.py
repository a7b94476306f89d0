"""DDAN, a network for clothing attributes that the paper compares with (Chen et al. 2015)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from rectifier._base import check
from rectifier.labels.columns import Sizes
from rectifier.networks.initial import he
from rectifier.networks.network import Network
from rectifier.networks.nin import nin_units
from rectifier.networks.options import Widths, head_complaints, image_shape

SMALLEST = 39
"""The side at which the last pooling has two places to pool: 39, 8, 4, 2."""

UNITS = ((96, 11), (256, 5), (384, 3), (1024, 3))
"""Of each unit: its maps, and the side of its filters."""


def ddan(
    sizes: Sizes,
    shape: Sequence[int],
    *,
    branch: Widths = (512, 128),
    dropout: float = 0.0,
    classifier: str = "linear",
) -> Network:
    """Build one column of DDAN: a network in network, then fully connected layers for each label.

    The publication: two columns of network in network (Lin et al. 2014), one for images of shops and one for photos of
    people, whose lower layers are shared; between their upper layers costs that align the two domains; on top a branch
    of fully connected layers for each attribute; pre-trained on ImageNet; persons found by a detector.

    Ours: one column, since there is one domain, and hence no alignment cost; no detector; no pre-training. The column
    is the ImageNet form of Lin et al. (96 11x11 filters with stride 4, 256 5x5, 384 3x3, 1,024 3x3) with the average
    over its last maps; branches of 512 and 128; weights from N(0, 2 / fan_in); no dropout; any size from 39 x 39.

    Args:
        sizes: the classes of each label, or a ``LabelSpace``.
        shape: ``(H, W, C)`` of the images.
        branch: the widths of each label's own layers before its classifier.
        dropout: the share dropped of the input of each fully connected layer.
        classifier: ``"linear"``, or ``"cosine"``: 30 times the cosine, without bias.

    >>> import torch
    >>> network = ddan([6, 9, 55], (64, 48, 3))
    >>> network(torch.randn(2, 3, 64, 48)).features.shape
    torch.Size([2, 3, 128])
    """
    check.raise_all(head_complaints(branch, dropout, classifier))
    shape = image_shape("ddan", shape, SMALLEST)
    trunk = nn.Sequential(*nin_units(shape[2], UNITS), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    he(trunk, "fan_in")
    return Network(trunk, UNITS[-1][0], sizes, shape, branch=branch, dropout=dropout, classifier=classifier)
