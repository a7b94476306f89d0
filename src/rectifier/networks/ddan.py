"""DDAN, a network for clothing attributes that the paper compares with (Chen et al. 2015)."""

from __future__ import annotations

from collections.abc import Sequence

from rectifier.labels.columns import Sizes
from rectifier.networks.mtct import Units, averaged_units
from rectifier.networks.network import Network
from rectifier.networks.options import Widths, check_options, image_shape

DDAN: Units = ((96, 11), (256, 5), (384, 3), (1024, 3))


def ddan(
    sizes: Sizes, shape: Sequence[int], *, branch: Widths = (512, 128), dropout: float = 0.0, classifier: str = "linear"
) -> Network:
    """Build one column of DDAN (Chen et al. 2015): four units, then fully connected layers for each label.

    The publication has a column for shop images and one for photos of people, with alignment costs between them. Ours
    has one column, because there is one domain. It ends in the average over the last maps and branches of 512 and 128.
    Any size from 39 x 39. ``Network`` explains the arguments.
    """
    check_options(branch, dropout, classifier)
    shape = image_shape("ddan", shape, 39)  # the last pooling needs two places: 39, 8, 4, 2
    trunk = averaged_units(shape[2], DDAN)
    return Network(trunk, DDAN[-1][0], sizes, shape, branch=branch, dropout=dropout, classifier=classifier)
