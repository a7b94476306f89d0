"""The names that ``import rectifier`` offers."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import rectifier
from rectifier import training


def typed_imports() -> dict[str, str]:
    """Return the names that type checkers see, each with its module."""
    tree = ast.parse(Path(rectifier.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    return {
        alias.asname or alias.name: str(line.module)
        for line in block.body
        if isinstance(line, ast.ImportFrom)
        for alias in line.names
    }


def test_type_checkers_see_the_names_that_are_there() -> None:
    typed = typed_imports()
    assert sorted(typed) == rectifier.__all__
    for name, module in typed.items():
        assert getattr(rectifier, name) is getattr(import_module(module), name)
    assert set(typed) <= set(dir(rectifier))


def test_names_of_training_are_those_it_lists() -> None:
    for name in training.__all__:
        assert getattr(training, name).__module__.startswith("rectifier.training.")


@pytest.mark.parametrize("package", [rectifier, training])
def test_an_unknown_name(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'Confg'"):
        package.Confg  # noqa: B018


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, rectifier.training.settings as _; assert not {'torch', 'numpy', 'pandas'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
