"""Decision rules: modules between a trained model and its decision, fitted on validation."""

from rectifier.evaluation.rules.calibration import TemperatureScaling, VectorScaling
from rectifier.evaluation.rules.prior import PriorRule, adjusts_prior, prior_offsets
from rectifier.evaluation.rules.rule import Rule
from rectifier.evaluation.rules.thresholds import ThresholdAdjustment, adjustment_offsets
from rectifier.evaluation.rules.tuning import TunedThresholds, tuned_offsets

__all__ = [
    "PriorRule",
    "Rule",
    "TemperatureScaling",
    "ThresholdAdjustment",
    "TunedThresholds",
    "VectorScaling",
    "adjustment_offsets",
    "adjusts_prior",
    "prior_offsets",
    "tuned_offsets",
]
