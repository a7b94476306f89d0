from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from rectifier.report.terminal_markdown import Page

TABLE = """
| | preferred, gain | validation |
|---|---:|---:|
| Threshold-Adjustment | +12.34 ± 5.67 | 8765.4321 |
"""


@pytest.mark.parametrize("width", [30, 40, 80])
def test_nothing_of_a_table_is_cut_off(width: int) -> None:
    console = Console(width=width, file=StringIO())
    console.print(Page(TABLE))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "…" not in shown
    letters = sorted("".join(TABLE.replace("|", "").replace("-", "").replace(":", "").split()))
    assert sorted("".join(shown.replace("─", "").replace("-", "").split())) == letters
