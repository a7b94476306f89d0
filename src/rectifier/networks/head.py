"""MultiLabelHead: a branch and a classifier for every label, computed as one product.

A loop over 40 branches of two layers is 80 small products, each with its own launch. Here it is two large ones. Every
weight has the distribution of single ``nn.Linear`` layers.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from itertools import chain, pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, relu

from rectifier._base import check
from rectifier._base.distances import unit
from rectifier.labels import columns
from rectifier.labels.columns import Sizes
from rectifier.networks.options import Widths, as_widths, check_options, widths_complaint

SCALE = 30.0
"""Factor of the cosines in a cosine classifier. Without it the softmax of values from -1 to 1 is nearly flat.

LDAM (Cao et al. 2019), whose margin is in cosines, trains with 30.
"""


class Output(NamedTuple):
    """The output of every network: the logits of all classes of all labels, and the features behind them."""

    logits: Tensor  # (N, K)
    features: Tensor  # (N, A, D) where each label has its own branch, (N, D) where the labels share one


class MultiLabelHead(nn.Module):
    """Map the shared features ``(N, in_features)`` to the logits ``(N, K)`` of all labels.

    Each label has a branch of fully connected layers with ReLU, of the widths ``hidden``, then its classifier. Without
    ``hidden`` all labels are classified from the shared features. The returned features are the input of the
    classifiers before dropout: ``(N, A, D)``, or the shared features where there are no branches.

    ``classifier.weight`` is always ``(K, D)``, one row per class. A ``linear`` classifier has a ``classifier.bias``
    ``(K,)``. A ``cosine`` classifier has None: a logit is ``SCALE`` times the cosine between the features and the
    weights of the class, from -30 to 30.

    ``dropout`` is the share dropped of the input of every layer, including the classifiers.

    >>> head = MultiLabelHead(160, [2] * 40, hidden=(64,))
    >>> logits, features = head(torch.randn(8, 160))
    >>> logits.shape, features.shape
    (torch.Size([8, 80]), torch.Size([8, 40, 64]))
    """

    def __init__(
        self,
        in_features: int,
        sizes: Sizes,
        *,
        hidden: Widths = (64,),
        dropout: float = 0.0,
        classifier: str = "linear",
    ) -> None:
        super().__init__()
        own = check.count("in_features", in_features), widths_complaint("hidden", hidden)
        check_options(0, dropout, classifier, *own)
        self.sizes = columns.as_sizes(sizes)
        if not self.sizes:
            raise TypeError(check.sentence("sizes", "a positive integer, a list of them, or a LabelSpace", repr(sizes)))
        self.dropout = nn.Dropout(dropout)
        labels, widths = len(self.sizes), as_widths(hidden)
        # The first layers of all branches read the same input, so they are rows of one matrix.
        self.entry = nn.Linear(in_features, labels * widths[0]) if widths else None
        self.deeper = nn.ModuleList(BranchLinear(labels, before, after) for before, after in pairwise(widths))
        self.classifier: nn.Linear | LabelClassifier
        if widths:
            self.classifier = (LabelCosine if classifier == "cosine" else LabelClassifier)(widths[-1], self.sizes)
        else:
            self.classifier = (SharedCosine if classifier == "cosine" else nn.Linear)(in_features, sum(self.sizes))

    def forward(self, shared: Tensor) -> Output:
        features = shared if self.entry is None else self._branches(self.entry(self.dropout(shared)))
        return Output(self.classifier(self.dropout(features)), features)

    def _branches(self, entered: Tensor) -> Tensor:
        by_label: Tensor = relu(entered).unflatten(1, (len(self.sizes), -1)).transpose(0, 1)
        for layer in self.deeper:
            by_label = relu(layer(self.dropout(by_label)))
        return by_label.transpose(0, 1)

    def reset_parameters(self) -> None:
        """Redraw all weights."""
        for module in (self.entry, *self.deeper, self.classifier):
            if module is not None:
                module.reset_parameters()


class BranchLinear(nn.Module):
    """One fully connected layer in each of several branches: ``(A, N, in)`` to ``(A, N, out)``."""

    def __init__(self, branches: int, in_features: int, out_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(branches, out_features, in_features))
        self.bias = nn.Parameter(torch.empty(branches, out_features))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        _as_linear(self.weight, self.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.baddbmm(self.bias.unsqueeze(1), inputs, self.weight.transpose(1, 2))


class LabelClassifier(nn.Module):
    """The classifier of every label on the features of its own branch: ``(N, A, D)`` to ``(N, K)``.

    The weight is one ``(K, D)`` matrix without padding, so that no unused entry is decayed or saved. To multiply,
    labels of unequal sizes are padded to a common width, which makes one product. Gathering each column's features
    instead would write ``(N, K, D)``.
    """

    order: Tensor | None
    place: Tensor | None

    def __init__(self, features: int, sizes: tuple[int, ...], bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(sum(sizes), features))
        self.bias = nn.Parameter(torch.empty(sum(sizes))) if bias else None
        groups = columns.size_groups(sizes)
        self.blocks = tuple((len(group), max(sizes[label] for label in group)) for group in groups)
        order = torch.tensor(list(chain.from_iterable(groups))) if len(groups) > 1 else None
        place = columns.padded_to_plain(sizes, self.weight.device).clone() if len(set(sizes)) > 1 else None
        # They follow from the sizes, so no file saves them. As buffers they are on the device before a capture.
        self.register_buffer("order", order, persistent=False)
        self.register_buffer("place", place, persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        _as_linear(self.weight, self.bias)

    def forward(self, features: Tensor) -> Tensor:
        return self._classify(features, self.weight, self.bias)

    def _classify(self, features: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        bias = weight.new_zeros(len(weight)) if bias is None else bias
        by_label = features.transpose(0, 1)
        if self.order is not None:
            by_label = by_label.index_select(0, self.order)
        rows = [labels * width for labels, width in self.blocks]
        inputs = by_label.split([labels for labels, _ in self.blocks])
        weights, biases = self._padded(weight).split(rows), self._padded(bias).split(rows)
        products = [
            torch.baddbmm(added.view(labels, 1, width), block, own.view(labels, width, -1).transpose(1, 2))
            for (labels, width), block, own, added in zip(self.blocks, inputs, weights, biases, strict=True)
        ]
        logits = torch.cat([product.transpose(0, 1).flatten(1) for product in products], 1)
        return logits if self.place is None else logits.index_select(1, self.place)

    def _padded(self, rows: Tensor) -> Tensor:
        """Return the rows of all blocks in turn, with zeros where a label is smaller than its block."""
        if self.place is None:
            return rows
        # A copy, because its gradient is a plain selection. The gradient of a gather needs atomic sums.
        padded = rows.new_zeros((sum(labels * width for labels, width in self.blocks), *rows.shape[1:]))
        return padded.index_copy(0, self.place, rows)


class SharedCosine(nn.Linear):
    """The scaled cosines between shared features ``(N, D)`` and the weights of each class: ``(N, K)``."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features, bias=False)

    def forward(self, features: Tensor) -> Tensor:
        with _single_precision(features):
            return SCALE * linear(unit(features), unit(self.weight))


class LabelCosine(LabelClassifier):
    """The scaled cosines between each label's features ``(N, A, D)`` and the weights of its classes: ``(N, K)``."""

    def __init__(self, features: int, sizes: tuple[int, ...]) -> None:
        super().__init__(features, sizes, bias=False)

    def forward(self, features: Tensor) -> Tensor:
        with _single_precision(features):
            return SCALE * self._classify(unit(features), unit(self.weight), None)


def _single_precision(tensor: Tensor) -> AbstractContextManager[object]:
    """Disable autocast: small differences of cosines may separate two classes."""
    return nullcontext() if tensor.is_meta else torch.autocast(tensor.device.type, enabled=False)


def _as_linear(weight: Tensor, bias: Tensor | None) -> None:
    """Draw as ``nn.Linear`` does. Its bound depends on the number of inputs alone."""
    bound = 1 / math.sqrt(weight.shape[-1])
    nn.init.uniform_(weight, -bound, bound)
    if bias is not None:
        nn.init.uniform_(bias, -bound, bound)
