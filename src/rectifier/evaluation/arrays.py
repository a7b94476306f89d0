"""Tensors from whatever holds numbers, and results in the type that came in."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from rectifier._base import check


def as_tensor(what: str, value: Any, device: torch.device | None = None) -> Tensor:
    """Return a tensor as it is; an array, nested lists, or the ``logits`` of a model's output as one.

    Lists and arrays go to ``device``; tensors stay where they are.

    >>> as_tensor("logits", [[0.5, 1.0]]).dtype, as_tensor("targets", [0, 1]).dtype
    (torch.float64, torch.int64)
    """
    if isinstance(value, Tensor):
        return value
    if isinstance(logits := getattr(value, "logits", None), Tensor):
        return logits
    wanted = "a tensor, an array or lists of numbers"
    try:
        array = np.asarray(value)
    except ValueError:
        check.fail(what, wanted, "rows of different lengths")
    if array.dtype.kind not in "fiub":
        raise TypeError(check.sentence(what, wanted, type(value).__name__))
    # A copy in plain order: PyTorch refuses reversed and foreign byte order, and warns of arrays that are read-only.
    return torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("="), order="C")).to(device)


def as_given(found: Tensor, given: Any) -> Any:
    """Return a result as a list for lists, as an array for an array, otherwise as the tensor it is."""
    if isinstance(given, Tensor) or isinstance(getattr(given, "logits", None), Tensor):
        return found
    plain = found.detach().cpu()
    return plain.tolist() if isinstance(given, list | tuple) else plain.numpy()
