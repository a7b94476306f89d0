"""Decision rules: numbers added to the logits, and temperatures that scale them, fitted on validation."""

from rectifier.evaluation.rules.calibration import TemperatureScaling
from rectifier.evaluation.rules.prior import LogitAdjustment, prior_offsets
from rectifier.evaluation.rules.thresholds import ThresholdAdjustment
from rectifier.evaluation.rules.tuning import tuned_offsets

__all__ = ["LogitAdjustment", "TemperatureScaling", "ThresholdAdjustment", "prior_offsets", "tuned_offsets"]
