"""HeadSpec and FeatureTable: what a head is and how it is trained, and what it is trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from rectifier._base import check
from rectifier.labels import columns
from rectifier.labels.counts import class_counts
from rectifier.labels.space import LabelSpace
from rectifier.methods import find_method, needed_of_network
from rectifier.networks.head import SCALE


@dataclass(frozen=True)
class HeadSpec:
    """A head on cached features, and its training.

    Args:
        method: A name of ``METHODS``, or several joined by ``+``. What a method does after training (crt, lws, tau, a
            decision rule, a decision from features) is left to the caller.
        method_options: The options of the method.
        seed: Fixes the first weights, the order of samples, and everything that is drawn.
        order_seed: Seed of the order and of what is drawn in training, if not ``seed``. Heads with one order read their
            features together, so an ensemble of several seeds costs little more than one head.
        hidden: Width of one hidden layer that all labels share. 0 is none.
        branch: Width of a hidden layer of each label. 0 is none.
        classifier: ``"linear"``, or ``"cosine"``: ``scale`` times the cosine of features and class weights.
        scale: Factor of the cosines. ``scale_learned`` trains it, in logarithms.
        init: First weights of the classifier: ``"random"``, or the ``"means"`` of the classes. Then an untrained head
            decides for the nearest class mean (linear), or for the class mean at the smallest angle (cosine).
        dropout: Share dropped of the input of every layer.
        epochs: Passes over the training samples, as the method's sampler draws them.
        batch_size: Largest batch. An epoch is cut into batches of equal size, so that none is tiny.
        lr: Learning rate.
        optimizer: ``"adamw"`` or ``"sgd"``.
        momentum: Momentum of SGD.
        weight_decay: Weight decay. Biases and scales do not decay.
        schedule: ``"cosine"`` falls to 0 at the end of training, ``"constant"`` stays.
        warmup: Share of the steps in which the rate rises linearly.
        noise: Strength of covariance noise, relative to the deviation within classes (see ``noise.residuals``).
        mixup: Strength of mixup on features. 0 is none.
        smoothing: Label smoothing.
    """

    method: str = "ce"
    method_options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    order_seed: int | None = None
    hidden: int = 0
    branch: int = 0
    classifier: str = "linear"
    scale: float = SCALE
    scale_learned: bool = False
    init: str = "random"
    dropout: float = 0.0
    epochs: int = 30
    batch_size: int = 256
    lr: float = 1e-3
    optimizer: str = "adamw"
    momentum: float = 0.9
    weight_decay: float = 1e-2
    schedule: str = "cosine"
    warmup: float = 0.0
    noise: float = 0.0
    mixup: float = 0.0
    smoothing: float = 0.0

    def __post_init__(self) -> None:
        own_scale = self.scale_learned or self.scale != SCALE
        wanted = "the default for a linear classifier, which has no scale"
        check.raise_all(
            [
                check.that("seed", self.seed, "an integer from 0", check.is_natural(self.seed)),
                check.that("order_seed", self.order_seed, "an integer from 0, or None", check.is_natural(self.draws)),
                check.that("hidden", self.hidden, "a width, or 0 for none", check.is_natural(self.hidden)),
                check.that("branch", self.branch, "a width, or 0 for none", check.is_natural(self.branch)),
                check.choice("classifier", self.classifier, ("linear", "cosine")),
                check.positive("scale", self.scale),
                check.switch("scale_learned", self.scale_learned),
                check.choice("init", self.init, ("random", "means")),
                check.below_one("dropout", self.dropout),
                check.count("epochs", self.epochs),
                check.count("batch_size", self.batch_size),
                check.positive("lr", self.lr),
                check.choice("optimizer", self.optimizer, ("adamw", "sgd")),
                check.below_one("momentum", self.momentum),
                check.not_negative("weight_decay", self.weight_decay),
                check.choice("schedule", self.schedule, ("cosine", "constant")),
                check.below_one("warmup", self.warmup),
                check.not_negative("noise", self.noise),
                check.not_negative("mixup", self.mixup),
                check.below_one("smoothing", self.smoothing),
                check.that("scale", self.scale, wanted, not (own_scale and self.classifier == "linear")),
            ]
        )
        self._check_method()

    def _check_method(self) -> None:
        method = find_method(self.method)
        if method.features is not None:
            check.fail("the method of a head", "one that trains a network", repr(self.method))
        needed_of_network(self.method, {"classifier": self.classifier})
        if method.classifier == "cosine" and (self.scale != SCALE or self.scale_learned):
            check.fail("scale", f"{SCALE:g} and not learned for {self.method!r}, whose margins assume it", self.scale)
        if self.mixup and method.mixing is not None:
            check.fail("mixup", f"0 for {self.method!r}, which mixes samples itself", self.mixup)
        if self.mixup and method.objective is not None:
            check.fail("mixup", f"0 for {self.method!r}, whose objective takes no mixed samples", self.mixup)

    @property
    def draws(self) -> int:
        """The seed of the order of samples and of everything that training draws."""
        return self.seed if self.order_seed is None else self.order_seed

    @property
    def mixes(self) -> bool:
        """Whether training mixes samples."""
        return bool(self.mixup) or find_method(self.method).mixing is not None

    @property
    def has_layers(self) -> bool:
        """Whether the head has features of its own."""
        return bool(self.hidden or self.branch)


@dataclass(frozen=True, eq=False)
class FeatureTable:
    """Cached features with their targets: ``x`` is ``(N, D)``, or ``(V, N, D)`` with several views of each sample.

    ``targets`` are int64 ``(N, A)``, negative where missing. Training draws a view for each sample and epoch.
    Everything else reads view 0.

    >>> import torch
    >>> FeatureTable(torch.zeros(2, 4, 3), torch.tensor([[0], [1], [1], [-1]]), LabelSpace.from_sizes([2])).views
    2
    """

    x: Tensor
    targets: Tensor
    space: LabelSpace

    def __post_init__(self) -> None:
        shape = tuple(self.x.shape)
        if not self.x.is_floating_point() or self.x.dim() not in (2, 3) or 0 in shape:
            check.fail("x", "floating point of shape (N, D) or (V, N, D)", f"{self.x.dtype} of shape {shape}")
        check.same_length("targets", self.targets, "x", self.x[0] if self.x.dim() == 3 else self.x)
        check.same_device("targets", self.targets, "x", self.x)
        columns.as_targets(self.targets, self.space.sizes, self.space.names)

    def __len__(self) -> int:
        return self.x.shape[-2]

    @property
    def width(self) -> int:
        """D, the number of features."""
        return self.x.shape[-1]

    @property
    def views(self) -> int:
        """V, the number of views."""
        return self.x.shape[0] if self.x.dim() == 3 else 1

    @property
    def first_view(self) -> Tensor:
        """The features ``(N, D)`` that decisions read."""
        return self.x[0] if self.x.dim() == 3 else self.x

    def counts(self) -> list[Tensor]:
        """Return the samples of each class, label by label."""
        return class_counts(self.targets, self.space)
