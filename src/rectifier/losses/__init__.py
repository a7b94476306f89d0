"""Losses: modules of ``(logits, targets)`` that need only torch.

``FocalLoss``, ``LDAMLoss``, ``LogitAdjustedLoss`` and other losses of single samples are called like
``torch.nn.CrossEntropyLoss``. ``Objective`` adds the Class Rectification Loss to one of them. Every loss has a function
that computes the same.
"""

from rectifier.losses.asymmetric import AsymmetricLoss, asymmetric_loss
from rectifier.losses.crl.design import Design
from rectifier.losses.crl.loss import ClassRectificationLoss, class_rectification_loss
from rectifier.losses.crl.reach import mining_rates
from rectifier.losses.cross_entropy import (
    CrossEntropyLoss,
    RectifiedCrossEntropy,
    cross_entropy,
    rectified_cross_entropy,
)
from rectifier.losses.focal import FocalLoss, focal_loss
from rectifier.losses.ldam import LDAMLoss, ldam_loss
from rectifier.losses.lmle import LMLE, quintuplet_loss
from rectifier.losses.logit_adjusted import (
    BalancedSoftmaxLoss,
    LogitAdjustedLoss,
    balanced_softmax_loss,
    logit_adjusted_loss,
)
from rectifier.losses.objective import LossParts, Objective
from rectifier.losses.ranked_triplet import RankedCrossEntropy, ranked_cross_entropy, ranking_loss
from rectifier.losses.semi_hard_triplet import SemiHardTripletLoss, semi_hard_triplet_loss
from rectifier.losses.weights import class_weights, cost_weights, effective_number_weights

__all__ = [
    "LMLE",
    "AsymmetricLoss",
    "BalancedSoftmaxLoss",
    "ClassRectificationLoss",
    "CrossEntropyLoss",
    "Design",
    "FocalLoss",
    "LDAMLoss",
    "LogitAdjustedLoss",
    "LossParts",
    "Objective",
    "RankedCrossEntropy",
    "RectifiedCrossEntropy",
    "SemiHardTripletLoss",
    "asymmetric_loss",
    "balanced_softmax_loss",
    "class_rectification_loss",
    "class_weights",
    "cost_weights",
    "cross_entropy",
    "effective_number_weights",
    "focal_loss",
    "ldam_loss",
    "logit_adjusted_loss",
    "mining_rates",
    "quintuplet_loss",
    "ranked_cross_entropy",
    "ranking_loss",
    "rectified_cross_entropy",
    "semi_hard_triplet_loss",
]
