"""Heads on cached features: many at once, each equal to itself alone; closed-form baselines; the mean of several."""

from rectifier.training.heads.module import FeatureHead, TrainedHead
from rectifier.training.heads.spec import FeatureTable, HeadSpec
from rectifier.training.heads.train import train_heads

__all__ = ["FeatureHead", "FeatureTable", "HeadSpec", "TrainedHead", "train_heads"]
