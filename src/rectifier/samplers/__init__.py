"""Samplers: which sample comes next, for any ``DataLoader``. They know the epoch, the rank and the seed.

All have the form ``Sampler(targets, sizes, seed=0, num_replicas=None, rank=None)``. Every rank draws the same
``plan()`` and takes each ``num_replicas``-th entry, so the shards are disjoint, equal in length and together exactly
the plan. The global random state does not change. No entry is repeated to fill the last round: the few surplus entries,
others in each epoch, are cut. Call ``set_epoch`` before each epoch.
"""

from rectifier.samplers.base import Common, EpochSampler, UniformSampler
from rectifier.samplers.class_balanced import (
    ClassBalancedSampler,
    CurriculumSampler,
    ProgressiveSampler,
    SquareRootSampler,
)
from rectifier.samplers.class_batches import ClassBatchSampler
from rectifier.samplers.lmle.quintuplets import QuintupletSampler
from rectifier.samplers.resampling import DownSampler, OverSampler

__all__ = [
    "ClassBalancedSampler",
    "ClassBatchSampler",
    "Common",
    "CurriculumSampler",
    "DownSampler",
    "EpochSampler",
    "OverSampler",
    "ProgressiveSampler",
    "QuintupletSampler",
    "SquareRootSampler",
    "UniformSampler",
]
