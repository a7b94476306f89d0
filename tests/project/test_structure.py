"""Rooms and the direction of imports: a module may import from its own room and from rooms below it."""

from __future__ import annotations

import ast

import pytest

from project.rooms import HEIGHT, PAGE, SOURCE, table


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
    # What is not a room is a name of the package itself, which stands above all rooms.
    return {r for r in imported_rooms(text, package) if r != room and HEIGHT.get(r, 1) >= HEIGHT[room]}


MODULES = sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE)


def test_imports_point_downwards() -> None:
    for path in MODULES:
        inside = path.relative_to(SOURCE)
        wrong = wrong_imports(path.read_text(), inside.parts[0], inside.parts[:-1])
        assert not wrong, f"{inside} imports {', '.join(wrong)}"


def test_the_table_for_contributors_names_every_room_and_file() -> None:
    assert table() in PAGE.read_text(), "run python tests/project/rooms.py"


def test_the_package_contains_only_rooms() -> None:
    there = {path.name for path in SOURCE.iterdir() if path.name != "__pycache__"}
    assert there == {*HEIGHT, "__init__.py", "__main__.py", "py.typed"}


def test_files_and_the_package_stay_small() -> None:
    lines = {path.relative_to(SOURCE): len(path.read_text().splitlines()) for path in SOURCE.rglob("*.py")}
    assert not [path for path, number in lines.items() if number > 350]
    assert sum(lines.values()) <= 31_000  # 24,000 before pretrained networks, cached features and heads on them came


@pytest.mark.parametrize(
    ("text", "room"),
    [
        ("from rectifier.losses.crl.mining import profile", "labels"),
        ("from rectifier import losses", "labels"),
        ("import rectifier.samplers", "losses"),
        ("def f():\n    from rectifier.cli import main", "data"),
        ("from . import samplers", "losses"),
        ("from rectifier import LabelSpace", "losses"),
    ],
)
def test_a_wrong_import_is_found(text: str, room: str) -> None:
    assert wrong_imports(text, room)


def test_allowed_imports_are_accepted() -> None:
    text = (
        "import torch\nfrom rectifier._base import check\nfrom rectifier.losses.gather import f\nfrom . import mining"
    )
    assert not wrong_imports(text, "losses", ("losses",))


def test_the_library_neither_prints_nor_asserts() -> None:
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            where = f"{path.relative_to(SOURCE)}, line {getattr(node, 'lineno', 0)}"
            assert not isinstance(node, ast.Assert), f"{where}: an assert is no error message"
            assert not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print"), where
