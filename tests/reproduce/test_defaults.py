"""Records are found by the settings that were given. What nobody gave must go on meaning what it meant."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
import pkgutil
from collections.abc import Iterator

import pytest
from torch import nn

import rectifier.losses
from rectifier import quintuplets, samplers
from rectifier.config import Config
from rectifier.networks.registry import NETWORKS
from rectifier.reproduce import records
from rectifier.reproduce.records import key_of

DIGEST = "e1e8b7529951"
VERSION = 1


def classes() -> Iterator[type]:
    """Yield the losses and samplers."""
    names = [one.name for one in pkgutil.iter_modules(rectifier.losses.__path__)]
    for module in (*(importlib.import_module(f"rectifier.losses.{name}") for name in names), samplers, quintuplets):
        for _, member in inspect.getmembers(module, inspect.isclass):
            if member.__module__ == module.__name__ and issubclass(member, nn.Module | samplers.EpochSampler):
                yield member


def defaults(function: object) -> dict[str, str]:
    parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    return {one.name: repr(one.default) for one in parameters if one.default is not inspect.Parameter.empty}


def test_what_settings_stand_for_that_nobody_gave() -> None:
    """Where this fails because a default changed: raise ``records.VERSION``, and put both numbers here."""
    told = {member.__name__: defaults(member) for member in classes()}
    told |= {name: defaults(network.build) for name, network in NETWORKS.items()}
    text = json.dumps(told, sort_keys=True, indent=1)
    assert (records.VERSION, hashlib.sha256(text.encode()).hexdigest()[:12]) == (VERSION, DIGEST), text


def test_another_version_makes_all_runs_new(monkeypatch: pytest.MonkeyPatch) -> None:
    before = key_of(Config("digits"))
    monkeypatch.setattr(records, "VERSION", VERSION + 1)
    assert key_of(Config("digits")) != before
