"""Network: a trunk that all labels share, and their head."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import torch
from torch import Tensor, nn

from rectifier._base import check
from rectifier.labels.columns import Sizes
from rectifier.networks.head import MultiLabelHead
from rectifier.networks.initial import seeded
from rectifier.networks.options import Shape, Widths
from rectifier.networks.output import Output


class Network(nn.Module):
    """Images ``(N, C, H, W)`` to ``Output(logits (N, K), features)``, by way of ``trunk`` and ``head``.

    Args:
        trunk: from images to ``(N, trunk_features)``.
        trunk_features: how many features the trunk gives.
        sizes: the classes of each label, or a ``LabelSpace``.
        shape: ``(H, W, C)`` of the images, or ``(F,)`` for vectors. Others are refused.
        branch: the width, or widths, of each label's own layers; 0 for one linear classifier on the trunk.
        dropout: the share dropped of the input of every layer of the head.
        classifier: ``"linear"``, or ``"cosine"``: 30 times that of features and class weights, without bias.
        draw: changes the classifier's initial weights after they were drawn as ``nn.Linear`` draws them.
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
        self._check(images)
        output: Output = self.head(self.trunk(images))
        return output

    def reset_classifier(self, seed: int | None = None) -> None:
        """Draw the weights of ``head.classifier`` anew, as when the network was built, and nothing else.

        They change in place, so an optimizer keeps its hold on them, and are drawn on the CPU in float32: one seed
        gives one classifier on every device.

        Args:
            seed: fixes the weights and leaves PyTorch's own random state as it was. None draws from that.

        >>> from rectifier.networks.mlp import mlp
        >>> network = mlp([10], (20,))
        >>> before = network.head.classifier.weight.clone()
        >>> network.reset_classifier(seed=0)
        >>> bool((network.head.classifier.weight == before).any())
        False
        """
        fresh = deepcopy(self.head.classifier).to("cpu", torch.float32)
        with seeded(seed):
            fresh.reset_parameters()
            if self._draw is not None:
                self._draw(fresh)
        with torch.no_grad():
            for old, new in zip(self.head.classifier.parameters(), fresh.parameters(), strict=True):
                old.copy_(new)

    def _check(self, images: Tensor) -> None:
        if not images.is_floating_point():
            raise TypeError(check.sentence("images", "a floating point tensor", f"a {images.dtype} tensor"))
        if images.shape[1:] != self.sample_shape:
            wanted = ", ".join(map(str, self.sample_shape))
            check.fail("images", f"of shape (N, {wanted})", f"shape {tuple(images.shape)}")
