"""Train image classifiers on imbalanced data so that rare classes are recognised.

>>> import torch
>>> from rectifier import RectifiedCrossEntropy
>>> objective = RectifiedCrossEntropy(class_counts=torch.tensor([900, 90, 10]))
>>> logits = torch.randn(32, 3, requires_grad=True)
>>> objective(logits, torch.arange(32) % 3).backward()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rectifier._base import imports

__version__ = "0.1.0"

# Public names and their modules. A name is imported on first use: the losses do not wait for what the workbench needs,
# and processes that only decode images do not wait seconds for torch.
_MODULES = {
    "evaluation.metrics": ["ClassBalancedAccuracy", "class_balanced_accuracy"],
    "evaluation.rules": ["PriorRule", "TemperatureScaling", "ThresholdAdjustment", "TunedThresholds"],
    "labels": ["LabelSpace", "class_counts", "imbalance_measure"],
    "losses": [
        *("AsymmetricLoss", "BalancedSoftmaxLoss", "ClassRectificationLoss", "FocalLoss", "LDAMLoss"),
        *("LogitAdjustedLoss", "RectifiedCrossEntropy"),
        *("class_rectification_loss", "class_weights", "rectified_cross_entropy"),
    ],
    "samplers": [
        *("ClassBalancedSampler", "ClassBatchSampler", "CurriculumSampler", "DownSampler", "OverSampler"),
        *("ProgressiveSampler", "QuintupletSampler", "SquareRootSampler", "UniformSampler"),
    ],
    "training.config": ["Config"],
    "training.run.folder": ["Run"],
    "training.run.results": ["evaluate"],
    "training.start": ["train"],
}
_ROOMS = (
    *("callbacks", "data", "evaluation", "labels", "losses", "methods"),
    *("networks", "report", "reproduce", "samplers", "sklearn", "training"),
)
_NAMES = {
    **imports.homes(_MODULES),
    "compare": "report.comparison:compare_runs",
    "predict": "training.predict:predict_images",
}
_HOMES = {**_NAMES, **{room: room for room in _ROOMS}}

__all__ = sorted(_NAMES)

if TYPE_CHECKING:  # the same names for type checkers and editors; a test compares the two
    from rectifier import callbacks as callbacks
    from rectifier import data as data
    from rectifier import evaluation as evaluation
    from rectifier import labels as labels
    from rectifier import losses as losses
    from rectifier import methods as methods
    from rectifier import networks as networks
    from rectifier import report as report
    from rectifier import reproduce as reproduce
    from rectifier import samplers as samplers
    from rectifier import sklearn as sklearn
    from rectifier import training as training
    from rectifier.evaluation.metrics import ClassBalancedAccuracy as ClassBalancedAccuracy
    from rectifier.evaluation.metrics import class_balanced_accuracy as class_balanced_accuracy
    from rectifier.evaluation.rules import PriorRule as PriorRule
    from rectifier.evaluation.rules import TemperatureScaling as TemperatureScaling
    from rectifier.evaluation.rules import ThresholdAdjustment as ThresholdAdjustment
    from rectifier.evaluation.rules import TunedThresholds as TunedThresholds
    from rectifier.labels import LabelSpace as LabelSpace
    from rectifier.labels import class_counts as class_counts
    from rectifier.labels import imbalance_measure as imbalance_measure
    from rectifier.losses import AsymmetricLoss as AsymmetricLoss
    from rectifier.losses import BalancedSoftmaxLoss as BalancedSoftmaxLoss
    from rectifier.losses import ClassRectificationLoss as ClassRectificationLoss
    from rectifier.losses import FocalLoss as FocalLoss
    from rectifier.losses import LDAMLoss as LDAMLoss
    from rectifier.losses import LogitAdjustedLoss as LogitAdjustedLoss
    from rectifier.losses import RectifiedCrossEntropy as RectifiedCrossEntropy
    from rectifier.losses import class_rectification_loss as class_rectification_loss
    from rectifier.losses import class_weights as class_weights
    from rectifier.losses import rectified_cross_entropy as rectified_cross_entropy
    from rectifier.report.comparison import compare_runs
    from rectifier.samplers import ClassBalancedSampler as ClassBalancedSampler
    from rectifier.samplers import ClassBatchSampler as ClassBatchSampler
    from rectifier.samplers import CurriculumSampler as CurriculumSampler
    from rectifier.samplers import DownSampler as DownSampler
    from rectifier.samplers import OverSampler as OverSampler
    from rectifier.samplers import ProgressiveSampler as ProgressiveSampler
    from rectifier.samplers import QuintupletSampler as QuintupletSampler
    from rectifier.samplers import SquareRootSampler as SquareRootSampler
    from rectifier.samplers import UniformSampler as UniformSampler
    from rectifier.training.config import Config as Config
    from rectifier.training.predict import predict_images
    from rectifier.training.run.folder import Run as Run
    from rectifier.training.run.results import evaluate as evaluate
    from rectifier.training.start import train as train

    compare = compare_runs
    predict = predict_images


def __getattr__(name: str) -> object:
    return imports.load(__name__, name, _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
