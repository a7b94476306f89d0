"""Messages and progress bars of long work, on stderr.

``with quiet():`` silences both, and so does the environment variable ``RECTIFIER_QUIET``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, Task

_silenced = 0


def is_quiet() -> bool:
    return _silenced > 0 or bool(os.environ.get("RECTIFIER_QUIET"))


@contextmanager
def quiet() -> Iterator[None]:
    """Print no message and show no progress bar inside this block."""
    global _silenced
    _silenced += 1
    try:
        yield
    finally:
        _silenced -= 1


def say(text: str) -> None:
    """Print one line."""
    if not is_quiet():
        from rich.console import Console

        Console(stderr=True, highlight=False).print(text, markup=False, soft_wrap=True)


@contextmanager
def progress(unit: str = "") -> Iterator[Progress]:
    """Show a progress bar with the time left, and the speed if it has a ``unit``, such as images/s."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class Speed(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{task.speed:,.0f} {unit}" if task.speed else "")

    columns = [TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn(), TimeRemainingColumn()]
    console = Console(stderr=True)
    off = is_quiet() or not console.is_terminal
    with Progress(*columns, *([Speed()] if unit else []), console=console, disable=off, transient=True) as display:
        yield display
