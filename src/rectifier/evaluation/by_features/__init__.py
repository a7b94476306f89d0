"""Decisions from features instead of the classifier: neighbours, cluster centres, support vector machines."""

from rectifier.evaluation.by_features.clusters import ClusterDecision
from rectifier.evaluation.by_features.decision import Decision
from rectifier.evaluation.by_features.neighbours import NeighbourDecision
from rectifier.evaluation.by_features.svm import SVMDecision

DECISIONS: dict[str, type[Decision]] = {
    "neighbours": NeighbourDecision,
    "clusters": ClusterDecision,
    "svm": SVMDecision,
}

__all__ = ["DECISIONS", "ClusterDecision", "Decision", "NeighbourDecision", "SVMDecision"]
