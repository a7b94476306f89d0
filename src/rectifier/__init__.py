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
    from rectifier.compare.suite import compare_runs
    from rectifier.config import Config
    from rectifier.data.dataset import ImageData
    from rectifier.data.loader import Loader
    from rectifier.data.sources import open_data
    from rectifier.data.store import build_store
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
    from rectifier.networks.registry import build_network
    from rectifier.posthoc import ThresholdAdjustment
    from rectifier.prediction import predict_images
    from rectifier.presets import preset
    from rectifier.runs.folder import Run
    from rectifier.runs.results import evaluate
    from rectifier.training import resume, train

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
    "resume",
    "step_profile",
    "train",
]

# Names are imported when they are first asked for: the command line answers, and processes that only decode images
# start, without waiting seconds for torch.
_HOMES = {
    "ClassBalancedAccuracy": "metrics",
    "ClassRectificationLoss": "losses.rectification",
    "Config": "config",
    "ImageData": "data.dataset",
    "LabelSpace": "labels",
    "Loader": "data.loader",
    "LossParts": "losses.rectified",
    "RectifiedCrossEntropy": "losses.rectified",
    "Run": "runs.folder",
    "ThresholdAdjustment": "posthoc",
    "build_network": "networks.registry",
    "build_store": "data.store",
    "class_balanced_accuracy": "metrics",
    "class_counts": "imbalance",
    "class_rectification_loss": "losses.rectification",
    "compare_runs": "compare.suite",
    "evaluate": "runs.results",
    "exponential_profile": "imbalance",
    "imbalance_measure": "imbalance",
    "imbalance_ratio": "imbalance",
    "minority_classes": "imbalance",
    "open_data": "data.sources",
    "power_law_profile": "imbalance",
    "predict_images": "prediction",
    "preset": "presets",
    "resume": "training",
    "step_profile": "imbalance",
    "train": "training",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'rectifier' has no attribute {name!r}")
    return getattr(import_module(f"rectifier.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
