"""The engine has options of its own, which mean what the config's settings mean."""

from __future__ import annotations

import ast
from dataclasses import fields, replace
from pathlib import Path

import rectifier
from rectifier.training.config import Config
from rectifier.training.engine.options import Options
from rectifier.training.job import engine_options

ENGINE = Path(rectifier.__file__).parent / "training" / "engine"


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_the_engine_knows_neither_config_nor_run() -> None:
    files = list(ENGINE.glob("*.py"))
    assert files
    for path in files:
        above = {name for name in imports_of(path) if name.startswith("rectifier.training")}
        assert all(name.startswith("rectifier.training.engine.") for name in above), path.name


def test_options_are_the_settings_of_a_config() -> None:
    own = {"lr", "choose_from"}  # the job resolves them
    assert {f.name for f in fields(Options)} - own <= {f.name for f in fields(Config)}
    assert engine_options(Config("digits")) == Options()
    changed = replace(Config("digits"), epochs=7, optimizer="adamw", clip=0.5, precision="bf16", devices=2)
    assert engine_options(changed) == Options(epochs=7, optimizer="adamw", clip=0.5, precision="bf16", devices=2)
    assert Options(devices=2, nodes=3).processes == 6
