"""What every decision from features has in common.

A decision is fitted on the features of the training samples and tuned on validation. It gives scores ``(N, K)`` that
stand where the logits of a classifier would. ``state()`` returns everything it keeps as tensors, ready to save;
``from_state`` restores a decision that decides the same. Put these tensors on the device of the features: otherwise
each call copies them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from rectifier._base import check
from rectifier.labels import columns
from rectifier.labels.space import LabelSpace


@dataclass(frozen=True, eq=False)
class Decision(ABC):
    """Base class: the sizes of the labels and the shape of the features."""

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
        """Fit on training features ``(n, D)`` or ``(n, A, D)`` and targets ``(n, A)``; tune on validation."""

    @torch.no_grad()
    def __call__(self, features: Tensor) -> Tensor:
        """Score the classes of all labels: float32 ``(N, K)`` on the features' device. The highest score wins."""
        if not features.is_floating_point() or tuple(features.shape[1:]) != self.shape:
            wanted = f"floating point of shape (N, {', '.join(map(str, self.shape))}), as in fit"
            check.fail("features", wanted, f"{features.dtype}, shape {tuple(features.shape)}")
        return self.scores(features).float()

    @abstractmethod
    def scores(self, features: Tensor) -> Tensor:
        """Score features whose shape is already checked."""

    def state(self) -> dict[str, Tensor]:
        """Return everything as tensors."""
        return {part.name: torch.as_tensor(getattr(self, part.name)).contiguous() for part in fields(self)}

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor]) -> Self:
        """Restore the decision that returned this state."""
        names = [part.name for part in fields(cls)]
        if set(state) != set(names):
            check.fail(f"the state of {cls.__name__}", f"of {', '.join(names)}", ", ".join(state) or "nothing")
        return cls(**{part.name: _plain(state[part.name], str(part.type)) for part in fields(cls)})


class FitData(NamedTuple):
    """Checked features and targets, all on the device of the training features."""

    features: Tensor
    targets: Tensor
    validation_features: Tensor
    validation_targets: Tensor


def checked_fit_data(
    features: Tensor, targets: Tensor, space: LabelSpace, validation_features: Tensor, validation_targets: Tensor
) -> FitData:
    """Check what a decision is fitted on, and move it to the device of the training features."""
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
    return FitData(*parts)


def _plain(value: Tensor, wanted: str) -> Any:
    """Turn a tensor of a state back into the type of its field."""
    if wanted == "Tensor":
        return value
    values: Iterable[Any] | Any = value.tolist()
    return tuple(values) if wanted.startswith("tuple") else values
