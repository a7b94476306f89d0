"""What every decision from features has in common.

A decision is fitted on the features of the training samples and tuned on validation. It gives scores ``(N, K)`` that
stand where the logits of a classifier would. ``state()`` returns everything it keeps as tensors, ready to save;
``from_state`` restores a decision that decides the same. Put these tensors on the device of the features: otherwise
each call copies them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from rectifier._base import check
from rectifier.labels import columns
from rectifier.labels.space import LabelSpace

NEVER = -1e4
"""The score of a class without training samples: far below all scores of unit-length features."""


class FitData(NamedTuple):
    """Checked features and targets, all on the device of the training features."""

    features: Tensor
    targets: Tensor
    validation_features: Tensor
    validation_targets: Tensor


@dataclass(frozen=True, eq=False)
class Decision(ABC):
    """Base class: the sizes of the labels and the shape of the features."""

    sizes: tuple[int, ...]
    shape: tuple[int, ...]  # of the features of a sample: (D,), or (A, D)

    @classmethod
    @torch.no_grad()
    def fit(
        cls,
        features: Tensor,
        targets: Tensor,
        space: LabelSpace,
        validation_features: Tensor,
        validation_targets: Tensor,
        **options: Any,
    ) -> Self:
        """Fit on training features ``(n, D)`` or ``(n, A, D)`` and targets ``(n, A)``; tune on validation.

        The class describes its ``options``. Everything runs on the device of the training features.
        """
        shapes = [tuple(x.shape) for x in (features, validation_features)]
        shape_ok = features.dim() == 2 or (features.dim() == 3 and features.shape[1] == len(space))
        if not shape_ok or shapes[0][1:] != shapes[1][1:]:
            wanted = f"both of shape (·, D) or (·, {len(space)}, D)"
            check.fail("features and validation_features", wanted, f"{shapes[0]} and {shapes[1]}")
        if not features.is_floating_point() or not validation_features.is_floating_point():
            got = f"{features.dtype} and {validation_features.dtype}"
            check.fail("features and validation_features", "floating point", got)
        given: list[Tensor] = []
        for name, x, own in (("", features, targets), ("validation_", validation_features, validation_targets)):
            known = columns.as_targets(own, space.sizes, space.names).clamp(min=-1).to(features.device)
            check.same_length(f"{name}features", x, f"{name}targets", known)
            if not bool(x.isfinite().all()):
                check.fail(f"{name}features", "finite", "NaN or infinity among them: the network has diverged")
            if not bool((known >= 0).any()):
                check.fail(f"{name}targets", "of at least one sample that has a label", "none")
            given += [x.detach().to(features.device), known]
        return cls.fit_checked(space, FitData(*given), **options)

    @classmethod
    @abstractmethod
    def fit_checked(cls, *args: Any, **options: Any) -> Self:
        """Fit on a label space and ``FitData``."""

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
        values: dict[str, Any] = dict(state)
        for part in fields(cls):
            if part.type != "Tensor":  # a number, or a tuple of numbers
                value = state[part.name].tolist()
                values[part.name] = tuple(value) if isinstance(value, list) else value
        return cls(**values)
