"""The names that ``import rectifier`` and its rooms offer."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import rectifier
from project.rooms import HEIGHT, ROOT
from rectifier import data, evaluation, report, reproduce, training

LAZY = [data, evaluation, report, reproduce, training]


def typing_block(package: ModuleType) -> list[ast.stmt]:
    tree = ast.parse(Path(str(package.__file__)).read_text())
    return next(node.body for node in tree.body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))


def typed_homes(package: ModuleType) -> dict[str, str]:
    """Return the names that type checkers see, each with its module and the name it has there."""
    found: dict[str, str] = {}
    for line in typing_block(package):
        if isinstance(line, ast.ImportFrom):
            room = line.module == package.__name__
            for alias in line.names:
                found[alias.asname or alias.name] = (
                    f"{line.module}.{alias.name}" if room else f"{line.module}:{alias.name}"
                )
        elif isinstance(line, ast.Assign):  # new = old: another name for what is imported
            new, old = (ast.unparse(side) for side in (line.targets[0], line.value))
            found[new] = found.pop(old)
    return {name: home.removeprefix("rectifier.") for name, home in found.items()}


def test_type_checkers_see_the_names_that_are_there() -> None:
    assert typed_homes(rectifier) == rectifier._HOMES
    assert set(rectifier._HOMES) <= set(dir(rectifier))
    assert rectifier.__all__ == sorted(name for name, home in rectifier._HOMES.items() if ":" in home)


@pytest.mark.parametrize("name", rectifier.__all__)
def test_a_public_name(name: str) -> None:
    module, _, attribute = rectifier._HOMES[name].partition(":")
    assert getattr(rectifier, name) is getattr(import_module(f"rectifier.{module}"), attribute)
    assert callable(getattr(rectifier, name))


def test_the_package_lists_its_rooms() -> None:
    assert sorted(rectifier._ROOMS) == sorted(set(HEIGHT) - {"_base", "cli"})


@pytest.mark.parametrize("name", rectifier._ROOMS)
def test_a_room_is_an_attribute_of_the_package(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(rectifier, name, raising=False)  # as if no module had imported it yet
    assert getattr(rectifier, name) is sys.modules[f"rectifier.{name}"]
    assert name in dir(rectifier)


@pytest.mark.parametrize("package", LAZY, ids=lambda package: package.__name__)
def test_names_of_a_room_are_those_it_lists(package: ModuleType) -> None:
    assert sorted(typed_homes(package)) == sorted(package.__all__)
    assert set(package.__all__) <= set(dir(package))
    for name, home in typed_homes(package).items():
        module, _, attribute = f"rectifier.{home}".partition(":")
        expected = import_module(module)
        assert getattr(package, name) is (getattr(expected, attribute) if attribute else expected)


@pytest.mark.parametrize("package", [rectifier, *LAZY], ids=lambda package: package.__name__)
def test_an_unknown_name(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'Confg'"):
        package.Confg  # noqa: B018


def test_the_page_of_names_has_every_public_name() -> None:
    shown = set(
        re.findall(r"auto(?:class|function):: (?:\S+\.)?(\w+)$", (ROOT / "docs/api.md").read_text(), re.MULTILINE)
    )
    assert set(rectifier.__all__) <= shown


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, rectifier.training.settings as _; assert not {'torch', 'numpy', 'pandas'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
