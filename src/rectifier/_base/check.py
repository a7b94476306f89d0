"""Error sentences, and the argument checks that several rooms share.

Most messages have one form: *Expected X to be ..., but got ...*. They name the label, row or option, and the nearest
valid name where one is misspelt. Wrong values raise ``ValueError``, wrong types ``TypeError``.

A check of an option returns its complaint, or None. ``raise_all`` raises all complaints of a call together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches
from numbers import Integral, Real
from typing import NoReturn, TypeGuard

import numpy as np
import torch
from torch import Tensor


def fail(what: str, wanted: str, got: object) -> NoReturn:
    """Raise ``ValueError`` with the sentence *Expected what to be wanted, but got got*."""
    raise ValueError(sentence(what, wanted, got))


def sentence(what: str, wanted: str, got: object) -> str:
    return f"Expected {what} to be {wanted}, but got {got}."


def no_file(what: object, hint: str = "") -> NoReturn:
    """Raise ``FileNotFoundError`` for a missing file or folder, with a hint where to get it."""
    raise FileNotFoundError(f"{what} does not exist. {hint}".rstrip())


def amount(count: int, noun: str) -> str:
    """Write a number of things, with the plural of the noun.

    >>> amount(1, "image"), amount(2000, "class"), amount(3, "entry")
    ('1 image', '2,000 classes', '3 entries')
    """
    if count == 1:
        return f"1 {noun}"
    plural = f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{count:,} {plural}"


def nearest(value: object, valid: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` with the closest valid name, or an empty string when none is close."""
    names = list(valid)
    swapped = [name for name in names if sorted(name) == sorted(str(value))]  # two letters in the wrong order
    close = swapped or get_close_matches(str(value), names, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def options_of(
    owner: str, given: Iterable[str], valid: Collection[str], error: type[ValueError | TypeError] = ValueError
) -> None:
    """Raise an error for the first option that ``owner`` does not take, with the nearest that it does."""
    for name in given:
        if name not in valid:
            problem = sentence(f"every option of {owner}", f"among {', '.join(valid) or 'none'}", repr(name))
            raise error(problem + nearest(name, valid))


def raise_all(complaints: Iterable[str | None]) -> None:
    """Raise one ``ValueError`` with all complaints, so that a user sees every wrong option at once."""
    if found := [complaint for complaint in complaints if complaint]:
        raise ValueError("\n".join(found))


def that(what: str, value: object, wanted: str, ok: bool) -> str | None:
    """Return the complaint about an option whose test ``ok`` is false."""
    return None if ok else sentence(what, wanted, repr(value))


def choice(what: str, value: object, valid: Sequence[str], listed_by: str = "") -> str | None:
    """Return the complaint about an option that takes one of some names; ``listed_by`` holds them if they are many."""
    if listed_by and value not in valid:
        return f"No {what} {value!r}.{nearest(value, valid)} {listed_by} lists them."
    complaint = that(what, value, f"one of {', '.join(map(repr, valid))}", value in valid)
    return complaint and complaint + nearest(value, valid)


def switch(what: str, value: object) -> str | None:
    return that(what, value, "True or False", isinstance(value, bool))


def count(what: str, value: object) -> str | None:
    return that(what, value, "a positive integer", is_count(value))


def positive(what: str, value: object) -> str | None:
    return that(what, value, "a positive number", is_real(value) and value > 0)


def not_negative(what: str, value: object) -> str | None:
    return that(what, value, "a number of at least 0", is_real(value) and value >= 0)


def below_one(what: str, value: object) -> str | None:
    return that(what, value, "a number from 0 and below 1", is_real(value) and 0 <= value < 1)


def portion(what: str, value: object) -> str | None:
    return that(what, value, "a share from 0 to 1", is_real(value) and 0 <= value <= 1)


def share(what: str, value: object) -> str | None:
    return that(what, value, "a number above 0 and at most 1", is_real(value) and 0 < value <= 1)


def is_real(value: object) -> TypeGuard[float]:
    """Tell whether the value is a finite number. NumPy numbers are, booleans are not."""
    return isinstance(value, Real) and not isinstance(value, bool) and bool(value - value == 0)  # not nan, not inf


def is_natural(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 0


def is_count(value: object) -> bool:
    return is_natural(value) and value != 0


def logits(value: object) -> Tensor:
    tensor = _float_tensor("logits", value)
    if tensor.dim() != 2:
        fail("logits", "of shape (N, K)", f"shape {tuple(tensor.shape)}")
    return tensor


def logits_columns(value: Tensor, sizes: Sequence[int]) -> None:
    if value.shape[1] != sum(sizes):
        listed = str(list(sizes)) if len(sizes) <= 12 else f"{len(sizes)} labels"
        fail("logits", f"of shape (N, {sum(sizes)}) for sizes {listed}", f"shape {tuple(value.shape)}")


def targets(value: object, labels: int) -> Tensor:
    """Return ``targets`` as int64 ``(N, A)`` if type and shape fit. A single label may come as ``(N,)``."""
    value = as_tensor("targets", value)
    if value.dtype not in _INTEGERS:
        raise TypeError(sentence("targets", "an integer tensor of class indices", _kind(value)) + _FLOAT_TARGETS)
    column = value[:, None] if value.dim() == 1 and labels == 1 else value
    if column.dim() != 2 or column.shape[1] != labels:
        wanted = "of shape (N,) or (N, 1)" if labels == 1 else f"of shape (N, {labels}), one column per label"
        hint = " For several labels pass sizes. For one-hot rows pass targets.argmax(1)." if labels == 1 else ""
        raise ValueError(sentence("targets", wanted, f"shape {tuple(value.shape)}") + hint)
    return column.long()


def as_tensor(what: str, value: object) -> Tensor:
    """Return a tensor, array or list of numbers as a tensor."""
    if isinstance(value, Tensor):
        return value
    try:
        if isinstance(value, (str, bytes)) or not (hasattr(value, "__array__") or isinstance(value, Sequence)):
            raise TypeError
        return torch.as_tensor(np.array(value) if hasattr(value, "__array__") else value)  # a copy may be written to
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(sentence(what, "a tensor, an array or a list of numbers", _kind(value))) from None


def target_range(value: Tensor, limit: Tensor, names: Sequence[str] | None = None) -> None:
    """Check that every target ``(N, A)`` is below its label's number of classes, ``limit`` ``(A,)``.

    A target out of range would point into the columns of the next label. On the CPU the check reads the values.
    On another device, or in a compiled graph, reading would stall the device: there it is an asynchronous assertion.
    """
    if _all_true((value < limit).all(), "Expected every target to be below its label's number of classes."):
        return
    row, label = (value >= limit).nonzero()[0].tolist()
    name = f" of label {names[label]!r}" if names else f" of label {label}" if len(limit) > 1 else ""
    wanted = f"below {int(limit[label])}, its number of classes (negative where missing)"
    fail(f"targets{name}", wanted, f"{int(value[row, label])} in row {row}")


def within(what: str, value: Tensor, low: float, high: float) -> None:
    """Check that every value is from ``low`` to ``high``, on each device as in ``target_range``."""
    inside = (value >= low) & (value <= high)
    wanted = f"from {low:g} to {high:g}"
    if not _all_true(inside.all(), f"Expected {what} to be {wanted}."):
        fail(what, wanted, f"{value[~inside].flatten()[0].item():g}")


def same_length(what: str, value: Tensor, other: str, reference: Tensor) -> None:
    if value.shape[0] != reference.shape[0]:
        fail(what, f"as long as {other} ({reference.shape[0]} samples)", f"{value.shape[0]}")


def same_device(what: str, value: Tensor, other: str, reference: Tensor) -> None:
    if value.device != reference.device:
        fail(what, f"on {reference.device}, the device of {other}", f"{value.device}")


def features(value: object, reference: Tensor, labels: int) -> Tensor:
    """Return ``features`` if it is a float tensor ``(N, D)`` or ``(N, A, D)`` that fits the logits ``reference``."""
    if value is None:
        fail("features", "given (shape (N, D) or (N, A, D)), because this loss compares features", "None")
    tensor = _float_tensor("features", value)
    if tensor.dim() not in (2, 3) or (tensor.dim() == 3 and tensor.shape[1] not in (1, labels)):
        fail("features", f"of shape (N, D) or (N, {labels}, D)", f"shape {tuple(tensor.shape)}")
    same_length("features", tensor, "logits", reference)
    same_device("features", tensor, "logits", reference)
    return tensor


_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
_FLOAT_TARGETS = (
    " Binary labels are class indices too: one column per label with 0 or 1, negative where missing"
    " (targets.long()). For one-hot rows pass targets.argmax(1)."
)


def _float_tensor(what: str, value: object) -> Tensor:
    if not isinstance(value, Tensor) or not value.is_floating_point():
        raise TypeError(sentence(what, "a floating point tensor", _kind(value)))
    return value


def _all_true(condition: Tensor, message: str) -> bool:
    """Return whether the condition holds. Where reading it would stall, assert it on the device and return True.

    In a function that ``torch.func`` transforms, raise: there a caller cannot look up which value is wrong.
    """
    if torch.compiler.is_compiling():
        torch._assert_async(condition, message)
        return True
    plain = condition
    while torch._C._functorch.is_functorch_wrapped_tensor(plain):
        plain = torch._C._functorch.get_unwrapped(plain)
    plain = plain if plain is condition else plain.all()
    if plain.device.type != "cpu":
        torch._assert_async(plain, message)
        return True
    holds = bool(plain)
    if not holds and plain is not condition:
        raise ValueError(message)
    return holds


def _kind(value: object) -> str:
    return f"a {value.dtype} tensor" if isinstance(value, Tensor) else type(value).__name__
