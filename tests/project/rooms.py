"""The rooms of the package, from top to bottom, and the table of them in CONTRIBUTING.

``python tests/project/rooms.py`` writes the table; what it says of a room is the first line of the room's docstring.
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "rectifier"
PAGE = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- rooms: begin -->", "<!-- rooms: end -->"

# A module imports from its own room and from the rows below it. Rooms in one row do not import each other.
ROWS = [
    ["cli"],
    ["reproduce", "sklearn"],
    ["report"],
    ["training"],
    ["methods"],
    ["networks", "callbacks"],
    ["data", "evaluation"],
    ["samplers"],
    ["losses"],
    ["labels"],
    ["_base"],
]
HEIGHT = {room: -row for row, rooms in enumerate(ROWS) for room in rooms}


def table() -> str:
    lines = ["| room | what it does | what is in it |", "|---|---|---|"]
    lines += [f"| `{room}/` | {_about(SOURCE / room)} | {_inside(SOURCE / room)} |" for room in HEIGHT]
    return "\n".join([BEGIN, *lines, END])


def _about(folder: Path) -> str:
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    return text.partition("\n")[0]


def _inside(folder: Path) -> str:
    folders = sorted(f"`{path.name}/`" for path in folder.iterdir() if (path / "__init__.py").is_file())
    files = sorted(f"`{path.stem}`" for path in folder.glob("*.py") if path.name != "__init__.py")
    return ", ".join([*folders, *files])


def write_table() -> None:
    text = PAGE.read_text()
    before, after = text[: text.index(BEGIN)], text[text.index(END) + len(END) :]
    PAGE.write_text(before + table() + after)


if __name__ == "__main__":
    write_table()
