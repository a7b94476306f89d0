"""Config: saving and loading loses nothing, overrides reach their owner, and paths become absolute."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.configs import CHANGED, changed
from rectifier.methods import METHODS, Part
from rectifier.training.config import Config
from rectifier.training.settings import SETTINGS

# Saved and replayed


def test_every_field_survives_json() -> None:
    config = changed()
    again = Config.from_dict(json.loads(json.dumps(config.as_dict())))
    assert again == config
    assert [type(getattr(again, name)) for name in SETTINGS] == [type(getattr(config, name)) for name in SETTINGS]


def test_fields_left_out_have_their_defaults(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"data": "digits", "epochs": 3}')
    assert Config.from_file(path) == Config("digits", epochs=3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"epochs: 3", r"config\.json is not a config: it is not valid JSON \(Expecting value"),
        (b"\xff\xfe\x00", r"config\.json is not a config: it is not valid JSON \('utf-8' codec"),
        (b'["digits"]', r"config\.json is not a config: it holds a list, not a JSON object\."),
        (b'{"data": "digits", "epoch": 3}', r"every option of a config .* but got 'epoch'\. Did you mean 'epochs'\?"),
        (b'{"epochs": 3}', r"A config must name its data, but this one does not\."),
        (b'{"data": "digits", "epochs": "3"}', r"epochs to be a positive integer, but got '3'\."),
    ],
)
def test_a_file_that_is_not_a_config(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        Config.from_file(path)


def test_a_missing_config_file(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.json", tmp_path):
        with pytest.raises(FileNotFoundError, match=re.escape(f"The file {path} does not exist.")):
            Config.from_file(path)


# Overridden


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("lr", "0.05", 0.05),
        ("lr", "1e-3", 1e-3),
        ("lr", "none", None),
        ("clip", "None", None),
        ("patience", "4", 4),
        ("patience", "null", None),
        ("padding", "0", 0),
        ("epochs", "12", 12),
        ("epochs", "none", None),
        ("weight_decay", "0", 0),
        ("nesterov", "true", True),
        ("tensorboard", "no", False),
        ("drop_last", "Yes", True),
        ("flip", "off", False),
        ("flip", "none", None),
        ("milestones", "0.3,0.6", (0.3, 0.6)),
        ("milestones", "0.5", (0.5,)),
        ("milestones", "0.2, 0.4,", (0.2, 0.4)),
        ("milestones", "", ()),
        ("precision", "32", "32"),
        ("size", "32", "32"),
        ("size", "55x47", "55x47"),
        ("size", "none", None),
        ("images", "2024", "2024"),
        ("images", "", None),
        ("data_root", "true", "true"),
        ("method", "ce", "ce"),
        ("split_seed", "3", 3),
    ],
)
def test_text_is_read_by_the_type_of_its_field(key: str, text: str, value: Any) -> None:
    found = getattr(replace(changed(), method_options={}).with_settings({key: text}), key)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("name", sorted(set(CHANGED) - {"data_options", "method_options", "network_options"}))
def test_every_field_can_be_set_from_text_and_as_a_value(name: str) -> None:
    value = CHANGED[name]
    text = ",".join(map(str, value)) if name == "milestones" else str(value)
    assert getattr(Config("digits", network="resnet32").with_settings({name: text}), name) == value
    assert getattr(Config("digits", network="resnet32").with_settings({name: value}), name) == value


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("nesterov", "maybe", "Expected nesterov to be true or false, but got 'maybe'"),
        ("accumulate", "none", "Expected accumulate to be a positive integer, but got 'none'"),
        ("epochs", "3.0", r"Expected epochs to be a positive integer, but got 3\.0"),
        ("lr", "fast", "Expected lr to be a number above 0, but got 'fast'"),
        ("lr", "nan", "Expected lr to be a number above 0, but got nan"),
        ("milestones", "0.5,late", "Expected milestones to be fractions of the training"),
        ("method_options", "eta=1", "method_options to be a mapping of option names to values, but got 'eta=1'"),
    ],
)
def test_text_that_a_field_does_not_take(key: str, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Config("digits", network="resnet32").with_settings({key: text})


@pytest.mark.parametrize(
    ("key", "owner", "text", "value"),
    [
        ("eta", "method", "0.5", 0.5),
        ("method.kappa", "method", "3", 3),
        ("normalize", "method", "true", True),
        ("scope", "method", "all", "all"),
        ("alpha", "method", "0.2,0.4", [0.2, 0.4]),
        ("depth", "network", "20", 20),
        ("network.dropout", "network", "0.1", 0.1),
        ("missing", "data", "0.1", "0.1"),  # readers read their own
        ("data.size", "data", "16", "16"),  # a field hides it
    ],
)
def test_an_option_finds_its_owner(key: str, owner: str, text: str, value: Any) -> None:
    before = Config("shapes", network="resnet32")
    after = before.with_settings({key: text})
    option = key.rpartition(".")[2]
    found = getattr(after, f"{owner}_options")
    assert found == {option: value}
    assert type(found[option]) is type(value)
    assert replace(after, **{f"{owner}_options": {}}) == before


def test_settings_add_up_and_leave_the_first_config_alone() -> None:
    first = Config("digits", network="resnet32").with_settings({"eta": "0.5"})
    second = first.with_settings({"kappa": "3"}).with_settings({"eta": "0.1"})
    assert first.method_options == {"eta": 0.5}
    assert second.method_options == {"eta": 0.1, "kappa": 3}


@pytest.mark.parametrize(
    ("key", "nearest"),
    [("epoch", "epochs"), ("etta", "eta"), ("dept", "depth"), ("ratoi", "ratio"), ("wieght_decay", "weight_decay")],
)
def test_an_unknown_key_is_answered_with_the_nearest(key: str, nearest: str) -> None:
    message = rf"'{key}' is neither a setting nor .* crl, resnet32 or the data\. Did you mean '{nearest}'\?"
    with pytest.raises(ValueError, match=message):
        Config("digits", network="resnet32").with_settings({key: "1"})


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("method.etta", r"every option of method 'crl' to be among eta, .* but got 'etta'\. Did you mean 'eta'\?"),
        ("network.growth", r"every option of network 'resnet32' to be among depth, .* but got 'growth'"),
        ("data.rato", r"every option of data 'digits' to be among ratio, .* but got 'rato'\. Did you mean 'ratio'\?"),
        ("optimizer.lr", r"'optimizer\.lr' is neither a setting nor an option of"),
    ],
)
def test_an_option_that_its_owner_does_not_take(key: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Config("digits", network="resnet32").with_settings({key: "1"})


def test_a_key_of_two_owners_names_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "ce", replace(METHODS["ce"], loss=Part(dict, ("dropout",))))
    config = Config("digits", method="ce")
    with pytest.raises(ValueError, match=r"'dropout' is ambiguous\. Write method\.dropout or network\.dro"):
        config.with_settings({"dropout": "0.1"})
    assert config.with_settings({"method.dropout": "0.1"}).method_options == {"dropout": 0.1}
    assert config.with_settings({"network.dropout": "0.1"}).network_options == {"dropout": 0.1}


@pytest.mark.parametrize(("owner", "other"), [("method", "ce"), ("network", "mlp"), ("data", "digits")])
def test_options_of_the_previous_owner_are_dropped(owner: str, other: str) -> None:
    config = changed()
    left = config.with_settings({owner: other})
    assert getattr(left, f"{owner}_options") == {}
    assert left == replace(config, **{owner: other, f"{owner}_options": {}})
    assert config.with_settings({owner: getattr(config, owner)}) == config  # the same is not another


def test_new_options_come_with_a_new_owner() -> None:
    before = Config("digits", network="resnet32", method_options={"kappa": 3})
    config = before.with_settings({"eta": "0.5", "method": "crl-class-absolute"})
    assert (config.method, config.method_options) == ("crl-class-absolute", {"eta": 0.5})
    with pytest.raises(ValueError, match="'eta' is neither a setting nor an option of ce, resnet32 or the data"):
        Config("digits", network="resnet32").with_settings({"eta": "0.5", "method": "ce"})


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("eta", r"Options of a method need its name: method=crl:eta=\.\.\."),
        ("method.gamma", r"Options of a method need its name: method=focal:gamma=\.\.\."),
        ("depth", r"'depth' needs the name of its network, such as network=resnet32"),
        ("etta", r"an option of the method, the network or the data\. Did you mean 'eta'\?"),
    ],
)
def test_an_option_whose_owner_the_recipe_would_choose(key: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Config("digits").with_settings({key: "1"})


def test_options_of_a_head_and_of_the_data_need_no_name() -> None:
    found = Config("digits").with_settings({"hidden": "64", "dropout": "0.1", "ratio": "5"})
    assert (found.network_options, found.data_options) == ({"hidden": 64, "dropout": 0.1}, {"ratio": "5"})


@pytest.mark.parametrize(
    ("network", "method"), [("auto", "auto"), ("mlp", "crl"), ("efficientnet-lite0", "logit-adjustment")]
)
def test_the_method_of_a_network_without(network: str, method: str) -> None:
    assert Config("digits", network=network).method == method
    assert Config("digits").with_settings({"network": network}).method == method
    assert Config("digits", network=network, method="ce").method == "ce"


def test_another_library_knows_its_own_options() -> None:
    config = Config("digits", network="timm:resnet18").with_settings({"network.drop_rate": "0.1"})
    assert config.network_options == {"drop_rate": 0.1}


def test_a_change_is_validated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    config, validated = Config("digits", network="resnet32"), []
    monkeypatch.setattr(Config, "__post_init__", lambda changed: validated.append(changed))
    config.with_settings({"epochs": 3, "eta": 0.5, "kappa": 3, "network.dropout": 0.1, "ratio": 5})
    assert len(validated) == 1


def test_options_in_front_of_missing_data(tmp_path: Path) -> None:
    config = Config(str(tmp_path / "absent.csv")).with_settings({"method": "crl:eta=0.5", "network.dropout": 0.1})
    assert (config.method_options, config.network_options) == ({"eta": 0.5}, {"dropout": 0.1})


def test_a_method_may_carry_its_options() -> None:
    start = Config("digits", method="focal", method_options={"gamma": 3})
    found = start.with_settings({"method": "crl:eta=0.5: kappa = 7 "})
    assert (found.method, found.method_options) == ("crl", {"eta": 0.5, "kappa": 7})
    assert start.with_settings({"method": "crl:eta=0.5", "eta": 0.1}).method_options == {"eta": 0.1}
    assert start.with_settings({"method": "crl:eta=0.5", "method.eta": 0.1}).method_options == {"eta": 0.1}
    with pytest.raises(ValueError, match=r"options of method 'crl' to be KEY=VALUE, each once, .* but got 'eta'"):
        start.with_settings({"method": "crl:eta"})
    with pytest.raises(ValueError, match=r"each once, with colons between, but got 'eta=0.1'"):
        start.with_settings({"method": "crl:eta=0.5:eta=0.1"})


# Paths


def test_relative_paths_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "table.csv").touch()
    monkeypatch.chdir(tmp_path)
    config = Config("table.csv", images="pictures", data_root="sets").anchored()
    expected = [str(tmp_path / name) for name in ("table.csv", "pictures", "sets")]
    assert [config.data, config.images, config.data_root] == expected
    monkeypatch.chdir("/")
    assert config.anchored() == config


@pytest.mark.parametrize("data", ["digits", "cifar100:imb=1", "absent.csv"])
def test_names_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str) -> None:
    (tmp_path / "digits").mkdir()  # a folder of that name is not what is meant
    monkeypatch.chdir(tmp_path)
    assert Config(data).anchored() == Config(data)
