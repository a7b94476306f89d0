"""Decisions that are made from features instead of by the classifier: neighbours, clusters, support vector machines.

Each is fitted on the features of the training samples, chooses what is left open on validation, and then gives scores
``(N, K)`` that stand where the logits of a classifier would. ``state()`` gives all that it keeps as tensors, to be
saved, and ``from_state`` takes them back and decides the same. Put the tensors of a state where the features will be:
elsewhere they are copied at every call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from rectifier._base import check
from rectifier._base.distances import unit
from rectifier.evaluation.by_features.neighbours import KS, choose_k, neighbour_scores
from rectifier.evaluation.by_features.svm import LinearScores, linear_svm
from rectifier.evaluation.metrics import class_balanced_accuracy
from rectifier.labels import columns
from rectifier.labels.space import LabelSpace
from rectifier.samplers.lmle.clusters import CLUSTER_SIZE, Clusters, cluster_label_scores, cluster_labels

NEARESTS = (1, 2, 3, 5, 10, 20, 50)
"""The numbers of nearest centres that validation chooses from, beside all of them."""

FITTED_ON = 50
"""Samples of each cluster that k-means looks at before its last round."""


@dataclass(frozen=True, eq=False)
class Decision(ABC):
    """What all decisions share: the labels they are about, and the features they know."""

    sizes: tuple[int, ...]
    shape: tuple[int, ...]  # of the features of a sample: (D,), or (A, D)

    @classmethod
    @abstractmethod
    def fit(
        cls,
        features: Tensor,
        targets: Tensor,
        space: LabelSpace,
        validation_features: Tensor,
        validation_targets: Tensor,
    ) -> Self:
        """Fit it on training features ``(n, D)`` or ``(n, A, D)`` and targets ``(n, A)``, choosing on validation."""

    @torch.no_grad()
    def __call__(self, features: Tensor) -> Tensor:
        """Score the classes of all labels, float32 ``(N, K)`` on the features' device; the largest is decided for."""
        if not features.is_floating_point() or tuple(features.shape[1:]) != self.shape:
            wanted = f"floating point of shape (N, {', '.join(map(str, self.shape))}), as they were fitted"
            check.fail("features", wanted, f"{features.dtype}, shape {tuple(features.shape)}")
        return self.scores(features).float()

    @abstractmethod
    def scores(self, features: Tensor) -> Tensor:
        """Score checked features."""

    def state(self) -> dict[str, Tensor]:
        """Return everything as tensors."""
        return {part.name: torch.as_tensor(getattr(self, part.name)).contiguous() for part in fields(self)}

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor]) -> Self:
        """Make the decision that gave this state."""
        names = [part.name for part in fields(cls)]
        if set(state) != set(names):
            check.fail(f"the state of {cls.__name__}", f"of {', '.join(names)}", ", ".join(state) or "nothing")
        return cls(**{part.name: _plain(state[part.name], str(part.type)) for part in fields(cls)})


@dataclass(frozen=True, eq=False)
class NeighbourDecision(Decision):
    """The k nearest training samples vote, k chosen on validation by class-balanced accuracy.

    With ``unit`` features are brought to unit length and kept in float16, which halves a file; queries are rounded
    alike. The rounding, some 0.0005 of each number, changes only decisions between neighbours that are equally far
    within it. Without ``unit`` they are kept in float32, for there is no telling how large they are.

    >>> features, targets = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 3.0]]), torch.tensor([[0], [0], [1]])
    >>> found = NeighbourDecision.fit(features, targets, LabelSpace.from_sizes([2]), features, targets)
    >>> found.k, found(torch.tensor([[0.1, 0.2]])).argmax(1).item()
    (1, 1)
    """

    references: Tensor
    targets: Tensor
    k: int
    unit: bool

    @classmethod
    def fit(
        cls,
        features: Tensor,
        targets: Tensor,
        space: LabelSpace,
        validation_features: Tensor,
        validation_targets: Tensor,
        *,
        unit: bool = True,
        ks: Sequence[int] = KS,
    ) -> Self:
        given = _given(features, targets, space, validation_features, validation_targets)
        references, queries = (_prepared(x, unit) for x in (given.features, given.validation_features))
        k = choose_k(queries, given.validation_targets, references, given.targets, space, ks)
        narrow = torch.int8 if max(space.sizes) < 2**7 else torch.int32  # most of a file, where there are many labels
        return cls(space.sizes, tuple(references.shape[1:]), references, given.targets.to(narrow), k, unit)

    def scores(self, features: Tensor) -> Tensor:
        references, targets = self.references.to(features.device), self.targets.to(features.device)
        return neighbour_scores(_prepared(features, self.unit), references, targets, self.sizes, self.k)


