"""What long work says while it runs: a line here and there, and a progress bar. Everything goes to stderr.

``with quiet():`` silences both, and so does the environment variable ``RECTIFIER_QUIET``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

_silenced = 0


def is_quiet() -> bool:
    return _silenced > 0 or bool(os.environ.get("RECTIFIER_QUIET"))


@contextmanager
def quiet() -> Iterator[None]:
    """Say nothing and show no bar inside this block."""
    global _silenced
    _silenced += 1
    try:
        yield
    finally:
        _silenced -= 1


def say(text: str) -> None:
    """Write one line for the person who waits."""
    if not is_quiet():
        from rich.console import Console

        Console(stderr=True, highlight=False).print(text, markup=False, soft_wrap=True)


@contextmanager
def progress() -> Iterator[Progress]:
    """Give a progress display with bar, share done and time left."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=is_quiet() or not console.is_terminal, transient=True) as display:
        yield display
