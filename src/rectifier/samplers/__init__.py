"""Samplers: which sample comes next, for any ``DataLoader``. They know the epoch, the rank and the seed.

All have the form ``Sampler(targets, sizes, seed=0, num_replicas=None, rank=None, distributed=False)``. Each iteration
is the next epoch, with another plan, unless ``set_epoch`` is used. The global random state does not change.

Samplers shard only where asked. Then every rank draws the same ``plan()`` and takes each ``num_replicas``-th entry, so
the shards are disjoint, equal in length and together exactly the plan. No entry is repeated to fill the last round: the
few surplus entries, others in each epoch, are cut.
"""

from rectifier.samplers.base import Common, EpochSampler, UniformSampler
from rectifier.samplers.batches import EpochBatchSampler
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
    "EpochBatchSampler",
    "EpochSampler",
    "OverSampler",
    "ProgressiveSampler",
    "QuintupletSampler",
    "SquareRootSampler",
    "UniformSampler",
]
