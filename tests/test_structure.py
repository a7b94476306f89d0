"""Rooms and the direction of imports: a module may import from its own room and from rooms below it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "rectifier"

# From top to bottom. Rooms in one row do not import each other.
ROWS = [
    ["__main__"],
    ["cli"],
    ["reproduce"],
    ["report", "compare", "estimator", "prediction"],
    ["training"],
    ["engine", "runs"],
    ["presets"],
    ["config"],
    ["methods", "data", "networks", "evaluation", "decisions"],
    ["quintuplets"],
    ["losses", "samplers", "mixing", "posthoc", "calibration", "decoupling", "clusters", "neighbours", "support"],
    ["kmeans"],
    ["metrics"],
    ["imbalance"],
    ["columns"],
    ["labels"],
    ["check", "console", "atomic", "distances"],
]
HEIGHT = {room: -row for row, rooms in enumerate(ROWS) for room in rooms}


def imported_rooms(text: str, package: tuple[str, ...]) -> set[str]:
    """Return the rooms that a module inside ``package`` (its folders below rectifier) imports."""
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            up = ("rectifier", *package)[: 1 + len(package) - node.level + 1] if node.level else ()
            base = ".".join([*up, *([node.module] if node.module else [])])
            names |= {f"{base}.{alias.name}" for alias in node.names}
    parts = [name.split(".") for name in names]
    return {part[1] for part in parts if part[0] == "rectifier" and len(part) > 1}


def wrong_imports(text: str, room: str, package: tuple[str, ...] = ()) -> set[str]:
    # What is no room is a name of the package itself, which stands above all rooms.
    return {r for r in imported_rooms(text, package) if r != room and HEIGHT.get(r, 1) >= HEIGHT[room]}


MODULES = sorted(path for path in SOURCE.rglob("*.py") if path.name != "__init__.py" or path.parent != SOURCE)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_imports_point_downwards(path: Path) -> None:
    inside = path.relative_to(SOURCE)
    room = inside.parts[0].removesuffix(".py")
    assert room in HEIGHT, f"{room} is no room of the design: give it a place in ROWS"
    assert not wrong_imports(path.read_text(), room, inside.parts[:-1])


def test_every_room_is_in_the_table_for_contributors() -> None:
    table = (SOURCE.parents[1] / "CONTRIBUTING.md").read_text()
    first_column = "".join(line.split("|")[1] for line in table.splitlines() if line.startswith("| `"))
    rooms = {room for room in HEIGHT if (SOURCE / room).is_dir() or (SOURCE / f"{room}.py").exists()} - {"__main__"}
    named = {name.rstrip("/").removesuffix(".py") for name in re.findall(r"`(.+?)`", first_column)}
    assert named == rooms


@pytest.mark.parametrize(
    ("text", "room"),
    [
        ("from rectifier.losses.mining import profile", "imbalance"),
        ("from rectifier import losses", "labels"),
        ("import rectifier.samplers", "losses"),
        ("def f():\n    from rectifier.cli import main", "data"),
        ("from . import samplers", "losses"),
        ("from rectifier import LabelSpace", "losses"),
    ],
)
def test_a_wrong_import_is_found(text: str, room: str) -> None:
    assert wrong_imports(text, room)


def test_right_imports_are_left_alone() -> None:
    text = "import torch\nfrom rectifier import check\nfrom rectifier.losses.gather import f\nfrom . import mining"
    assert not wrong_imports(text, "losses", ("losses",))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_the_library_neither_prints_nor_asserts(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        assert not isinstance(node, ast.Assert), f"line {node.lineno}: an assert is no error message"
        assert not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print"), f"line {node.lineno}"
