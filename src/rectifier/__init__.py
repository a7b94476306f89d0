"""Train image classifiers on imbalanced data so that rare classes are recognised.

>>> import torch
>>> from rectifier import RectifiedCrossEntropy
>>> objective = RectifiedCrossEntropy(class_counts=torch.tensor([900, 90, 10]))
>>> logits = torch.randn(32, 3, requires_grad=True)
>>> objective(logits, torch.arange(32) % 3).backward()
"""

from rectifier.imbalance import (
    class_counts,
    exponential_profile,
    imbalance_measure,
    imbalance_ratio,
    minority_classes,
    power_law_profile,
    step_profile,
)
from rectifier.labels import LabelSpace
from rectifier.losses.rectification import ClassRectificationLoss, class_rectification_loss
from rectifier.losses.rectified import LossParts, RectifiedCrossEntropy
from rectifier.metrics import ClassBalancedAccuracy, class_balanced_accuracy

__version__ = "0.1.0"

__all__ = [
    "ClassBalancedAccuracy",
    "ClassRectificationLoss",
    "LabelSpace",
    "LossParts",
    "RectifiedCrossEntropy",
    "class_balanced_accuracy",
    "class_counts",
    "class_rectification_loss",
    "exponential_profile",
    "imbalance_measure",
    "imbalance_ratio",
    "minority_classes",
    "power_law_profile",
    "step_profile",
]
