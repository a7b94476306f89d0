"""Metrics of predictions. ``catalogue`` lists all of them."""

from rectifier.evaluation.metrics.balanced import (
    ClassBalancedAccuracy,
    balanced_mean,
    class_balanced_accuracy,
    count_correct,
)

__all__ = ["ClassBalancedAccuracy", "balanced_mean", "class_balanced_accuracy", "count_correct"]
