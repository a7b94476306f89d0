"""CifarNet, the smallest network of the paper's CIFAR-100 experiments (after Krizhevsky 2009), in two forms."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from math import ceil

from torch import nn

from rectifier._base import check
from rectifier.labels.columns import Sizes
from rectifier.networks.layers import ResponseNorm, he, truncated_normal
from rectifier.networks.network import Network
from rectifier.networks.options import Widths, check_options, image_shape

SMALLEST = {"tensorflow": 4, "cuda-convnet": 8}
"""The side that leaves the last pooling two places."""


def cifarnet(
    sizes: Sizes,
    shape: Sequence[int],
    *,
    form: str = "tensorflow",
    branch: Widths = 0,
    dropout: float | None = None,
    classifier: str = "linear",
) -> Network:
    """Build CifarNet.

    The CRL paper cites Krizhevsky's report and gives no layers. Two forms are common.

    ``tensorflow`` is from TensorFlow's tutorial, the framework of the paper. Dropout between its fully connected layers
    is from the copy in TensorFlow's slim library. Any size from 4 x 4.

    ``cuda-convnet`` is Krizhevsky's own. Our weights are from N(0, 2 / fan_in). The original deviations (0.0001 in the
    first convolution) are for pixels from 0 to 255 and leave almost no signal of standardised images. Any size from 8 x
    8.

    Own arguments (``Network`` explains the others):
        form: ``"tensorflow"`` or ``"cuda-convnet"``.
        dropout: share dropped between the fully connected layers, or in the head where there is only one. None is the
            default of the form: 0.5 for ``tensorflow``, 0 for ``cuda-convnet``.

    >>> cifarnet([100], (32, 32, 3)).trunk.fc1.in_features  # 64 maps of 8 x 8
    4096
    """
    by_default = 0.5 if form == "tensorflow" else 0.0
    share = by_default if dropout is None else dropout
    check_options(branch, share, classifier, check.choice("form", form, tuple(SMALLEST)))
    shape = image_shape(f"cifarnet in form {form!r}", shape, SMALLEST[form])
    if form == "cuda-convnet":
        trunk = _cuda_convnet(*shape)
        return Network(trunk, 64, sizes, shape, branch=branch, dropout=share, classifier=classifier)
    draw = partial(truncated_normal, std=1 / 192, bias=0.0)
    return Network(_tensorflow(*shape, share), 192, sizes, shape, branch=branch, classifier=classifier, draw=draw)


def _tensorflow(height: int, width: int, channels: int, dropout: float) -> nn.Sequential:
    maps = 64 * _pooled(height, 2) * _pooled(width, 2)
    layers: dict[str, nn.Module] = {
        "conv1": nn.Conv2d(channels, 64, 5, padding=2),
        "relu1": nn.ReLU(),
        "pool1": nn.MaxPool2d(3, 2, ceil_mode=True),
        "norm1": ResponseNorm(64, 9, alpha=0.001),  # TensorFlow sums 9 squares times 0.001 / 9
        "conv2": nn.Conv2d(64, 64, 5, padding=2),
        "relu2": nn.ReLU(),
        "norm2": ResponseNorm(64, 9, alpha=0.001),
        "pool2": nn.MaxPool2d(3, 2, ceil_mode=True),
        "flatten": nn.Flatten(),
        "fc1": nn.Linear(maps, 384),
        "relu3": nn.ReLU(),
        "dropout": nn.Dropout(dropout),
        "fc2": nn.Linear(384, 192),
        "relu4": nn.ReLU(),
    }
    for name, std, bias in (("conv1", 0.05, 0.0), ("conv2", 0.05, 0.1), ("fc1", 0.04, 0.1), ("fc2", 0.04, 0.1)):
        truncated_normal(layers[name], std, bias)
    return nn.Sequential(OrderedDict(layers))


def _cuda_convnet(height: int, width: int, channels: int) -> nn.Sequential:
    maps = 64 * _pooled(height, 3) * _pooled(width, 3)
    layers: dict[str, nn.Module] = {
        "conv1": nn.Conv2d(channels, 32, 5, padding=2),
        "pool1": nn.MaxPool2d(3, 2, ceil_mode=True),
        "relu1": nn.ReLU(),
        "conv2": nn.Conv2d(32, 32, 5, padding=2),
        "relu2": nn.ReLU(),
        "pool2": nn.AvgPool2d(3, 2, ceil_mode=True),
        "conv3": nn.Conv2d(32, 64, 5, padding=2),
        "relu3": nn.ReLU(),
        "pool3": nn.AvgPool2d(3, 2, ceil_mode=True),
        "flatten": nn.Flatten(),
        "fc1": nn.Linear(maps, 64),
        "relu4": nn.ReLU(),
    }
    trunk = nn.Sequential(OrderedDict(layers))
    he(trunk, "fan_in")
    return trunk


def _pooled(side: int, times: int) -> int:
    """Return the side after 3x3 pooling with stride 2. The last window may cross the edge.

    >>> _pooled(32, 2), _pooled(24, 2), _pooled(8, 3)
    (8, 6, 1)
    """
    return _pooled(ceil((side - 3) / 2) + 1, times - 1) if times else side
