"""What a method comes to with data: its objective, sampler and mixing, and what it asks of network and training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rectifier._base import check
from rectifier.labels.space import LabelSpace
from rectifier.losses.cross_entropy import CrossEntropy
from rectifier.losses.objective import Objective
from rectifier.methods.catalogue import DEFERRED_FROM, find_method
from rectifier.methods.method import Afterwards, Options
from rectifier.samplers import EpochSampler, UniformSampler


def build_objective(
    name: str, counts: Sequence[Tensor], space: LabelSpace, *, gather: bool = False, **options: Any
) -> torch.nn.Module:
    """Make the objective of a method, or of several joined by ``+``, from the counts of the training split.

    It is called as ``objective(logits, targets, features, return_parts=True)`` and gives ``LossParts``.

    >>> space = LabelSpace.from_names({"kind": ["cat", "dog"]})
    >>> build_objective("crl+focal", [torch.tensor([90, 10])], space, eta=0.5, gamma=1).alpha
    tensor([0.2222])
    """
    method = find_method(name)
    check.options_of(f"method {name!r}", options, method.options)
    if tuple(map(len, counts)) != space.sizes:
        check.fail("counts", f"those of the label space, {space.sizes}", tuple(map(len, counts)))
    if method.objective is not None:
        made: torch.nn.Module = method.build("objective", options, counts, space, gather=gather)
        return made
    loss = method.build("loss", options, list(counts), space) if method.loss else CrossEntropy()
    more: dict[str, Any] = {}
    for slot in ("weights", "rectification"):
        more |= method.build(slot, options, list(counts)) if slot in method.parts else {}
    return Objective(loss, space, gather=gather, **more)


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
    """Make the sampler of a method over these training targets ``(N, A)``; ``common`` are seed, num_replicas and rank.

    ``epochs`` and ``batch_size`` are the training's, the latter of one process.

    >>> space = LabelSpace.from_names({"kind": ["cat", "dog"]})
    >>> len(build_sampler("over-sampling", torch.tensor([[0], [0], [0], [1]]), space))
    6
    """
    method = find_method(name)
    if method.sampler is None:
        return UniformSampler(targets, space, **common)
    more = {"epochs": epochs, "batch_size": batch_size, **common}
    made: EpochSampler[Any] = method.build("sampler", options or {}, targets, space, **more)
    return made


def check_method(name: str, epochs: int, options: Options) -> None:
    """Refuse what is wrong with options of a method that are used late, and trainings too short for them."""
    build_afterwards(name, options)
    rounds_of(name, epochs, options)
    share = whole_from(name, options)
    if (epochs - 1) / epochs < share:
        wanted = f"enough for an epoch after the share {share:g} of training, where {name} begins"
        check.fail("epochs", wanted, epochs)


def whole_from(name: str, options: Options) -> float:
    """Return the share of training after which a method is all that it is: one may weigh, or rectify, from there on.

    Weights of an epoch before it are not the method's.

    >>> whole_from("ldam-drw", {}), whole_from("crl", {"rectify_from": 0.5}), whole_from("ce", {})
    (0.8, 0.5, 0.0)
    """
    taken = find_method(name).options
    shares = {"weights_from": DEFERRED_FROM, "rectify_from": 0.0}
    given = {option: options.get(option, default) for option, default in shares.items() if option in taken}
    check.raise_all([check.portion(option, share) for option, share in given.items()])
    return max(given.values(), default=0.0)


def rounds_of(name: str, epochs: int, options: Options) -> frozenset[int]:
    """Return the epochs before which the sampler of a method looks at the features of all training samples."""
    method = find_method(name)
    found: frozenset[int] = frozenset() if method.rounds is None else method.build("rounds", options, epochs)
    return found


def build_mixing(name: str, counts: Sequence[Tensor], space: LabelSpace, options: Options) -> torch.nn.Module | None:
    """Make what mixes the images of a method, or None."""
    method = find_method(name)
    return None if method.mixing is None else method.build("mixing", options, list(counts), space)


def build_afterwards(name: str, options: Options) -> Afterwards:
    """Say what is done to the classifier of a method's trained network."""
    method = find_method(name)
    found: Afterwards = Afterwards() if method.afterwards is None else method.build("afterwards", options)
    if found.kind in ("crt", "lws"):
        wrong = check.that("retrain_epochs", found.epochs, "a positive integer", check.is_count(found.epochs))
        check.raise_all([wrong])
    return found


def needed_of_network(name: str, given: Options) -> dict[str, Any]:
    """Return the options of the network with what the method needs of it.

    >>> needed_of_network("ldam", {"depth": 20})
    {'depth': 20, 'classifier': 'cosine'}
    """
    method = find_method(name)
    wanted = method.classifier
    if method.afterwards is not None and method.build("afterwards", {}).kind in ("lws", "tau"):
        if wanted is not None:
            check.fail(f"method {name!r}", "one that leaves the classifier linear, whose weights have a length", wanted)
        wanted = "linear"
    if wanted is None:
        return dict(given)
    if given.get("classifier", wanted) != wanted:
        check.fail("the network's classifier", f"{wanted} for method {name!r}", repr(given["classifier"]))
    return {**given, "classifier": wanted} if wanted != "linear" else dict(given)
