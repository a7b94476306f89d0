"""Pretrained networks: backbones, where their weights come from, and how features are computed fast."""

from rectifier.networks.pretrained.backbone import Backbone, Preprocessing
from rectifier.networks.pretrained.loading import check_backbone, is_pretrained, load_backbone
from rectifier.networks.pretrained.runtime import Extractor, extractor
from rectifier.networks.pretrained.weights import load_weights

__all__ = [
    "Backbone",
    "Extractor",
    "Preprocessing",
    "check_backbone",
    "extractor",
    "is_pretrained",
    "load_backbone",
    "load_weights",
]
