"""The first weights of a head, for standardised features."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rectifier._base.distances import unit
from rectifier.labels import columns
from rectifier.training.heads.module import FeatureHead
from rectifier.training.heads.noise import indicators
from rectifier.training.heads.prepared import Prepared
from rectifier.training.heads.spec import HeadSpec


def first_weights(spec: HeadSpec, data: Prepared) -> dict[str, Tensor]:
    """Return the first weights of a head by their names in ``FeatureHead``."""
    sizes = data.table.space.sizes
    made = FeatureHead.of(spec, data.table.width, sizes).to(data.rows)
    drawn = {name: weight.detach() for name, weight in made.named_parameters()}
    if spec.init == "random":
        return drawn
    with torch.no_grad():  # what the drawn layers give; a cosine head's scaling is still the identity
        features = made.eval()(data.first_view).features
    by_label = [columns.of_label(features, a) for a in range(len(sizes))]
    if spec.classifier == "cosine":
        return {**drawn, "classifier.weight": unit(class_means(by_label, data.table.targets, sizes)[0])}
    weight, bias = nearest_mean_classifier(by_label, data.table.targets, sizes)
    return {**drawn, "classifier.weight": weight, "classifier.bias": bias}


def class_means(by_label: Sequence[Tensor], targets: Tensor, sizes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Return each class's mean ``(K, D)`` of its label's features ``(N, D)``, 0 without samples, and which have any."""
    marked = indicators(targets, sizes).to(by_label[0].dtype)
    sums = torch.cat([own.T @ features for own, features in zip(marked.split(sizes, 1), by_label, strict=True)])
    counts = marked.sum(0)
    return sums / counts.clamp(min=1)[:, None], counts > 0


def nearest_mean_classifier(
    by_label: Sequence[Tensor], targets: Tensor, sizes: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    """Return weight ``(K, D)`` and bias ``(K,)`` of a linear classifier that decides for the nearest class mean.

    The logits are x . m_c - |m_c|^2 / 2, with x and the class means m_c taken from the mean of all samples. They are
    divided by their root mean square within a label, because those of many features would saturate a softmax. A class
    without samples has the weight 0 and the lowest bias of its label, less one.

    >>> features, targets = torch.tensor([[0.0], [2.0], [6.0]]), torch.tensor([[0], [0], [1]])
    >>> weight, bias = nearest_mean_classifier([features], targets, (2,))
    >>> (torch.tensor([[3.4], [3.6]]) @ weight.T + bias).argmax(1)
    tensor([0, 1])
    """
    means, present = class_means(by_label, targets, sizes)
    weights, biases = [], []
    for features, own, there in zip(by_label, means.split(sizes), present.split(sizes), strict=True):
        centre = features.mean(0)
        weight = torch.where(there[:, None], own - centre, 0)
        bias = -weight.square().sum(1) / 2
        root = ((features - centre) @ weight.T + bias)[:, there].square().mean().sqrt()
        scale = 1 / root if root > 0 else root.new_ones(())  # NaN, where no class has a sample, is not above 0
        weights.append(weight * scale)
        biases.append(torch.where(there, bias - weight @ centre, bias.min()) * scale - (~there).to(bias.dtype))
    return torch.cat(weights), torch.cat(biases)
