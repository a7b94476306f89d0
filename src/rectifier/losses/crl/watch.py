"""Warn when most batches have nothing to mine."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

WATCHED = 64
"""Batches until the warning. Fewer would warn of a bad start."""


class MiningWatch:
    """Count the batches in which no label has anything to mine, and warn once if most of the first ones are such.

    A loss must not wait for its device. So the count stays there, is copied to the host in the background, and is read
    when it has arrived. Captured, compiled and transformed steps are not watched.
    """

    def __init__(self) -> None:
        self._batches = 0
        self._unmined: Tensor | None = None  # on the device, then on the host; -1 until the copy has arrived

    def __call__(self, comparisons: Tensor, alpha: Tensor) -> None:
        """Note the comparisons ``(A,)`` of a batch. Labels that are not rectified (alpha = 0) do not count."""
        if torch.compiler.is_compiling() or self._batches < 0 or _cannot_be_read(comparisons):
            return
        self._batches += 1
        if self._batches <= WATCHED:
            rectified = alpha > 0
            unmined = (rectified.any() & ~(rectified & (comparisons > 0)).any()).long()
            self._unmined = unmined if self._unmined is None else self._unmined.to(unmined.device) + unmined
        if self._batches == WATCHED and self._unmined is not None:
            self._unmined = _to_host(self._unmined)
        if self._batches >= WATCHED and self._unmined is not None and int(self._unmined) >= 0:
            self._finish(int(self._unmined))

    def _finish(self, unmined: int) -> None:
        self._batches, self._unmined = -1, None
        if unmined > WATCHED / 2:
            warnings.warn(
                f"The Class Rectification Loss found nothing to mine in {unmined} of {WATCHED} batches. A class is"
                " mined only if a batch has two samples of it and it is in the minority. Use larger batches,"
                " gather=True on several devices, memory=, a class-balanced sampler, or full_if_unmined=True."
                " mining_rates(class_counts, batch_size) tells which classes a batch size reaches.",
                stacklevel=4,
            )


def _cannot_be_read(tensor: Tensor) -> bool:
    """Tell whether a CUDA graph is captured, or ``torch.func`` transforms the loss."""
    transformed: bool = torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    return transformed or (tensor.is_cuda and torch.cuda.is_current_stream_capturing())


def _to_host(count: Tensor) -> Tensor:
    if not count.is_cuda:
        return count.cpu()
    return torch.full_like(count, -1, device="cpu").pin_memory().copy_(count, non_blocking=True)
