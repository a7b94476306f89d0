"""The form of every sentence that tells a user what is wrong, and the checks that several rooms share.

One form everywhere: *Expected X to be ..., but got ...*, with the label, row or option it is about and, where a
name is misspelt, the nearest valid one. Values give ``ValueError``, types ``TypeError``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches
from math import isfinite
from numbers import Integral, Real
from typing import NoReturn, TypeGuard

import torch
from torch import Tensor


def fail(what: str, wanted: str, got: object) -> NoReturn:
    """Raise the one error sentence for a wrong value."""
    raise ValueError(sentence(what, wanted, got))


def sentence(what: str, wanted: str, got: object) -> str:
    return f"Expected {what} to be {wanted}, but got {got}."


def amount(count: int, noun: str) -> str:
    """Write a number of things.

    >>> amount(1, "image"), amount(2000, "class"), amount(3, "entry")
    ('1 image', '2,000 classes', '3 entries')
    """
    if count == 1:
        return f"1 {noun}"
    plural = f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{count:,} {plural}"


def no_file(what: str, wanted: str, hint: str) -> NoReturn:
    """Raise the one error sentence for a file or folder that is not there, with where to get it."""
    raise FileNotFoundError(f"{sentence(what, wanted, 'nothing there')} {hint}".rstrip())


def nearest(value: object, valid: Iterable[str]) -> str:
    """``" Did you mean 'x'?"`` for the closest valid name, or nothing when none is close."""
    names = list(valid)
    swapped = [name for name in names if sorted(name) == sorted(str(value))]  # two letters in the wrong order
    close = swapped or get_close_matches(str(value), names, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def choice(what: str, value: object, valid: Sequence[str]) -> str | None:
    """Return the complaint about an option that takes one of a few names, or None when it is fine."""
    if value in valid:
        return None
    wanted = f"one of {', '.join(map(repr, valid))}"
    return sentence(what, wanted, repr(value)) + nearest(value, valid)


def that(what: str, value: object, wanted: str, ok: bool) -> str | None:
    """Return the complaint about a numeric option whose test ``ok`` came out false."""
    return None if ok else sentence(what, wanted, repr(value))


def option_names(given: Iterable[str], valid: Iterable[str]) -> None:
    """Raise ``TypeError`` for a keyword that is no option, naming the nearest that is."""
    unknown = [name for name in given if name not in set(valid)]
    if unknown:
        wanted = f"among {', '.join(valid)}"
        raise TypeError(sentence("every option", wanted, repr(unknown[0])) + nearest(unknown[0], valid))


def options_of(owner: str, given: Iterable[str], valid: Collection[str]) -> None:
    """Raise ``ValueError`` for an option that ``owner`` does not take, naming the nearest that it does."""
    unknown = [name for name in given if name not in valid]
    if unknown:
        wanted = f"among {', '.join(valid) or 'none'}"
        raise ValueError(sentence(f"every option of {owner}", wanted, repr(unknown[0])) + nearest(unknown[0], valid))


def raise_all(complaints: Iterable[str | None]) -> None:
    """Raise every complaint at once, so that nobody mends their call one option at a time."""
    found = [complaint for complaint in complaints if complaint]
    if found:
        raise ValueError("\n".join(found))


def is_real(value: object) -> TypeGuard[float]:
    """Say whether the value is a finite number; NumPy's count, booleans do not."""
    return isinstance(value, Real) and not isinstance(value, bool) and isfinite(value)


