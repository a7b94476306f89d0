"""Defaults must not change silently."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from torch import nn

import rectifier.losses
import rectifier.samplers
from rectifier.data import mixing
from rectifier.methods import METHODS
from rectifier.networks.registry import NETWORKS
from rectifier.reproduce import records
from rectifier.reproduce.records import key_of
from rectifier.samplers import EpochSampler
from rectifier.samplers.lmle import quintuplets
from rectifier.training.config import Config

DIGEST = "16b843068e6d"  # three networks were added
VERSION = 1


def members() -> Iterator[Callable[..., Any]]:
    """Yield the losses, samplers and ways to mix, and the functions they are made of."""
    found = [
        *pkgutil.walk_packages(rectifier.losses.__path__, "rectifier.losses."),
        *pkgutil.iter_modules(rectifier.samplers.__path__, "rectifier.samplers."),
    ]
    inside = [one.name for one in found if not one.ispkg]
    for module in (*map(importlib.import_module, inside), quintuplets, mixing):
        for name, member in inspect.getmembers(module):
            counts = inspect.isfunction(member) or (
                inspect.isclass(member) and issubclass(member, nn.Module | EpochSampler | mixing.Mixup)
            )
            if counts and not name.startswith("_") and member.__module__ == module.__name__:
                yield member


def defaults(function: Callable[..., Any]) -> dict[str, str]:
    parameters = inspect.signature(function).parameters.values()
    return {one.name: repr(one.default) for one in parameters if one.default is not inspect.Parameter.empty}


def fixed(build: Callable[..., Any]) -> list[str]:
    """Return what is written into a method's builder: numbers, and what it was made with."""
    numbers = sorted({repr(one) for one in build.__code__.co_consts if isinstance(one, float)})
    around = inspect.getclosurevars(build).nonlocals
    return [*numbers, *(f"{name} {getattr(value, '__name__', value)}" for name, value in sorted(around.items()))]


def test_defaults_have_not_changed() -> None:
    """Records omit default settings. If a default changes, raise ``records.VERSION`` and update both numbers here."""
    found: dict[str, Any] = {member.__name__: defaults(member) for member in members()}
    found |= {name: [defaults(one.build), one.rate, one.shape] for name, one in NETWORKS.items()}
    for name, method in METHODS.items():
        filled = {slot: getattr(method, slot) for slot in ("classifier", "features", "posthoc", "decision")}
        parts = {slot: [defaults(part.build), fixed(part.build)] for slot, part in method.parts.items()}
        found[f"method {name}"] = {**filled, **parts}
    text = json.dumps(found, sort_keys=True, indent=1)
    assert (records.VERSION, hashlib.sha256(text.encode()).hexdigest()[:12]) == (VERSION, DIGEST), text


def test_another_version_makes_all_runs_new(monkeypatch: pytest.MonkeyPatch) -> None:
    before = key_of(Config("digits"))
    monkeypatch.setattr(records, "VERSION", VERSION + 1)
    assert key_of(Config("digits")) != before
