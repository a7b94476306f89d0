"""Metrics of predictions. ``catalogue`` lists all of them."""

from typing import TYPE_CHECKING

from rectifier.evaluation.metrics.balanced import balanced_mean, class_balanced_accuracy, count_correct

if TYPE_CHECKING:
    from rectifier.evaluation.metrics.over_batches import ClassBalancedAccuracy as ClassBalancedAccuracy

__all__ = ["ClassBalancedAccuracy", "balanced_mean", "class_balanced_accuracy", "count_correct"]


def __getattr__(name: str) -> object:
    """Import torchmetrics only for the metric: the decision rules need the functions and nothing heavier than torch."""
    if name != "ClassBalancedAccuracy":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rectifier.evaluation.metrics.over_batches import ClassBalancedAccuracy

    return ClassBalancedAccuracy
