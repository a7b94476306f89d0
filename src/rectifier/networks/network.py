"""Network: a trunk that all labels share, and a head."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from rectifier._base import check
from rectifier.labels.columns import Sizes
from rectifier.networks.head import MultiLabelHead, Output
from rectifier.networks.layers import seeded
from rectifier.networks.options import Shape, Widths


class Network(nn.Module):
    """Map images ``(N, C, H, W)`` to ``Output(logits (N, K), features)`` with a ``trunk`` and a ``head``.

    Args:
        trunk: module from images to ``(N, trunk_features)``.
        trunk_features: number of features that the trunk gives.
        sizes: number of classes of each label, or a ``LabelSpace``.
        shape: ``(H, W, C)`` of the images, or ``(F,)`` for vectors. Other inputs raise an error.
        branch: width, or widths, of each label's own layers. 0 is one linear classifier on the trunk.
        dropout: share dropped of the input of every layer of the head.
        classifier: ``"linear"``, or ``"cosine"``: 30 times the cosine of features and class weights, without bias.
        draw: changes the initial weights of the classifier after ``nn.Linear``'s way to draw them.
    """

    def __init__(
        self,
        trunk: nn.Module,
        trunk_features: int,
        sizes: Sizes,
        shape: Shape,
        *,
        branch: Widths = 0,
        dropout: float = 0.0,
        classifier: str = "linear",
        draw: Callable[[nn.Module], None] | None = None,
    ) -> None:
        super().__init__()
        self.shape = shape
        self.sample_shape = (shape[-1], *shape[:-1])  # as the images come: channels first
        self.trunk = trunk
        self.head = MultiLabelHead(trunk_features, sizes, hidden=branch, dropout=dropout, classifier=classifier)
        self.sizes = self.head.sizes
        self._draw = draw
        if draw is not None:
            draw(self.head.classifier)

    def forward(self, images: Tensor) -> Output:
        if not images.is_floating_point():
            raise TypeError(check.sentence("images", "a floating point tensor", f"a {images.dtype} tensor"))
        if images.shape[1:] != self.sample_shape:
            wanted = ", ".join(map(str, self.sample_shape))
            check.fail("images", f"of shape (N, {wanted})", f"shape {tuple(images.shape)}")
        output: Output = self.head(self.trunk(images))
        return output

    def reset_classifier(self, seed: int | None = None) -> None:
        """Redraw the weights of ``head.classifier`` as at construction. Nothing else changes.

        The weights change in place, so an optimizer keeps its reference. They are drawn on the CPU in float32: one seed
        gives one classifier on every device. A seed leaves PyTorch's random state unchanged; None draws from it.

        >>> from rectifier.networks.mlp import mlp
        >>> network = mlp([10], (20,))
        >>> before = network.head.classifier.weight.clone()
        >>> network.reset_classifier(seed=0)
        >>> bool((network.head.classifier.weight == before).any())
        False
        """
        redraw(self.head.classifier, seed, self._draw)


def redraw(classifier: Any, seed: int | None, draw: Callable[[nn.Module], None] | None = None) -> None:
    """Redraw the weights of a classifier in place, on the CPU; ``draw`` changes what the layer itself draws."""
    fresh = deepcopy(classifier).to("cpu", torch.float32)
    with seeded(seed):
        fresh.reset_parameters()
        if draw is not None:
            draw(fresh)
    with torch.no_grad():
        for old, new in zip(classifier.parameters(), fresh.parameters(), strict=True):
            old.copy_(new)
