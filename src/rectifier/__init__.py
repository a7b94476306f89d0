"""Train image classifiers on imbalanced data so that rare classes are recognised.

>>> import torch
>>> from rectifier import RectifiedCrossEntropy
>>> objective = RectifiedCrossEntropy(class_counts=torch.tensor([900, 90, 10]))
>>> logits = torch.randn(32, 3, requires_grad=True)
>>> objective(logits, torch.arange(32) % 3).backward()
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rectifier._base.console import quiet
    from rectifier.data.dataset import ImageData
    from rectifier.data.loader import Loader
    from rectifier.data.sources import open_data
    from rectifier.data.store.build import build_store
    from rectifier.evaluation.metrics import ClassBalancedAccuracy, class_balanced_accuracy
    from rectifier.evaluation.rules.thresholds import ThresholdAdjustment
    from rectifier.labels.imbalance import (
        class_counts,
        exponential_profile,
        imbalance_measure,
        imbalance_ratio,
        minority_classes,
        power_law_profile,
        step_profile,
    )
    from rectifier.labels.space import LabelSpace
    from rectifier.losses.crl.loss import ClassRectificationLoss, class_rectification_loss
    from rectifier.losses.rectified_cross_entropy import LossParts, RectifiedCrossEntropy
    from rectifier.networks.registry import build_network
    from rectifier.report.comparison import compare_runs
    from rectifier.training import resume, train
    from rectifier.training.config import Config
    from rectifier.training.predict import predict_images
    from rectifier.training.presets import preset
    from rectifier.training.run.folder import Run
    from rectifier.training.run.results import evaluate

__version__ = "0.1.0"

__all__ = [
    "ClassBalancedAccuracy",
    "ClassRectificationLoss",
    "Config",
    "ImageData",
    "LabelSpace",
    "Loader",
    "LossParts",
    "RectifiedCrossEntropy",
    "Run",
    "ThresholdAdjustment",
    "build_network",
    "build_store",
    "class_balanced_accuracy",
    "class_counts",
    "class_rectification_loss",
    "compare_runs",
    "evaluate",
    "exponential_profile",
    "imbalance_measure",
    "imbalance_ratio",
    "minority_classes",
    "open_data",
    "power_law_profile",
    "predict_images",
    "preset",
    "quiet",
    "resume",
    "step_profile",
    "train",
]

# Names are imported when they are first asked for: the command line answers, and processes that only decode images
# start, without waiting seconds for torch.
_HOMES = {
    "ClassBalancedAccuracy": "evaluation.metrics",
    "ClassRectificationLoss": "losses.crl.loss",
    "Config": "training.config",
    "ImageData": "data.dataset",
    "LabelSpace": "labels.space",
    "Loader": "data.loader",
    "LossParts": "losses.rectified_cross_entropy",
    "RectifiedCrossEntropy": "losses.rectified_cross_entropy",
    "Run": "training.run.folder",
    "ThresholdAdjustment": "evaluation.rules.thresholds",
    "build_network": "networks.registry",
    "build_store": "data.store.build",
    "class_balanced_accuracy": "evaluation.metrics",
    "class_counts": "labels.imbalance",
    "class_rectification_loss": "losses.crl.loss",
    "compare_runs": "report.comparison",
    "evaluate": "training.run.results",
    "exponential_profile": "labels.imbalance",
    "imbalance_measure": "labels.imbalance",
    "imbalance_ratio": "labels.imbalance",
    "minority_classes": "labels.imbalance",
    "open_data": "data.sources",
    "power_law_profile": "labels.imbalance",
    "predict_images": "training.predict",
    "preset": "training.presets",
    "quiet": "_base.console",
    "resume": "training",
    "step_profile": "labels.imbalance",
    "train": "training",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'rectifier' has no attribute {name!r}")
    return getattr(import_module(f"rectifier.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
