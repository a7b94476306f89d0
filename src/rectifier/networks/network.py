"""Network: a trunk that all labels share, and their head."""

from __future__ import annotations

from torch import Tensor, nn

from rectifier import check
from rectifier.columns import Sizes
from rectifier.networks.head import MultiLabelHead
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
    ) -> None:
        super().__init__()
        self.shape = shape
        self.sample_shape = (shape[-1], *shape[:-1])  # as the images come: channels first
        self.trunk = trunk
        self.head = MultiLabelHead(trunk_features, sizes, hidden=branch, dropout=dropout)
        self.sizes = self.head.sizes

    def forward(self, images: Tensor) -> Output:
        self._check(images)
        output: Output = self.head(self.trunk(images))
        return output

    def _check(self, images: Tensor) -> None:
        if not images.is_floating_point():
            raise TypeError(check.sentence("images", "a floating point tensor", f"a {images.dtype} tensor"))
        if images.shape[1:] != self.sample_shape:
            wanted = ", ".join(map(str, self.sample_shape))
            check.fail("images", f"of shape (N, {wanted})", f"shape {tuple(images.shape)}")
