"""Metrics: counts of what was recognised, and everything that follows from them."""

from rectifier.evaluation.metrics.balanced import (
    ClassBalancedAccuracy,
    balanced_mean,
    class_balanced_accuracy,
    count_correct,
    recognised_share,
)

__all__ = [
    "ClassBalancedAccuracy",
    "balanced_mean",
    "class_balanced_accuracy",
    "count_correct",
    "recognised_share",
]
