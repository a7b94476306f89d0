"""What the shapes of a batch allow, whatever its data: how many anchors, how many mined classes, which algorithm.

Shapes that follow from these bounds need no host synchronisation. In a compiled graph the number of samples may be
symbolic. Then a Python comparison would tie the graph to one side of it, so ``certain`` decides.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import lru_cache
from typing import NamedTuple

import torch

from rectifier.losses.crl.design import Design, certain


class Bounds(NamedTuple):
    """The bounds of a batch of N samples."""

    slots: int  # hard positives of a class, and hard negatives
    anchors: int  # samples of mined classes of one label
    mined: int  # mined classes of all labels
    algorithm: str  # for triplets: "small batch", "few classes" or "many classes"


def bounds_of(samples: int, sizes: tuple[int, ...], design: Design) -> Bounds:
    """Return the bounds of a batch.

    Minority classes hold at most ``rho`` of the samples, and the largest class is none of them, unless ``rho`` is 1. A
    mined class has two samples, and another class has its negatives.

    >>> bounds_of(256, (2,) * 40, Design())
    Bounds(slots=25, anchors=128, mined=40, algorithm='few classes')
    >>> bounds_of(1024, (1000,), Design())
    Bounds(slots=25, anchors=512, mined=256, algorithm='many classes')
    """
    return (_bounds if torch.compiler.is_compiling() else _kept_bounds)(samples, sizes, design)


def _bounds(samples: int, sizes: tuple[int, ...], design: Design) -> Bounds:
    anchors, most_classes = (
        _most_anchors(samples, design),
        [size - (not design.takes_all) for size in sizes if size > 1],
    )
    mined = sum(labels * smaller(size, anchors // 2) for size, labels in Counter(most_classes).items())
    algorithm = "many classes"
    if certain(len(sizes) * samples**3 <= _SMALL) and certain(samples <= design.slots(samples)):
        algorithm = "small batch"
    elif _has_few_classes(samples, sum(most_classes), len(sizes), design):
        algorithm = "few classes"
    return Bounds(design.slots(samples), anchors, larger(_LEAST, mined), algorithm)


def smaller(a: int, b: int) -> int:
    """Return the minimum, which is symbolic only where it is not certain."""
    if certain(a <= b) or certain(b <= a):
        return a if certain(a <= b) else b
    found: int = torch.sym_min(a, b)
    return found


def larger(a: int, b: int) -> int:
    """Return the maximum, which is symbolic only where it is not certain."""
    if certain(a >= b) or certain(b >= a):
        return a if certain(a >= b) else b
    found: int = torch.sym_max(a, b)
    return found


_SMALL = 2**17  # triplets of samples that are compared at once
_LEAST = 2  # A graph treats sizes of 0 and 1 apart, so that a symbolic size must be known to be neither.

_kept_bounds = lru_cache(maxsize=256)(_bounds)


def _most_anchors(samples: int, design: Design) -> int:
    # In integers, because a symbolic number of samples should meet no float. Rounded up, it stays a bound.
    return samples if design.takes_all else larger(_LEAST, samples * math.ceil(1024 * design.rho) // 1024)


def _has_few_classes(samples: int, classes: int, labels: int, design: Design) -> bool:
    """Compare n * (n + 1) / 2 pairs of each class with n of each anchor, n hard positives; both divided by n / 2."""
    if design.mining == "all":  # kappa is the number of samples
        return False
    anchors = _most_anchors(samples, design)
    positives = anchors if certain(anchors < design.kappa) else design.kappa
    of_classes, of_anchors = (positives + 1) * classes, 2 * labels * anchors
    if certain(of_anchors > of_classes) or certain(of_anchors <= of_classes):
        return certain(of_anchors > of_classes)
    return 2 * labels * _most_anchors(256, design) > of_classes  # a graph for any number of samples
