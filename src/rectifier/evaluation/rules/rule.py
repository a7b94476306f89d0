"""Rule: what every decision rule has in common.

What a rule has learned lies in buffers, so it moves with ``to`` and is saved with ``state_dict``. A rule that is not
fitted has empty buffers. ``load_state_dict`` gives them their size, also where the rule was made without ``sizes``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from rectifier._base import check
from rectifier.evaluation.arrays import as_given, as_tensor
from rectifier.evaluation.metrics.balanced import class_balanced_accuracy
from rectifier.labels import columns
from rectifier.labels.columns import Sizes
from rectifier.labels.counts import Counts, fitting_counts

_SHOWN = 8  # numbers of a buffer in a repr


class Rule(nn.Module, ABC):
    """Change logits ``(N, K)`` between a trained model and its decision.

    ``logits`` may be a tensor of any float type on any device, an array, lists, or a model's output that has
    ``logits``. Results come as a tensor, an array or lists, as the logits do. In half precision a rule computes in
    float32. ``sizes`` is the number of classes of each label; None is one label with all columns.
    """

    label_sizes: Tensor

    def __init__(self, sizes: Sizes | None = None) -> None:
        super().__init__()
        self.given = None if sizes is None else columns.kept_sizes(sizes)
        self.sizes = columns.as_sizes(self.given)
        self.register_buffer("label_sizes", torch.tensor(self.sizes, dtype=torch.int64))

    def fit(self, logits: Any, targets: Any) -> Self:
        """Learn from the logits ``(N, K)`` and targets of validation data. Return the rule itself.

        Targets are ``(N,)`` for one label, ``(N, A)`` for several, negative where missing. Logits must be finite.
        """
        with torch.inference_mode(False), torch.no_grad(), torch.device("cpu"):
            known = _wide(check.logits(as_tensor("logits", logits)).detach().cpu())
            sizes = columns.as_sizes(self.given, known.shape[1])
            wanted = as_tensor("targets", targets).cpu()
            canonical = columns.targets_beside(known, wanted, sizes, columns.label_names(self.given))
            if not bool(known.isfinite().all()):
                row = int((~known.isfinite()).any(1).nonzero()[0])
                check.fail("logits", "finite", f"{known[row].tolist()} in row {row}")
            if not bool((canonical >= 0).any()):
                check.fail("targets", "of at least one sample that has a label", "none")
            self.sizes = sizes
            self._keep(label_sizes=torch.tensor(sizes))
            self.fit_checked(known, canonical)
        return self

    @abstractmethod
    def fit_checked(self, logits: Tensor, targets: Tensor) -> None:
        """Fit on logits of ``sizes`` and targets ``(N, A)`` that are checked, both on the CPU."""

    @property
    @abstractmethod
    def is_fitted(self) -> bool:
        """Whether the rule can be used."""

    @abstractmethod
    def adjust(self, logits: Tensor) -> Tensor:
        """Return float32 or float64 logits, changed by the rule."""

    def forward(self, logits: Any) -> Any:
        """Return the changed logits, in the type of the given ones."""
        known = as_tensor("logits", logits)
        return as_given(self._adjusted(known).to(known.dtype), logits)

    def decide(self, logits: Any) -> Any:
        """Return the class with the largest changed logit: indices ``(N,)`` for one label, ``(N, A)`` for several."""
        classes = columns.argmax(self._numbers(as_tensor("logits", logits)), self.sizes)
        return as_given(classes[:, 0] if len(self.sizes) == 1 else classes, logits)

    def probabilities(self, logits: Any) -> Any:
        """Return the softmax ``(N, K)`` of the changed logits, one for each label."""
        known = as_tensor("logits", logits)
        return as_given(columns.softmax(self._numbers(known), self.sizes).to(known.dtype), logits)

    def _adjusted(self, logits: Tensor) -> Tensor:
        if not self.is_fitted:
            name = type(self).__name__
            raise RuntimeError(f"This {name} is not fitted. Call fit(logits, targets) with validation data first.")
        check.logits_columns(check.logits(logits), self.sizes)
        return self.adjust(_wide(logits))

    def _numbers(self, logits: Tensor) -> Tensor:
        """Return changed logits for a decision, which NaN would make arbitrary."""
        if not torch.compiler.is_compiling() and bool((bad := logits.isnan()).any()):
            check.fail("logits", "numbers", f"NaN in row {int(bad.any(-1).nonzero()[0])}")
        return self._adjusted(logits)

    def _keep(self, **buffers: Tensor) -> None:
        """Keep what was learned, on the device of the rule."""
        for name, value in buffers.items():
            setattr(self, name, value.to(self.label_sizes.device))

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, metadata: Any, strict: bool, *messages: list[str]
    ) -> None:
        saved = state_dict.get(f"{prefix}label_sizes")
        sizes = self.sizes if saved is None else tuple(saved.tolist())
        if self.given is not None and sizes != columns.as_sizes(self.given):
            own = columns.as_sizes(self.given)
            messages[-1].append(check.sentence(f"the state of {prefix or 'the rule'}", f"of sizes {own}", sizes))
            return
        for name, own_buffer in list(self.named_buffers(recurse=False)):
            if f"{prefix}{name}" in state_dict:
                setattr(self, name, own_buffer.new_empty(state_dict[f"{prefix}{name}"].shape))
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, *messages)
        self.sizes = sizes

    def extra_repr(self) -> str:
        facts = {"sizes": list(self.sizes)} if self.sizes else {}
        if not self.is_fitted:
            return ", ".join([*(f"{name}={value}" for name, value in facts.items()), "not fitted"])
        learned = {name: _text(value) for name, value in self.named_buffers(recurse=False) if name != "label_sizes"}
        return ", ".join(f"{name}={value}" for name, value in {**facts, **learned}.items())


class OffsetRule(Rule):
    """A rule that adds one number per class, ``offsets`` ``(K,)``, to the logits."""

    offsets: Tensor

    def __init__(self, sizes: Sizes | None = None) -> None:
        super().__init__(sizes)
        self.register_buffer("offsets", torch.zeros(0))

    @property
    def is_fitted(self) -> bool:
        return len(self.offsets) > 0

    def adjust(self, logits: Tensor) -> Tensor:
        return logits + self.offsets.to(logits)


class CountRule(OffsetRule):
    """Offsets that follow from the training counts and one number, which ``fit`` chooses on validation.

    Subclasses say how, in ``offsets_at``. ``name`` is the buffer with the number; ``values`` are those to choose from.
    """

    def __init__(
        self, class_counts: Counts, sizes: Sizes | None, name: str, value: float, values: Sequence[float]
    ) -> None:
        several = isinstance(values, Sequence) and len(values) > 0 and all(map(check.is_real, values))
        number = check.that(name, value, "a number", check.is_real(value))
        check.raise_all([number, check.that(f"{name}s", values, "a list of at least one number", several)])
        counts, known = counts_and_sizes(class_counts, sizes)
        super().__init__(known)
        self.class_counts, self.name, self.values = counts, name, tuple(values)
        self.register_buffer(name, torch.zeros(()))
        self._set(value)

    @abstractmethod
    def offsets_at(self, value: float) -> Tensor:
        """Return the offsets ``(K,)`` for a value of the number."""

    def fit_checked(self, logits: Tensor, targets: Tensor) -> None:
        """Choose the value with the best class-balanced accuracy; the first wins a tie."""

        def score(value: float) -> float:
            adjusted = logits + self.offsets_at(value).to(logits)
            return float(class_balanced_accuracy(adjusted, targets, self.sizes))

        self._set(max(self.values, key=score))

    def _set(self, value: float) -> None:
        self._keep(**{self.name: torch.tensor(float(value)), "offsets": self.offsets_at(value)})


def counts_and_sizes(class_counts: Counts, sizes: Sizes | None) -> tuple[list[Tensor], Sizes]:
    """Return counts as one tensor per label, and their sizes: the given ones, which must agree with the counts."""
    counts, known = fitting_counts(class_counts, sizes)
    return list(counts.cpu().split(columns.as_sizes(known))), known


def _wide(logits: Tensor) -> Tensor:
    return logits if logits.dtype == torch.float64 else logits.float()


def _text(value: Tensor) -> str:
    if value.is_meta:
        return "..."
    numbers = [f"{number:.4g}" for number in value.flatten()[:_SHOWN].tolist()]
    listed = ", ".join(numbers + (["..."] if value.numel() > _SHOWN else []))
    return f"[{listed}]" if value.dim() else listed
