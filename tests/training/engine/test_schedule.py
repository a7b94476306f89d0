"""The engine has options of its own, which mean what the config's settings mean; the rate against loops."""

from __future__ import annotations

import ast
import math
from dataclasses import fields, replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest

import rectifier
from rectifier.training.config import Config
from rectifier.training.engine.options import Options
from rectifier.training.engine.schedule import rate_at
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


# The schedule of the learning rate


KINDS = ("cosine", "step", "constant")


class Schedule:
    """The factor of the rate, with one step in each epoch."""

    def __init__(
        self, kind: str, total: int, warmup: int = 0, milestones: tuple[float, ...] = (), decay: float = 0.1
    ) -> None:
        self.options = Options(lr=1.0, schedule=kind, epochs=total, warmup=warmup, milestones=milestones, decay=decay)

    def __call__(self, step: int) -> float:
        return rate_at(self.options, step, 1)


def slow(
    kind: str, total: int, warmup: int = 0, milestones: tuple[str, ...] = (), decay: float = 0.1, beyond: int = 0
) -> list[float]:
    """The factors of all steps, walked through one by one; shares as text, so that they are exact."""
    factors, level = [], 1.0
    for step in range(total + beyond):
        for share in milestones:
            # The first whole step that is not before the milestone, from which on its factor holds.
            if step == math.ceil(Fraction(share) * total):
                level *= decay
        if step < warmup:
            factors.append(sum(1 / warmup for _ in range(step + 1)))
        elif kind == "cosine":
            left = min(step - warmup, total - warmup) / (total - warmup)
            factors.append(math.cos(math.pi / 2 * left) ** 2)  # the half-angle form of a falling half wave
        else:
            factors.append(level if kind == "step" else 1.0)
    return factors


def floats(shares: tuple[str, ...]) -> tuple[float, ...]:
    return tuple(map(float, shares))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("total", "warmup"), [(1, 0), (2, 1), (10, 0), (40, 4), (97, 13)])
@pytest.mark.parametrize("milestones", [(), ("0.5", "0.75"), ("0", "0.3", "0.3", "1")])
@pytest.mark.parametrize("decay", [0.1, 0.5])
def test_every_step_as_walked_through(
    kind: str, total: int, warmup: int, milestones: tuple[str, ...], decay: float
) -> None:
    schedule = Schedule(kind, total, warmup, floats(milestones), decay)
    found = [schedule(step) for step in range(total + 3)]
    assert found == pytest.approx(slow(kind, total, warmup, milestones, decay, beyond=3), abs=1e-12)


@pytest.mark.parametrize(("share", "total"), [("0.5", 10), ("0.25", 8), ("0.7", 10), ("0.55", 100), ("0.07", 100)])
def test_the_rate_falls_exactly_at_the_milestone(share: str, total: int) -> None:
    schedule = Schedule("step", total, milestones=(float(share),), decay=0.25)
    first = int(Fraction(share) * total)
    assert [schedule(first - 1), schedule(first)] == [1.0, 0.25]


def test_milestones_that_the_warm_up_covers_hold_after_it() -> None:
    schedule = Schedule("step", 20, warmup=10, milestones=(0.25,), decay=0.5)
    assert [schedule(9), schedule(10)] == [1.0, 0.5]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("warmup", [1, 2, 7])
def test_the_warm_up_rises_evenly_to_one(kind: str, warmup: int) -> None:
    schedule = Schedule(kind, 50, warmup, (0.5,))
    rise = [0.0, *(schedule(step) for step in range(warmup))]
    assert [b - a for a, b in pairwise(rise)] == pytest.approx([1 / warmup] * warmup)
    assert rise[-1] == 1.0
    assert schedule(warmup) == 1.0  # the schedule continues from there


@pytest.mark.parametrize("warmup", [0, 5])
def test_a_cosine_falls_from_one_to_nothing(warmup: int) -> None:
    schedule = Schedule("cosine", 45, warmup)
    course = [schedule(step) for step in range(warmup, 46)]
    assert course[0] == 1.0
    assert course[-1] == pytest.approx(0.0, abs=1e-15)
    assert all(a > b for a, b in pairwise(course))
    assert [a + b for a, b in zip(course, reversed(course), strict=True)] == pytest.approx([1.0] * len(course))
    assert schedule(1000) == pytest.approx(0.0, abs=1e-15)  # and does not rise again


def test_a_training_that_is_all_warm_up() -> None:
    for kind in KINDS:
        schedule = Schedule(kind, 4, warmup=8)
        assert [schedule(step) for step in range(4)] == [0.125, 0.25, 0.375, 0.5]


def test_no_decay_and_no_milestones_are_constant() -> None:
    for schedule in (Schedule("step", 9, milestones=(0.3, 0.6), decay=1.0), Schedule("step", 9)):
        assert {schedule(step) for step in range(12)} == {1.0}
