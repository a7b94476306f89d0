"""A page of Markdown on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markdown import Markdown, TableElement
from rich.table import Table


class _WholeTable(TableElement):
    """A table that breaks a word where the terminal is narrow: cut off, a number is another one."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        for part in super().__rich_console__(console, options):
            if isinstance(part, Table):
                for column in part.columns:
                    column.overflow = "fold"
            yield part  # type: ignore[misc]


class Page(Markdown):
    """Markdown, of which nothing is left out."""

    elements: ClassVar = {**Markdown.elements, "table_open": _WholeTable}
