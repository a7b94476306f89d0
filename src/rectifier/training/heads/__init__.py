"""Heads on cached features: many at once, each equal to itself alone; closed-form baselines; the mean of several."""

from rectifier.training.heads.closed_form import ClosedFormHead, discriminant_head, ridge_head
from rectifier.training.heads.merge import merged
from rectifier.training.heads.module import FeatureHead, TrainedHead
from rectifier.training.heads.spec import FeatureTable, HeadSpec
from rectifier.training.heads.train import train_heads

__all__ = [
    "ClosedFormHead",
    "FeatureHead",
    "FeatureTable",
    "HeadSpec",
    "TrainedHead",
    "discriminant_head",
    "merged",
    "ridge_head",
    "train_heads",
]
