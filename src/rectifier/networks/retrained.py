"""RetrainedClassifier: a trained network of which the classifier alone is trained once more (Kang et al. 2020)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from rectifier.networks.decoupling import LearnableScale
from rectifier.networks.network import Network
from rectifier.networks.output import Output


class RetrainedClassifier(nn.Module):
    """Freeze a network, its batch statistics and dropout too, and train its classifier from new weights (cRT).

    With ``scales`` the classifier stays as it is and one factor for each class is trained (LWS).
    """

    def __init__(self, network: Network, *, scales: bool, seed: int) -> None:
        super().__init__()
        network.requires_grad_(False)
        self.network = network
        if scales:
            head: Any = network.head
            head.classifier = LearnableScale(head.classifier)
        else:
            network.reset_classifier(seed)
            network.head.classifier.requires_grad_(True)

    def train(self, mode: bool = True) -> RetrainedClassifier:
        """Let the classifier alone be in training mode."""
        super().train(mode)
        self.network.eval()
        return self

    def forward(self, images: Tensor) -> Output:
        found: Output = self.network(images)
        return found

    def put_back(self) -> None:
        """Leave the network as a plain one again, with what was learned."""
        head: Any = self.network.head
        if isinstance(head.classifier, LearnableScale):
            (weight, bias), head.classifier = head.classifier.folded(), head.classifier.classifier
            with torch.no_grad():
                head.classifier.weight.copy_(weight)
                head.classifier.bias.copy_(bias)
        self.network.requires_grad_(True)
