"""rectifier list."""

from __future__ import annotations

import json

import pytest

from helpers.command_line import refuse, succeed
from rectifier.cli.list import KINDS
from rectifier.data.sources import SOURCES
from rectifier.methods import METHODS
from rectifier.networks.registry import NETWORKS
from rectifier.training import presets
from rectifier.training.settings import SETTINGS


def test_list_has_everything_there_is_to_choose_from() -> None:
    found = json.loads(succeed("list", "--json").stdout)
    assert tuple(found) == KINDS
    assert list(found["methods"]) == list(METHODS)
    assert set(found["networks"]) >= set(NETWORKS)
    assert list(found["data"]) == list(SOURCES)
    assert list(found["presets"]) == list(presets.PRESETS)
    assert list(found["settings"]) == list(SETTINGS)
    assert all(about for entries in found.values() for about in entries.values())
    assert found["settings"]["epochs"].endswith("[chosen by the data]")
    assert found["settings"]["momentum"].endswith("[0.9]")
    assert "[eta=0.01, alpha, kappa=25," in found["methods"]["crl"]
    assert found["methods"]["crl-instance-relative"].endswith("[options as of crl]")
    assert "depth=32" in found["networks"]["resnet32"]

    words = set(succeed("list").stdout.replace(",", " ").split())
    for names in found.values():
        assert {word for name in names for word in name.replace(",", " ").split()} <= words


@pytest.mark.parametrize("kind", KINDS)
def test_list_of_one_kind(kind: str) -> None:
    everything = json.loads(succeed("list", "--json").stdout)
    assert json.loads(succeed("list", kind, "--json").stdout) == {kind: everything[kind]}
    assert succeed("list", kind).stdout.split()[0] == kind.capitalize()


def test_list_of_a_wrong_kind_is_answered_with_the_nearest() -> None:
    assert "Did you mean 'methods'?" in refuse("list", "metods")
