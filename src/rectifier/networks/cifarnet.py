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
from rectifier.networks.options import Widths, head_complaints, image_shape

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

    ``tensorflow``, from TensorFlow's tutorial, the framework of the paper: 64 5x5 filters, 3x3 max pooling with stride
    2, local response normalisation; 64 5x5 filters, normalisation, pooling; fully connected 384 and 192; ReLU
    throughout. Truncated normal weights of deviation 0.05 (convolutions), 0.04 (fully connected) and 1/192
    (classifier); biases 0.1, but 0 in the first convolution and the classifier. Dropout between the two fully connected
    layers is from the copy in TensorFlow's slim library.

    ``cuda-convnet``, Krizhevsky's own: 32, 32 and 64 5x5 filters, 3x3 pooling with stride 2 (maximum, then average
    twice), fully connected 64, ReLU throughout.

    Ours: any size from 4 x 4, or from 8 x 8 for ``cuda-convnet``, whose weights are from N(0, 2 / fan_in). The original
    deviations (0.0001 in the first convolution) are for pixels from 0 to 255. With standardised images they leave
    almost no signal.

    Own arguments (``Network`` explains the others):
        form: ``"tensorflow"`` or ``"cuda-convnet"``.
        dropout: share dropped between the fully connected layers, or in the head where there is only one. None is the
            default of the form: 0.5 for ``tensorflow``, 0 for ``cuda-convnet``.

    >>> cifarnet([100], (32, 32, 3)).trunk.fc1.in_features  # 64 maps of 8 x 8
    4096
    """
    check.raise_all(
        [
            check.choice("form", form, tuple(SMALLEST)),
            *head_complaints(branch, 0.0 if dropout is None else dropout, classifier),
        ]
    )
    shape = image_shape(f"cifarnet in form {form!r}", shape, SMALLEST[form])
    if form == "cuda-convnet":
        trunk, share = _cuda_convnet(*shape), dropout or 0.0
        return Network(trunk, 64, sizes, shape, branch=branch, dropout=share, classifier=classifier)
    trunk = _tensorflow(*shape, 0.5 if dropout is None else dropout)
    draw = partial(truncated_normal, std=1 / 192, bias=0.0)
    return Network(trunk, 192, sizes, shape, branch=branch, classifier=classifier, draw=draw)


def _tensorflow(height: int, width: int, channels: int, dropout: float) -> nn.Sequential:
    maps = 64 * _pooled(height, 2) * _pooled(width, 2)
    layers: dict[str, nn.Module] = {
        "conv1": nn.Conv2d(channels, 64, 5, padding=2),
        "relu1": nn.ReLU(),
        "pool1": nn.MaxPool2d(3, 2, ceil_mode=True),
        "norm1": _response_norm(),
        "conv2": nn.Conv2d(64, 64, 5, padding=2),
        "relu2": nn.ReLU(),
        "norm2": _response_norm(),
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


def _response_norm() -> ResponseNorm:
    return ResponseNorm(64, 9, alpha=0.001)  # TensorFlow sums 9 squares times 0.001 / 9


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
