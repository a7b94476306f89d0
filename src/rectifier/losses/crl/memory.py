"""Recent samples, remembered: a class that every batch shows once has company among the batches before."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from rectifier._base import check
from rectifier.labels import columns
from rectifier.labels.columns import Sizes


class Memory(nn.Module):
    """Remember the last samples, so that they are mined and compared beside the samples of a batch.

    Called as ``memory(scores, targets, features)``. Returns the batch with all that is remembered behind it, then, in
    training mode, remembers the batch in place of the oldest samples. What is remembered has no gradient and is as it
    was when it was seen: the network has learnt since.

    All is kept in buffers of fixed size, so a step can be captured, and in the state dict, so a resumed run goes on
    exactly. A sample takes 4 bytes for each of the K scores, 8 for each of the A targets, 8 for its age and 4 for each
    feature: 512 samples of 40 labels of two classes and 64 features each take 5.6 MB. Only features have no buffer
    before ``prepare`` or the first batch shows their shape: that must be before a capture, as in its warm-up.

    Args:
        samples: How many samples are remembered; of a batch with more, the last ones.
        sizes: Classes of each label, or a LabelSpace.
        age: Samples seen more than so many batches ago count no more. None: they count as long as there is room.

    >>> memory = Memory(2, [3])
    >>> memory(torch.zeros(2, 3), torch.tensor([[0], [1]]))[1].tolist()
    [[0], [1], [-1], [-1]]
    >>> memory(torch.zeros(1, 3), torch.tensor([[2]]))[1].tolist()
    [[2], [0], [1]]
    """

    # All zeros is the empty memory, to which a capture brings back what its warm-up has made.
    scores: Tensor  # (M, K)
    classes: Tensor  # (M, A) targets + 1, 0 where missing
    ages: Tensor  # (M,) batches since the sample was seen, itself included; 0 where there is none
    place: Tensor  # () where the next sample goes
    features: Tensor | None  # (M, D) or (M, A, D)

    def __init__(self, samples: int, sizes: Sizes, age: int | None = None) -> None:
        super().__init__()
        check.raise_all(
            [
                check.that("memory", samples, "a positive integer", check.is_count(samples)),
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
        """Return the batch and what is remembered; in training mode remember the batch, too."""
        joined = self.joined(scores, targets, features)
        if self.training:
            self.remember(scores, targets, features)
        return joined

    def joined(
        self, scores: Tensor, targets: Tensor, features: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return scores ``(N + M, K)``, targets ``(N + M, A)`` and features: the batch, then the memory slot by slot.

        Slots that are empty or too old have no label: their targets are -1.
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
        """Put a batch in the place of the oldest samples; all others are one batch older then."""
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
        """Return the remembered features ``(M, ...)``; the first time, when their shape becomes known, make them.

        The first batch does it, too. Called before it, a compiled loss is compiled once and not twice.
        """
        shape = (self.samples, *features.shape[1:])
        if self.features is None:
            with torch.inference_mode(False):  # or a memory first joined in evaluation could not be used in training
                self.features = torch.zeros(shape, dtype=self.scores.dtype, device=features.device)
        if self.features.shape != shape:
            wanted = "of the shape of those that are remembered, " + _each(self.features)
            check.fail("features", wanted, _each(features))
        return self.features

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        """Load what another has remembered, also before a batch has shown the shape of features."""
        saved = state_dict.get(f"{prefix}features")
        if saved is not None and self.features is None:
            self.features = torch.zeros_like(saved, dtype=self.scores.dtype, device=self.scores.device)
        super()._load_from_state_dict(state_dict, prefix, *others)

    def extra_repr(self) -> str:
        return f"samples={self.samples}, age={self.age}"


def make_memory(samples: int, sizes: Sizes | None, age: int | None) -> Memory | None:
    """Return a memory of so many samples, or None for 0 of them; ``sizes`` may be None there alone."""
    if samples == 0:
        if age is not None:
            check.fail("memory", "given together with memory_age", samples)
        return None
    if sizes is None:
        check.fail("sizes", "given together with memory, which keeps a score for each class", "None")
    return Memory(samples, sizes, age)


def _behind(batch: Tensor, remembered: Tensor) -> Tensor:
    return torch.cat([batch, remembered.to(batch.dtype)])


def _store(kept: Tensor, slots: Tensor, batch: Tensor) -> None:
    kept.index_copy_(0, slots, batch.detach().to(kept.dtype))


def _each(features: Tensor) -> str:
    return f"{tuple(features.shape[1:])} for each sample"
