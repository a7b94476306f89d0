"""Fit a network to tensors with a method: hold out, build, train, change the classifier, fit the decision rule."""

from __future__ import annotations

from collections import OrderedDict
from copy import deepcopy
from dataclasses import replace
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from rectifier._base import check
from rectifier.data.split import stratified_split
from rectifier.evaluation.metrics.balanced import class_balanced_accuracy
from rectifier.evaluation.rules import Rule
from rectifier.labels import columns
from rectifier.labels.space import LabelSpace
from rectifier.methods import (
    build_afterwards,
    build_mixing,
    build_objective,
    find_method,
    needed_of_network,
    whole_from,
)
from rectifier.networks.decoupling import RetrainedClassifier, choose_tau, tau_normalised
from rectifier.networks.network import Network
from rectifier.networks.registry import build_network
from rectifier.sklearn.inputs import Standardise, sample_shape
from rectifier.sklearn.loop import Curves, Training, copies, outputs, train, training_order
from rectifier.sklearn.rule import fit_rule, needs_validation, rule_of


class Data(NamedTuple):
    """Samples, targets ``(N, A)`` and weights ``(N,)`` in memory."""

    samples: Tensor
    targets: Tensor
    weights: Tensor

    def at(self, rows: Tensor) -> Data:
        return Data(*(values[rows] for values in self))


class Fitted(NamedTuple):
    """A trained network that includes the standardisation, its decision rule, and how training went."""

    network: nn.Module
    rule: Rule
    counts: list[Tensor]
    curves: Curves


def fit_network(asked: Any, data: Data, space: LabelSpace, seed: int, device: torch.device) -> Fitted:
    """Fit a network. ``asked`` has the parameters of ``RectifierClassifier``."""
    method, options = asked.method, dict(asked.method_options or {})
    rule, afterwards = rule_of(method, asked.decision_rule), build_afterwards(method, options)
    held_out = data.at(torch.arange(0))
    if asked.early_stopping or needs_validation(rule) or afterwards.kind == "tau":
        data, held_out = _split(data, space, asked.validation_fraction, seed)
    counts = weighted_counts(data, space)
    model = _build_model(asked, data, space, device)
    if afterwards.kind is not None and not isinstance(model[1], Network):
        check.fail("network", f"a name, so that {method} can change its classifier", type(model[1]).__name__)
    how = Training(
        epochs=asked.epochs if max(space.sizes) > 1 else 0,  # nothing to learn
        batch_size=asked.batch_size,
        learning_rate=asked.learning_rate,
        weight_decay=asked.weight_decay,
        device=device,
        mixing=build_mixing(method, counts, space, options),
        augment=asked.augment,
        verbose=bool(asked.verbose),
    )
    common: dict[str, Any] = {"seed": seed, "batch_size": asked.batch_size, "num_replicas": 1, "rank": 0}

    def validate() -> tuple[Rule, Tensor]:
        logits = outputs(model, held_out.samples, device)[0] if len(held_out.samples) else torch.zeros(0)
        return fit_rule(rule, method, counts, space, logits, held_out.targets), logits

    def score() -> float:
        fitted, logits = validate()
        return float(class_balanced_accuracy(fitted(logits), held_out.targets, space))

    curves = train(
        model,
        build_objective(method, counts, space, **options),
        data.samples,
        data.targets,
        training_order(method, data.targets, data.weights, space, epochs=asked.epochs, options=options, **common),
        how,
        score if asked.early_stopping else None,
        asked.patience,
        whole_from(method, options),
    )
    if afterwards.kind in ("crt", "lws"):
        retrained = RetrainedClassifier(cast(Network, model[1]), scales=afterwards.kind == "lws", seed=seed)
        second = _behind(model[0], retrained)
        order = training_order(
            "class-balanced-sampling", data.targets, data.weights, space, epochs=afterwards.epochs, **common
        )
        again = replace(how, epochs=afterwards.epochs, mixing=None)
        train(second, build_objective("ce", counts, space), data.samples, data.targets, order, again)
        retrained.put_back()
    elif afterwards.kind == "tau":
        _normalise_classifier(model, held_out, space, device)
    return Fitted(model.eval(), validate()[0], counts, curves)


def weighted_counts(data: Data, space: LabelSpace) -> list[Tensor]:
    """Return the samples of each class, repeated by their weights and rounded, but at least 1 where there is any."""
    weights = copies(data.weights)
    own = columns.own_columns(data.targets, space.sizes)
    shares = weights[:, None] * (own >= 0)
    total = torch.zeros(space.columns, dtype=weights.dtype).index_add(0, own.clamp(min=0).flatten(), shares.flatten())
    return list(total.round().clamp(min=1).where(total > 0, 0).long().split(list(space.sizes)))


def _split(data: Data, space: LabelSpace, fraction: float, seed: int) -> tuple[Data, Data]:
    """Hold out a stratified share. A class of one sample stays in training."""
    part = stratified_split(data.targets, space, shares=(1 - fraction, fraction, 0), seed=seed)
    if not bool((part == 1).any()):
        check.fail("validation_fraction", f"enough to hold out one of {check.amount(len(part), 'sample')}", fraction)
    return data.at((part == 0).nonzero()[:, 0]), data.at((part == 1).nonzero()[:, 0])


def _build_model(asked: Any, data: Data, space: LabelSpace, device: torch.device) -> nn.Sequential:
    """Build the network behind its standardisation, in the network's own precision."""
    network = _build_network(asked, space, sample_shape(data.samples))
    if isinstance(asked.network, str) and data.samples.dim() == 2 and device.type == "cpu":
        network.double()  # as scikit-learn's own: equal up to rounding, whatever the order of the samples
    fixed = Standardise.of(data.samples, data.weights) if asked.standardize else nn.Identity()
    return _behind(fixed.to(next(network.parameters()).dtype), network)


def _build_network(asked: Any, space: LabelSpace, shape: tuple[int, ...]) -> nn.Module:
    network, options = asked.network, dict(asked.network_options or {})
    if isinstance(network, nn.Module):
        check.options_of("a network that is a module", options, ())
        if (wanted := find_method(asked.method).classifier) is not None:
            check.fail("network", f"a name, so that it has the {wanted} classifier of {asked.method}", "a module")
        return deepcopy(network)
    options = needed_of_network(asked.method, options)
    if not isinstance(network, str):
        built: nn.Module = network(space.sizes, shape, **options)
        return built
    if network == "auto":
        network, options = ("mlp", options) if len(shape) == 1 else ("resnet32", {"depth": 8, **options})
    return build_network(network, space, shape, **options)


def _behind(fixed: nn.Module, network: nn.Module) -> nn.Sequential:
    return nn.Sequential(OrderedDict(standardise=fixed, network=network))


def _normalise_classifier(model: nn.Sequential, held_out: Data, space: LabelSpace, device: torch.device) -> None:
    """Divide the weights of each class by a power of their norm, chosen on held-out data. Biases become 0."""
    classifier = cast(Any, model[1]).head.classifier
    features = cast(Tensor, outputs(model, held_out.samples, device)[1])
    tau = choose_tau(features, held_out.targets, classifier.weight.detach().cpu(), None, space)
    with torch.no_grad():
        classifier.weight.copy_(tau_normalised(classifier.weight, tau))
        classifier.bias.zero_()
