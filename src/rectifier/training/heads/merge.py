"""The mean of the logits of several heads, as one head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from rectifier._base import check
from rectifier.training.heads.module import TrainedHead


def merged(heads: Sequence[TrainedHead]) -> TrainedHead:
    """Return one head whose logits are the mean of the logits of all.

    Linear classifiers have the mean of their weights. Hidden units stand side by side, and the weights of what reads
    them are divided by the number of heads. So the merged head is H times as wide as one of H heads. Cosines of several
    heads are not the cosines of one.

    >>> from rectifier.training.heads import FeatureTable, HeadSpec, train_heads
    >>> from rectifier.labels.space import LabelSpace
    >>> table = FeatureTable(torch.randn(8, 3), torch.arange(8).view(8, 1) % 2, LabelSpace.from_sizes([2]))
    >>> one, other = train_heads(table, [HeadSpec(hidden=4, seed=seed) for seed in range(2)])
    >>> mean = (one.logits(table.x) + other.logits(table.x)) / 2
    >>> torch.allclose(merged([one, other]).logits(table.x), mean, atol=1e-6), merged([one, other]).spec.hidden
    (True, 8)
    """
    _check(heads)
    if len(heads) == 1:
        return heads[0]
    first, number = heads[0].spec, len(heads)
    parts = {name: torch.stack([head.weights[name] for head in heads]) for name in heads[0].weights}
    weights: dict[str, Tensor] = {}
    if first.hidden:
        weights |= {f"hidden.{part}": parts[f"hidden.{part}"].flatten(0, 1) for part in ("weight", "bias")}
    if first.branch:
        weights |= _side_by_side(
            parts["entry.weight"], parts["entry.bias"], first.branch, own_inputs=bool(first.hidden)
        )
    last = parts["classifier.weight"]
    joined = torch.cat(last.unbind(), 1) / number if first.has_layers else last.mean(0)
    weights |= {"classifier.weight": joined, "classifier.bias": parts["classifier.bias"].mean(0)}
    wider = replace(first, hidden=number * first.hidden, branch=number * first.branch)
    return replace(heads[0], spec=wider, weights=weights, losses=(), scores=(), epoch=0)


def _side_by_side(weight: Tensor, bias: Tensor, branch: int, own_inputs: bool) -> dict[str, Tensor]:
    """Return the first layer of wide branches: label by label, the units of one head after those of another.

    ``weight`` is ``(H, A * branch, D)``. With ``own_inputs`` each head's units read only its own D inputs, and the
    joined layer reads all H * D: everything between two heads is 0.
    """
    heads, _, inputs = weight.shape
    if own_inputs:
        wide = weight.new_zeros(heads, weight.shape[1], heads, inputs)
        wide[range(heads), :, range(heads)] = weight
        weight = wide.flatten(2)
    by_label = weight.unflatten(1, (-1, branch)).transpose(0, 1)  # (A, H, branch, D)
    return {
        "entry.weight": by_label.flatten(0, 2),
        "entry.bias": bias.unflatten(1, (-1, branch)).transpose(0, 1).flatten(),
    }


def _check(heads: Sequence[TrainedHead]) -> None:
    if not heads:
        check.fail("heads", "a list of at least one head", "an empty one")
    for head in heads:
        if head.spec.classifier == "cosine" and len(heads) > 1:
            wanted = "linear: cosines of several heads are not those of one. Average their logits instead"
            check.fail("the classifier of merged heads", wanted, "cosine")
        for what in ("space", "width"):
            if getattr(head, what) != getattr(heads[0], what):
                check.fail(f"the {what} of merged heads", "the same for all", "different ones")
        shapes = [(each.spec.hidden, each.spec.branch) for each in (heads[0], head)]
        if shapes[0] != shapes[1]:
            check.fail("merged heads", "of one shape (hidden, branch)", f"{shapes[0]} and {shapes[1]}")
