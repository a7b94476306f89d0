"""A small multi-layer perceptron, for vectors and for tiny images."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from torch import nn

from rectifier._base import check
from rectifier.labels.columns import Sizes
from rectifier.networks.layers import fully_connected
from rectifier.networks.network import Network
from rectifier.networks.options import Widths, as_widths, check_options, image_shape, widths_complaint


def mlp(
    sizes: Sizes,
    shape: Sequence[int],
    *,
    hidden: Widths = (256,),
    branch: Widths = 0,
    dropout: float = 0.0,
    classifier: str = "linear",
) -> Network:
    """Build fully connected layers with ReLU on the flattened input. ``nn.Linear`` draws the weights.

    Own arguments (``Network`` explains the others):
        shape: ``(H, W, C)`` of images, or ``(F,)`` for vectors ``(N, F)``.
        hidden: widths of the shared layers. 0 for none makes a linear model.
        dropout: share dropped after each shared layer and of the input of every layer of the head.

    >>> import torch
    >>> mlp([3, 2], (20,))(torch.randn(8, 20)).logits.shape
    torch.Size([8, 5])
    >>> mlp([10], (8, 8, 1))(torch.randn(8, 1, 8, 8)).features.shape
    torch.Size([8, 256])
    """
    check_options(branch, dropout, classifier, widths_complaint("hidden", hidden))
    is_vector = isinstance(shape, Sequence) and len(shape) == 1 and check.is_count(shape[0])
    known = (int(shape[0]),) if is_vector else image_shape("mlp", shape)
    widths = (prod(known), *as_widths(hidden))
    trunk = nn.Sequential(nn.Flatten(), *fully_connected(widths[0], hidden, dropout))
    return Network(trunk, widths[-1], sizes, known, branch=branch, dropout=dropout, classifier=classifier)
