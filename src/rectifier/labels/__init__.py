"""Labels: their names, their columns in one tensor, and their imbalance."""

from rectifier.labels.counts import class_counts
from rectifier.labels.imbalance import (
    exponential_profile,
    imbalance_measure,
    imbalance_ratio,
    minority_classes,
    power_law_profile,
    step_profile,
)
from rectifier.labels.space import LabelSpace

__all__ = [
    "LabelSpace",
    "class_counts",
    "exponential_profile",
    "imbalance_measure",
    "imbalance_ratio",
    "minority_classes",
    "power_law_profile",
    "step_profile",
]
