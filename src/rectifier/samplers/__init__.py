"""Which sample comes next: samplers that know the epoch, the rank and the seed, and are handed the targets themselves.

All are made alike: ``Sampler(targets, sizes, seed=0, num_replicas=None, rank=None)``. Every rank draws the same
``plan()`` and takes each ``num_replicas``-th entry of it, so the shards are disjoint, equal in length and together
exactly the plan. Nothing touches the global random state, and nothing repeats entries to fill up a last round: the few
entries that do not go round are cut, other ones each epoch. Call ``set_epoch`` before each epoch.
"""

from rectifier.samplers.class_batches import ClassBatchSampler
from rectifier.samplers.class_draws import (
    ClassBalancedSampler,
    CurriculumSampler,
    ProgressiveSampler,
    SquareRootSampler,
)
from rectifier.samplers.epoch import Common, EpochSampler, UniformSampler
from rectifier.samplers.replication import DownSampler, OverSampler

__all__ = [
    "ClassBalancedSampler",
    "ClassBatchSampler",
    "Common",
    "CurriculumSampler",
    "DownSampler",
    "EpochSampler",
    "OverSampler",
    "ProgressiveSampler",
    "SquareRootSampler",
    "UniformSampler",
]
