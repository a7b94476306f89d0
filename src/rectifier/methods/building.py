"""Build a method's objective, sampler and mixing from data, and check what it needs of network and training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rectifier._base import check
from rectifier.labels.space import LabelSpace
from rectifier.losses.cross_entropy import CrossEntropyLoss
from rectifier.losses.objective import Objective
from rectifier.methods.catalogue import DEFERRED_FROM, find_method
from rectifier.methods.method import Afterwards, Options
from rectifier.samplers import EpochSampler, UniformSampler


def build_objective(
    name: str, counts: Sequence[Tensor], space: LabelSpace, *, gather: bool = False, **options: Any
) -> torch.nn.Module:
    """Build the objective of a method, or of several joined by ``+``, from the class counts of the training split.

    >>> space = LabelSpace.from_names({"kind": ["cat", "dog"]})
    >>> build_objective("crl+focal", [torch.tensor([90, 10])], space, eta=0.5, gamma=1).alpha
    tensor([0.2222])
    """
    method = find_method(name)
    check.options_of(f"method {name!r}", options, method.options)
    if tuple(map(len, counts)) != space.sizes:
        check.fail("counts", f"those of the label space, {space.sizes}", tuple(map(len, counts)))
    whole: torch.nn.Module | None = method.build("objective", options, counts, space, gather=gather)
    if whole is not None:
        return whole
    loss = method.build("loss", options, list(counts), space) or CrossEntropyLoss()
    weights, rectification = (method.build(slot, options, list(counts)) or {} for slot in ("weights", "rectification"))
    return Objective(loss, space, gather=gather, **weights, **rectification)


def build_sampler(
    name: str,
    targets: Tensor,
    space: LabelSpace,
    *,
    epochs: int = 1,
    batch_size: int = 256,
    options: Options | None = None,
    **common: Any,
) -> EpochSampler[Any]:
    """Build the sampler of a method for training targets ``(N, A)``. ``batch_size`` is that of one process.

    ``common`` are the options of every sampler, such as seed, num_replicas and rank.

    >>> space = LabelSpace.from_names({"kind": ["cat", "dog"]})
    >>> len(build_sampler("over-sampling", torch.tensor([[0], [0], [0], [1]]), space))
    6
    """
    more = {"epochs": epochs, "batch_size": batch_size, **common}
    made: EpochSampler[Any] | None = find_method(name).build("sampler", options or {}, targets, space, **more)
    return UniformSampler(targets, space, **common) if made is None else made


def check_method(name: str, epochs: int, options: Options) -> None:
    """Check the options that a method uses late in training, and that training is long enough for them."""
    build_afterwards(name, options)
    rounds_of(name, epochs, options)
    share = whole_from(name, options)
    if (epochs - 1) / epochs < share:
        check.fail("epochs", f"enough for an epoch after the share {share:g} of training, where {name} starts", epochs)


def whole_from(name: str, options: Options) -> float:
    """Return the share of training after which a method is complete: class weights or rectification may start late.

    >>> whole_from("ldam-drw", {}), whole_from("crl", {"rectify_from": 0.5}), whole_from("ce", {})
    (0.8, 0.5, 0.0)
    """
    shares = {"weights_from": DEFERRED_FROM, "rectify_from": 0.0}
    given = {option: options.get(option, shares[option]) for option in find_method(name).options if option in shares}
    check.raise_all([check.portion(option, share) for option, share in given.items()])
    return max(given.values(), default=0.0)


def rounds_of(name: str, epochs: int, options: Options) -> frozenset[int]:
    """Return the epochs before which the method's sampler reads the features of all training samples."""
    return find_method(name).build("rounds", options, epochs) or frozenset()


def build_mixing(name: str, counts: Sequence[Tensor], space: LabelSpace, options: Options) -> torch.nn.Module | None:
    """Build the module that mixes images for a method, or None."""
    mixing: torch.nn.Module | None = find_method(name).build("mixing", options, list(counts), space)
    return mixing


def build_afterwards(name: str, options: Options) -> Afterwards:
    """Return what a method does to the classifier after training."""
    found: Afterwards = find_method(name).build("afterwards", options) or Afterwards()
    if found.kind in ("crt", "lws"):
        check.raise_all([check.count("retrain_epochs", found.epochs)])
    return found


def needed_of_network(name: str, given: Options) -> dict[str, Any]:
    """Return the network options with those that the method requires.

    >>> needed_of_network("ldam", {"depth": 20})
    {'depth': 20, 'classifier': 'cosine'}
    """
    wanted = find_method(name).classifier
    if build_afterwards(name, {}).kind in ("lws", "tau"):
        if wanted is not None:
            check.fail(f"method {name!r}", "one that leaves the classifier linear", wanted)
        wanted = "linear"
    if wanted is not None and given.get("classifier", wanted) != wanted:
        check.fail("the network's classifier", f"{wanted} for method {name!r}", repr(given["classifier"]))
    return {**given, "classifier": wanted} if wanted == "cosine" else dict(given)
