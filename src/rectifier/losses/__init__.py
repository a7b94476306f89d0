"""Losses: modules of ``(logits, targets)`` that need only torch.

``Focal``, ``LDAM``, ``LogitAdjusted`` and other sample losses give one value per sample and label. ``Objective``
averages them, with class weights and the Class Rectification Loss. The others are objectives: they give a loss to
minimise.
"""

from rectifier.losses.asymmetric import Asymmetric
from rectifier.losses.class_weights import cost_weights, effective_number_weights
from rectifier.losses.crl.design import Design
from rectifier.losses.crl.loss import ClassRectificationLoss, class_rectification_loss
from rectifier.losses.cross_entropy import CrossEntropy, MultiLabelCrossEntropy, RectifiedCrossEntropy
from rectifier.losses.focal import Focal
from rectifier.losses.ldam import LDAM
from rectifier.losses.lmle import LMLE, quintuplet_loss
from rectifier.losses.logit_adjusted import LogitAdjusted
from rectifier.losses.objective import LossParts, Objective
from rectifier.losses.ranked_triplet import RankedCrossEntropy, ranking_loss
from rectifier.losses.semi_hard_triplet import SemiHardTripletLoss, semi_hard_triplet_loss

__all__ = [
    "LDAM",
    "LMLE",
    "Asymmetric",
    "ClassRectificationLoss",
    "CrossEntropy",
    "Design",
    "Focal",
    "LogitAdjusted",
    "LossParts",
    "MultiLabelCrossEntropy",
    "Objective",
    "RankedCrossEntropy",
    "RectifiedCrossEntropy",
    "SemiHardTripletLoss",
    "class_rectification_loss",
    "cost_weights",
    "effective_number_weights",
    "quintuplet_loss",
    "ranking_loss",
    "semi_hard_triplet_loss",
]
