"""Memory of recent samples: a class with one sample per batch finds positives in earlier batches."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from rectifier._base import check
from rectifier.labels import columns
from rectifier.labels.columns import Sizes
from rectifier.losses.module import in_training


class Memory(nn.Module):
    """Store the last samples, and add them to each batch for mining and comparison.

    Called as ``memory(scores, targets, features)``. It returns the batch followed by all stored samples. In a step of
    training (``in_training``) it then stores the batch in place of the oldest samples. Stored samples have no gradient
    and keep the scores and features of their own batch, although the network has changed since.

    Buffers of fixed size hold everything, so a step can be captured. They are in the state dict, so a resumed run
    continues exactly. 512 samples of 40 labels of two classes and 64 features each take 5.6 MB. Only features have no
    buffer until ``prepare`` or the first batch gives their shape. That must happen before a capture, for example in its
    warm-up. Of a batch larger than ``samples`` the last ones are stored. Samples seen more than ``age`` batches ago are
    ignored.

    >>> memory = Memory(2, [3])
    >>> memory(torch.zeros(2, 3), torch.tensor([[0], [1]]))[1].tolist()
    [[0], [1], [-1], [-1]]
    >>> memory(torch.zeros(1, 3), torch.tensor([[2]]))[1].tolist()
    [[2], [0], [1]]
    """

    # All zeros is the empty memory. A capture resets to it after its warm-up.
    scores: Tensor  # (M, K)
    classes: Tensor  # (M, A) targets + 1, 0 where missing
    ages: Tensor  # (M,) batches since the sample was seen, including its own; 0 for an empty slot
    place: Tensor  # () slot of the next sample
    features: Tensor | None  # (M, D) or (M, A, D)

    def __init__(self, samples: int, sizes: Sizes, age: int | None = None) -> None:
        super().__init__()
        check.raise_all(
            [
                check.count("memory", samples),
                check.that("memory_age", age, "a positive integer or None", age is None or check.is_count(age)),
            ]
        )
        known = columns.as_sizes(sizes)
        self.samples, self.age = samples, age
        self.register_buffer("scores", torch.zeros(samples, sum(known)))
        self.register_buffer("classes", torch.zeros(samples, len(known), dtype=torch.int64))
        self.register_buffer("ages", torch.zeros(samples, dtype=torch.int64))
        self.register_buffer("place", torch.zeros((), dtype=torch.int64))
        self.register_buffer("features", None)

    def forward(
        self, scores: Tensor, targets: Tensor, features: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the batch and the stored samples. In a step of training, store the batch."""
        joined = self.joined(scores, targets, features)
        if in_training(self):
            self.remember(scores, targets, features)
        return joined

    def joined(
        self, scores: Tensor, targets: Tensor, features: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return scores ``(N + M, K)``, targets ``(N + M, A)`` and features: the batch, then the memory slot by slot.

        Empty and too old slots have the targets -1.
        """
        remembered = self.classes - 1
        if self.age is not None:
            remembered = remembered.masked_fill(self.ages[:, None] > self.age, -1)
        return (
            _behind(scores, self.scores),
            torch.cat([targets, remembered]),
            None if features is None else _behind(features, self.prepare(features)),
        )

    def remember(self, scores: Tensor, targets: Tensor, features: Tensor | None = None) -> None:
        """Store a batch in place of the oldest samples. All others become one batch older."""
        last = slice(-self.samples, None)
        rows = targets[last].shape[0]
        slots = (self.place + torch.arange(rows, device=self.place.device)) % self.samples
        self.ages.add_(self.ages > 0).index_fill_(0, slots, 1)
        self.classes.index_copy_(0, slots, targets[last].clamp(min=-1) + 1)
        _store(self.scores, slots, scores[last])
        if features is not None:
            _store(self.prepare(features), slots, features[last])
        self.place.add_(rows).remainder_(self.samples)

    def prepare(self, features: Tensor) -> Tensor:
        """Return the stored features ``(M, ...)``. The first call, which gives their shape, creates them.

        The first batch calls it too. An earlier call saves a compiled loss its second compilation.
        """
        shape = (self.samples, *features.shape[1:])
        if self.features is None:
            with torch.inference_mode(False):  # so that training can use a memory first joined in evaluation
                self.features = torch.zeros(shape, dtype=self.scores.dtype, device=features.device)
        if self.features.shape != shape:
            wanted = f"{tuple(self.features.shape[1:])} for each sample, as in memory"
            check.fail("features", wanted, f"{tuple(features.shape[1:])}")
        return self.features

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        """Load another memory's samples, even before a batch has given the shape of features."""
        saved = state_dict.get(f"{prefix}features")
        if saved is not None and self.features is None:
            self.features = torch.zeros_like(saved, dtype=self.scores.dtype, device=self.scores.device)
        super()._load_from_state_dict(state_dict, prefix, *others)

    def extra_repr(self) -> str:
        return f"samples={self.samples}, age={self.age}"


def make_memory(samples: int, sizes: Sizes | None, age: int | None) -> Memory | None:
    """Return a memory of so many samples, or None for 0. Only then may ``sizes`` be None."""
    if samples == 0:
        if age is not None:
            check.fail("memory", "given together with memory_age", samples)
        return None
    if sizes is None:
        check.fail("sizes", "given together with memory, which stores a score for each class", "None")
    return Memory(samples, sizes, age)


def _behind(batch: Tensor, remembered: Tensor) -> Tensor:
    return torch.cat([batch, remembered.to(batch.dtype)])


def _store(kept: Tensor, slots: Tensor, batch: Tensor) -> None:
    kept.index_copy_(0, slots, batch.detach().to(kept.dtype))