def is_count(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1


def is_natural(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 0


def portion(what: str, value: object) -> str | None:
    """Return the complaint about a share from 0 to 1, both among them, or None when it is one."""
    return that(what, value, "a share from 0 to 1", is_real(value) and 0 <= value <= 1)


def share(what: str, value: object) -> str | None:
    """Return the complaint about an option that must lie above 0 and at most at 1."""
    return that(
        what,
        value,
        "a number above 0 and at most 1",
        is_real(value) and 0 < value <= 1,
    )


def logits(value: object) -> Tensor:
    """Return ``logits`` if it is a float tensor ``(N, K)``."""
    if not isinstance(value, Tensor) or not value.is_floating_point():
        raise TypeError(sentence("logits", "a floating point tensor", _kind(value)))
    if value.dim() != 2:
        fail("logits", "of shape (N, K)", f"shape {tuple(value.shape)}")
    return value


def logits_columns(value: Tensor, sizes: Sequence[int]) -> None:
    """Check that ``logits`` has one column per class."""
    if value.shape[1] != sum(sizes):
        listed = str(list(sizes)) if len(sizes) <= 12 else f"{len(sizes)} labels"
        fail("logits", f"of shape (N, {sum(sizes)}) for sizes {listed}", f"shape {tuple(value.shape)}")


def targets(value: object, labels: int) -> Tensor:
    """Check type and shape of ``targets`` and return it as int64 ``(N, A)``; one label may come as ``(N,)``."""
    if not isinstance(value, Tensor):
        raise TypeError(
            sentence("targets", "an integer tensor of class indices", _kind(value)) + " torch.as_tensor makes one."
        )
    if value.dtype not in _INTEGERS:
        raise TypeError(
            sentence("targets", "an integer tensor of class indices", _kind(value))
            + " Binary labels are class indices too: one column a label, 0 or 1, negative where missing"
            + " (targets.long()); one-hot rows become indices by targets.argmax(1)."
        )
    column = value[:, None] if value.dim() == 1 and labels == 1 else value
    if column.dim() != 2 or column.shape[1] != labels:
        wanted = "of shape (N,) or (N, 1)" if labels == 1 else f"of shape (N, {labels}), one column a label"
        hint = (
            " For several labels pass sizes; one-hot rows become indices by targets.argmax(1)." if labels == 1 else ""
        )
        raise ValueError(sentence("targets", wanted, f"shape {tuple(value.shape)}") + hint)
    return column.long()


def target_range(value: Tensor, limit: Tensor, names: Sequence[str] | None = None) -> None:
    """Check that every target ``(N, A)`` lies below its label's number of classes, ``limit`` ``(A,)``.

    An out-of-range target would point into the next label's columns, so it must never pass. On the CPU the check may
    look at the values; elsewhere, and in a compiled graph, looking would stall the device, so it asserts there.
    """
    inside = (value < limit).all()
    if value.device.type != "cpu" or torch.compiler.is_compiling():
        torch._assert_async(inside, "Expected every target to be below its label's number of classes.")
        return
    if bool(inside):
        return
    row, label = (value >= limit).nonzero()[0].tolist()
    name = f" of label {names[label]!r}" if names else f" of label {label}" if len(limit) > 1 else ""
    wanted = f"below {int(limit[label])}, its number of classes (negative where missing)"
    fail(f"targets{name}", wanted, f"{int(value[row, label])} in row {row}")


def within(what: str, value: Tensor, low: float, high: float) -> None:
    """Check that every value lies from ``low`` to ``high``; looked at on the CPU alone, as in ``target_range``."""
    inside = ((value >= low) & (value <= high)).all()
    wanted = f"from {low:g} to {high:g}"
    if value.device.type != "cpu" or torch.compiler.is_compiling():
        torch._assert_async(inside, f"Expected {what} to be {wanted}.")
    elif not bool(inside):
        outside = value[~((value >= low) & (value <= high))]
        fail(what, wanted, f"{outside.flatten()[0].item():g}")


def same_length(what: str, value: Tensor, other: str, reference: Tensor) -> None:
    if value.shape[0] != reference.shape[0]:
        fail(what, f"as long as {other} ({reference.shape[0]} samples)", f"{value.shape[0]}")


def same_device(what: str, value: Tensor, other: str, reference: Tensor) -> None:
    if value.device != reference.device:
        fail(what, f"on {reference.device}, where {other} is", f"{value.device}")


def features(value: object, reference: Tensor, labels: int) -> Tensor:
    """Return ``features`` if it is there and is a float tensor ``(N, D)`` or ``(N, A, D)``."""
    if value is None:
        fail("features", "given for level='instance' (shape (N, D) or (N, A, D))", "None")
    if not isinstance(value, Tensor) or not value.is_floating_point():
        raise TypeError(sentence("features", "a floating point tensor", _kind(value)))
    if value.dim() not in (2, 3) or (value.dim() == 3 and value.shape[1] not in (1, labels)):
        fail("features", f"of shape (N, D) or (N, {labels}, D)", f"shape {tuple(value.shape)}")
    same_length("features", value, "logits", reference)
    same_device("features", value, "logits", reference)
    return value


_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def _kind(value: object) -> str:
    return f"a {value.dtype} tensor" if isinstance(value, Tensor) else type(value).__name__