@dataclass(frozen=True, eq=False)
class ClusterDecision(Decision):
    """LMLE's decision: the class whose clusters are near while those of the others are far (``cluster_scores``).

    Features are brought to unit length. How many of the nearest centres have a say is chosen on validation by
    class-balanced accuracy, one number for all labels; ties go to the smaller. One alone is the nearest centre's class.

    >>> features, targets = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 3.0]]), torch.tensor([[0], [0], [1]])
    >>> found = ClusterDecision.fit(features, targets, LabelSpace.from_sizes([2]), features, targets)
    >>> found(torch.tensor([[0.1, 0.2]])).argmax(1).item()
    1
    """

    centres: Tensor  # (C, D), those of the first label first
    class_of: Tensor  # (C,)
    clusters: tuple[int, ...]  # how many of them each label has
    nearest: int

    @classmethod
    def fit(
        cls,
        features: Tensor,
        targets: Tensor,
        space: LabelSpace,
        validation_features: Tensor,
        validation_targets: Tensor,
        *,
        size: int = CLUSTER_SIZE,
        nearests: Sequence[int] = NEARESTS,
        seed: int = 0,
    ) -> Self:
        if not all(check.is_count(nearest) for nearest in nearests):
            check.fail("nearests", "positive integers", repr(nearests))
        given = _given(features, targets, space, validation_features, validation_targets)
        found = cluster_labels(_unit(given.features), given.targets, size, seed, FITTED_ON)
        most = max(1, *(len(own.class_of) for own in found))
        queries = _unit(given.validation_features)

        def accuracy(nearest: int) -> float:
            scores = cluster_label_scores(queries, found, space, nearest)
            return float(class_balanced_accuracy(scores, given.validation_targets, space))

        return cls(
            space.sizes,
            tuple(features.shape[1:]),
            torch.cat([own.centres for own in found]),
            torch.cat([own.class_of for own in found]),
            tuple(len(own.class_of) for own in found),
            max(sorted({most, *(min(nearest, most) for nearest in nearests)}), key=accuracy),
        )

    def scores(self, features: Tensor) -> Tensor:
        centres, class_of = (part.to(features.device).split(self.clusters) for part in (self.centres, self.class_of))
        nobody = class_of[0][:0]
        found = [Clusters(*own, nobody) for own in zip(centres, class_of, strict=True)]
        return cluster_label_scores(_unit(features), found, self.sizes, self.nearest)


@dataclass(frozen=True, eq=False)
class SVMDecision(Decision):
    """A linear support vector machine for each label (``linear_svm``), whose weights contain the features' scaling.

    Nothing is chosen on validation: ``strength`` is given.

    >>> features, targets = torch.tensor([[0.0], [1.0], [3.0], [4.0]]), torch.tensor([[0], [0], [1], [1]])
    >>> found = SVMDecision.fit(features, targets, LabelSpace.from_sizes([2]), features, targets)
    >>> found(torch.tensor([[0.5], [3.5]])).argmax(1)
    tensor([0, 1])
    """

    weight: Tensor  # (K, D)
    bias: Tensor  # (K,)

    @classmethod
    def fit(
        cls,
        features: Tensor,
        targets: Tensor,
        space: LabelSpace,
        validation_features: Tensor,
        validation_targets: Tensor,
        *,
        strength: float = 1.0,
    ) -> Self:
        given = _given(features, targets, space, validation_features, validation_targets)
        found = linear_svm(given.features, given.targets, space, strength=strength)
        return cls(space.sizes, tuple(features.shape[1:]), *found)

    def scores(self, features: Tensor) -> Tensor:
        return LinearScores(self.weight, self.bias)(features, self.sizes)


DECISIONS: dict[str, type[Decision]] = {
    "neighbours": NeighbourDecision,
    "clusters": ClusterDecision,
    "svm": SVMDecision,
}


class _Given(NamedTuple):
    features: Tensor
    targets: Tensor
    validation_features: Tensor
    validation_targets: Tensor


def _given(
    features: Tensor, targets: Tensor, space: LabelSpace, validation_features: Tensor, validation_targets: Tensor
) -> _Given:
    """Check what a decision is fitted on, and bring it to the device of the training features."""
    shapes = [tuple(x.shape) for x in (features, validation_features)]
    shape_ok = features.dim() == 2 or (features.dim() == 3 and features.shape[1] == len(space))
    if not shape_ok or shapes[0][1:] != shapes[1][1:]:
        wanted = f"both of shape (·, D) or (·, {len(space)}, D)"
        check.fail("features and validation_features", wanted, f"{shapes[0]} and {shapes[1]}")
    if not features.is_floating_point() or not validation_features.is_floating_point():
        got = f"{features.dtype} and {validation_features.dtype}"
        check.fail("features and validation_features", "floating point", got)
    parts: list[Tensor] = []
    for name, x, own in (("", features, targets), ("validation_", validation_features, validation_targets)):
        known = columns.as_targets(own, space.sizes, space.names).clamp(min=-1).to(features.device)
        check.same_length(f"{name}features", x, f"{name}targets", known)
        if not bool(x.isfinite().all()):
            check.fail(f"{name}features", "finite", "NaN or infinity among them: the network has diverged")
        if not bool((known >= 0).any()):
            check.fail(f"{name}targets", "of at least one sample that has a label", "none")
        parts += [x.detach().to(features.device), known]
    return _Given(*parts)


def _prepared(features: Tensor, unit: bool) -> Tensor:
    return _unit(features).half() if unit else features.float()


def _unit(features: Tensor) -> Tensor:
    return unit(features.float())


def _plain(value: Tensor, wanted: str) -> Any:
    """Bring a tensor of a state back to what the field is."""
    if wanted == "Tensor":
        return value
    values: Iterable[Any] | Any = value.tolist()
    return tuple(values) if wanted.startswith("tuple") else values
