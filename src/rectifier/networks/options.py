"""What every network is asked for: the shape of its images, and the options that many share."""

from __future__ import annotations

from collections.abc import Sequence

from rectifier._base import check

Shape = tuple[int, ...]

Widths = int | Sequence[int]
"""The widths of fully connected layers: several, one, or 0 for none."""

CLASSIFIERS = ("linear", "cosine")
"""The classifiers that a head may end in: weight and bias, or the scaled cosine of features and weights."""


def image_shape(network: str, shape: Sequence[int], smallest: int = 1) -> tuple[int, int, int]:
    """Return ``(H, W, C)`` if these are images that the network can take."""
    given = tuple(shape) if isinstance(shape, Sequence) else shape
    if not (isinstance(given, tuple) and len(given) == 3 and all(map(check.is_count, given)) and given[2] in (1, 3)):
        check.fail("shape", "(height, width, channels) of the images, with 1 or 3 channels", repr(given))
    height, width, channels = map(int, given)
    if min(height, width) < smallest:
        check.fail(f"images for {network}", f"at least {smallest} x {smallest}", f"{height} x {width}")
    return height, width, channels


def as_widths(widths: Widths) -> tuple[int, ...]:
    """Bring every way of giving widths to one tuple.

    >>> as_widths(64), as_widths([512, 128]), as_widths(0)
    ((64,), (512, 128), ())
    """
    if isinstance(widths, Sequence):
        return tuple(map(int, widths))
    return (int(widths),) if widths else ()


def widths_complaint(what: str, widths: object) -> str | None:
    listed = isinstance(widths, Sequence) and not isinstance(widths, str) and all(map(check.is_count, widths))
    none = widths == 0 and not isinstance(widths, bool)
    return check.that(
        what, widths, "a width, a list of widths, or 0 for none", listed or none or check.is_count(widths)
    )


def dropout_complaint(dropout: object) -> str | None:
    wanted = "a number from 0 and below 1"
    return check.that("dropout", dropout, wanted, check.is_real(dropout) and 0 <= dropout < 1)


def classifier_complaint(classifier: object) -> str | None:
    return check.choice("classifier", classifier, CLASSIFIERS)


def head_complaints(branch: object, dropout: object, classifier: object) -> list[str | None]:
    return [widths_complaint("branch", branch), dropout_complaint(dropout), classifier_complaint(classifier)]


def count_complaint(what: str, value: object) -> str | None:
    return check.that(what, value, "a positive integer", check.is_count(value))
