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

__version__ = "0.1.0"

# Public names and their modules. A name is imported on first use, so that the command line answers, and processes that
# only decode images start, without waiting seconds for torch.
_MODULES = {
    "_base.console": ["quiet"],
    "data.dataset": ["ImageData"],
    "data.loader": ["Loader"],
    "data.sources": ["open_data"],
    "data.store": ["build_store"],
    "evaluation.metrics": ["ClassBalancedAccuracy", "class_balanced_accuracy"],
    "evaluation.rules": [
        *("PriorRule", "TemperatureScaling", "ThresholdAdjustment", "TunedThresholds", "VectorScaling"),
    ],
    "labels.imbalance": [
        *("class_counts", "exponential_profile", "imbalance_measure", "imbalance_ratio", "minority_classes"),
        *("power_law_profile", "step_profile"),
    ],
    "labels.space": ["LabelSpace"],
    "losses.crl.loss": ["ClassRectificationLoss", "class_rectification_loss"],
    "losses.objective": ["LossParts"],
    "losses.cross_entropy": ["RectifiedCrossEntropy"],
    "networks.registry": ["build_network"],
    "report.comparison": ["compare_runs"],
    "training": ["resume", "train"],
    "training.config": ["Config"],
    "training.predict": ["predict_images"],
    "training.presets": ["preset"],
    "training.run.folder": ["Run"],
    "training.run.results": ["evaluate"],
}
_HOMES = {name: f"rectifier.{module}" for module, names in _MODULES.items() for name in names}

__all__ = sorted(_HOMES)

if TYPE_CHECKING:  # the same names for type checkers and editors; a test compares the two
    from rectifier._base.console import quiet as quiet
    from rectifier.data.dataset import ImageData as ImageData
    from rectifier.data.loader import Loader as Loader
    from rectifier.data.sources import open_data as open_data
    from rectifier.data.store import build_store as build_store
    from rectifier.evaluation.metrics import ClassBalancedAccuracy as ClassBalancedAccuracy
    from rectifier.evaluation.metrics import class_balanced_accuracy as class_balanced_accuracy
    from rectifier.evaluation.rules import PriorRule as PriorRule
    from rectifier.evaluation.rules import TemperatureScaling as TemperatureScaling
    from rectifier.evaluation.rules import ThresholdAdjustment as ThresholdAdjustment
    from rectifier.evaluation.rules import TunedThresholds as TunedThresholds
    from rectifier.evaluation.rules import VectorScaling as VectorScaling
    from rectifier.labels.imbalance import class_counts as class_counts
    from rectifier.labels.imbalance import exponential_profile as exponential_profile
    from rectifier.labels.imbalance import imbalance_measure as imbalance_measure
    from rectifier.labels.imbalance import imbalance_ratio as imbalance_ratio
    from rectifier.labels.imbalance import minority_classes as minority_classes
    from rectifier.labels.imbalance import power_law_profile as power_law_profile
    from rectifier.labels.imbalance import step_profile as step_profile
    from rectifier.labels.space import LabelSpace as LabelSpace
    from rectifier.losses.crl.loss import ClassRectificationLoss as ClassRectificationLoss
    from rectifier.losses.crl.loss import class_rectification_loss as class_rectification_loss
    from rectifier.losses.cross_entropy import RectifiedCrossEntropy as RectifiedCrossEntropy
    from rectifier.losses.objective import LossParts as LossParts
    from rectifier.networks.registry import build_network as build_network
    from rectifier.report.comparison import compare_runs as compare_runs
    from rectifier.training import resume as resume
    from rectifier.training import train as train
    from rectifier.training.config import Config as Config
    from rectifier.training.predict import predict_images as predict_images
    from rectifier.training.presets import preset as preset
    from rectifier.training.run.folder import Run as Run
    from rectifier.training.run.results import evaluate as evaluate


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'rectifier' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
