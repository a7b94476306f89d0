"""Options that all networks share, and the checks of them."""

from __future__ import annotations

from collections.abc import Sequence

from rectifier._base import check

Shape = tuple[int, ...]

Widths = int | Sequence[int]
"""Widths of fully connected layers: several, one, or 0 for no layer."""


def image_shape(network: str, shape: Sequence[int], smallest: int = 1) -> tuple[int, int, int]:
    """Return ``(H, W, C)`` if the network can take such images."""
    given = tuple(shape) if isinstance(shape, Sequence) else shape
    if not (isinstance(given, tuple) and len(given) == 3 and all(map(check.is_count, given)) and given[2] in (1, 3)):
        check.fail("shape", "(height, width, channels) of the images, with 1 or 3 channels", repr(given))
    height, width, channels = map(int, given)
    if min(height, width) < smallest:
        check.fail(f"images for {network}", f"at least {smallest} x {smallest}", f"{height} x {width}")
    return height, width, channels


def as_widths(widths: Widths) -> tuple[int, ...]:
    """Return widths in any form as a tuple.

    >>> as_widths(64), as_widths([512, 128]), as_widths(0)
    ((64,), (512, 128), ())
    """
    if isinstance(widths, Sequence):
        return tuple(map(int, widths))
    return (int(widths),) if widths else ()


def widths_complaint(what: str, widths: object) -> str | None:
    listed = isinstance(widths, Sequence) and not isinstance(widths, str) and all(map(check.is_count, widths))
    return check.that(what, widths, "a width, a list of widths, or 0 for none", listed or check.is_natural(widths))


def check_options(branch: object, dropout: object, classifier: object, *own: str | None) -> None:
    """Raise all complaints about the options of a head together with a network's own."""
    known = check.choice("classifier", classifier, ("linear", "cosine"))
    check.raise_all([*own, widths_complaint("branch", branch), check.below_one("dropout", dropout), known])
