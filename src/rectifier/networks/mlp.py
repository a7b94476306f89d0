"""A small multi-layer perceptron, for vectors and for tiny images."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

from torch import nn

from rectifier import check
from rectifier.columns import Sizes
from rectifier.networks.network import Network
from rectifier.networks.options import Shape, Widths, as_widths, head_complaints, image_shape, widths_complaint


def mlp(
    sizes: Sizes, shape: Sequence[int], *, hidden: Widths = (256,), branch: Widths = 0, dropout: float = 0.0
) -> Network:
    """Build fully connected layers with ReLU on the flattened input; weights as ``nn.Linear`` draws them.

    Args:
        sizes: the classes of each label, or a ``LabelSpace``.
        shape: ``(H, W, C)`` of images, or ``(F,)`` for vectors ``(N, F)``.
        hidden: the widths of the shared layers; 0 for none, which makes a linear model.
        branch: the width, or widths, of each label's own layers; 0 for one linear classifier.
        dropout: the share dropped after each shared layer and of the input of every layer of the head.

    >>> import torch
    >>> mlp([3, 2], (20,))(torch.randn(8, 20)).logits.shape
    torch.Size([8, 5])
    >>> mlp([10], (8, 8, 1))(torch.randn(8, 1, 8, 8)).features.shape
    torch.Size([8, 256])
    """
    check.raise_all([widths_complaint("hidden", hidden), *head_complaints(branch, dropout)])
    known = _vector_or_image(shape)
    widths = (prod(known), *as_widths(hidden))
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in pairwise(widths):
        dropped = [nn.Dropout(dropout)] if len(layers) > 1 else []  # the head drops what the last layer gives
        layers += [*dropped, nn.Linear(before, after), nn.ReLU()]
    return Network(nn.Sequential(*layers), widths[-1], sizes, known, branch=branch, dropout=dropout)


def _vector_or_image(shape: Sequence[int]) -> Shape:
    if isinstance(shape, Sequence) and len(shape) == 1 and check.is_count(shape[0]):
        return (int(shape[0]),)
    return image_shape("mlp", shape)
