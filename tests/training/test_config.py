"""Config: saving and loading loses nothing, overrides reach their owner, and every wrong value gets one sentence."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rectifier._base.settings import SETTINGS
from rectifier.data.store.decode import FITS
from rectifier.methods import METHODS, Part
from rectifier.training.config import Config
from rectifier.training.presets import PRESETS, preset

# A value for every field that is not its default.
CHANGED: dict[str, Any] = {
    "data": "shapes",
    "images": "pictures",
    "data_root": "elsewhere",
    "data_options": {"missing": "0.1"},
    "split_seed": 3,
    "resplit": True,
    "size": "24x16",
    "fit": "crop",
    "unreadable": "raise",
    "method": "crl-class-absolute",
    "method_options": {"eta": 0.5, "kappa": 7},
    "network": "densenet",
    "network_options": {"depth": 22, "growth": 4},
    "epochs": 7,
    "batch_size": 48,
    "seed": 5,
    "optimizer": "adamw",
    "lr": 0.003,
    "momentum": 0.5,
    "nesterov": True,
    "weight_decay": 0.01,
    "schedule": "step",
    "milestones": (0.25, 0.5, 0.9),
    "decay": 0.3,
    "warmup": 1.5,
    "clip": 2.0,
    "accumulate": 4,
    "drop_last": True,
    "padding": 2,
    "flip": False,
    "validate_every": 3,
    "patience": 6,
    "select": "prior",
    "precision": "bf16",
    "step": "eager",
    "batch_norm": "local",
    "accelerator": "cpu",
    "devices": 2,
    "nodes": 3,
    "checkpoint_seconds": 1.0,
    "tensorboard": False,
    "features": False,
}

BAD: dict[str, list[Any]] = {
    "data": ["", None, 5],
    "images": [5],
    "data_root": [5],
    "data_options": [5, "missing=0.1"],
    "split_seed": [-1, 1.5, "3", True],
    "resplit": ["maybe", 1, None],
    "size": ["axb", "0x4", "1x2x3"],
    "fit": ["strech", None],
    "unreadable": ["skipp", True],
    "method": ["clr", None, ["ce"]],
    "method_options": [5, None],
    "network": ["resnet23", None, 5],
    "network_options": [5, None],
    "epochs": [0, -1, 1.5, "3", None, True],
    "batch_size": [0, 12.0],
    "seed": [-1, None, "0"],
    "optimizer": ["adam", None],
    "lr": [0, -0.1, float("nan"), float("inf"), "0.1", True],
    "momentum": [-0.1, None],
    "nesterov": ["maybe", None, 1],
    "weight_decay": [-1, "much"],
    "schedule": ["cosin", None],
    "milestones": [(0.75, 0.5), (1.5,), (-0.1,), ("half",), 0.5, None],
    "decay": [-1, None],
    "warmup": [-1, float("nan")],
    "clip": [0, -1, "none"],
    "accumulate": [0, 2.0],
    "drop_last": ["no", None],
    "padding": [-1, 0.5],
    "flip": ["no", 1],
    "validate_every": [0, None],
    "patience": [0, 1.5],
    "select": ["tuned", None],
    "precision": ["8", 32],
    "step": ["graph", None],
    "batch_norm": ["sync", None],
    "accelerator": ["gpu", None],
    "devices": [0, "auto"],
    "nodes": [0, None],
    "checkpoint_seconds": [-1, None],
    "tensorboard": ["no", None],
    "features": ["no", None],
}

# Neither the seed nor where and on what something is computed makes it another experiment.
NO_IDENTITY = {"step", "seed", "images", "data_root", "accelerator", "devices", "nodes"}
NO_IDENTITY |= {"checkpoint_seconds", "tensorboard", "features"}


def changed(**settings: Any) -> Config:
    """A config in which no field has its default."""
    return Config(**{**CHANGED, **settings})


def test_the_cases_here_cover_every_field() -> None:
    plain = Config("digits")
    assert list(CHANGED) == list(BAD) == list(SETTINGS)
    assert not [name for name in SETTINGS if getattr(changed(), name) == getattr(plain, name)]


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
        with pytest.raises(FileNotFoundError, match=re.escape(f"Expected {path} to be a config as JSON, but got noth")):
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
    assert getattr(Config("digits").with_settings({name: text}), name) == value
    assert getattr(Config("digits").with_settings({name: value}), name) == value


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("nesterov", "maybe", "Expected nesterov to be true or false, but got 'maybe'"),
        ("epochs", "none", "Expected epochs to be a positive integer, but got 'none'"),
        ("epochs", "3.0", r"Expected epochs to be a positive integer, but got 3\.0"),
        ("lr", "fast", "Expected lr to be a number above 0, but got 'fast'"),
        ("lr", "nan", "Expected lr to be a number above 0, but got nan"),
        ("milestones", "0.5,late", "Expected milestones to be fractions of the training"),
        (
            "method_options",
            "eta=1",
            "method_options to be a mapping of option names to values, but got 'eta=1'",
        ),
    ],
)
def test_text_that_a_field_does_not_take(key: str, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Config("digits").with_settings({key: text})


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
    before = Config("shapes")
    after = before.with_settings({key: text})
    option = key.rpartition(".")[2]
    found = getattr(after, f"{owner}_options")
    assert found == {option: value}
    assert type(found[option]) is type(value)
    assert replace(after, **{f"{owner}_options": {}}) == before


def test_settings_add_up_and_leave_the_first_config_alone() -> None:
    first = Config("digits").with_settings({"eta": "0.5"})
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
        Config("digits").with_settings({key: "1"})


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
        Config("digits").with_settings({key: "1"})


def test_a_key_of_two_owners_names_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "ce", replace(METHODS["ce"], loss=Part(dict, ("dropout",))))
    config = Config("digits", method="ce")
    with pytest.raises(ValueError, match=r"'dropout' has several owners\. Write method\.dropout or network\.dro"):
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
    config = Config("digits", method_options={"kappa": 3}).with_settings({"eta": "0.5", "method": "crl-class-absolute"})
    assert (config.method, config.method_options) == ("crl-class-absolute", {"eta": 0.5})
    with pytest.raises(ValueError, match="'eta' is neither a setting nor an option of ce, resnet32 or the data"):
        Config("digits").with_settings({"eta": "0.5", "method": "ce"})


def test_another_library_knows_its_own_options() -> None:
    config = Config("digits", network="timm:resnet18").with_settings({"network.drop_rate": "0.1"})
    assert config.network_options == {"drop_rate": 0.1}


def test_a_change_is_validated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    config, validated = Config("digits"), []
    monkeypatch.setattr(Config, "__post_init__", lambda changed: validated.append(changed))
    config.with_settings({"epochs": 3, "eta": 0.5, "kappa": 3, "network.dropout": 0.1, "ratio": 5})
    assert len(validated) == 1


def test_options_in_front_of_missing_data(tmp_path: Path) -> None:
    config = Config(str(tmp_path / "absent.csv")).with_settings({"method": "crl:eta=0.5", "network.dropout": 0.1})
    assert (config.method_options, config.network_options) == ({"eta": 0.5}, {"dropout": 0.1})


# Wrong values


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in BAD for value in BAD[name]])
def test_a_bad_value_gets_one_sentence(name: str, value: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=rf"\AExpected {name} to be [^\n]+, but got [^\n]+\Z"):
        Config(**{"data": "digits", name: value})


@pytest.mark.parametrize(("name", "nearest"), [("method", "crl"), ("network", "resnet32"), ("schedule", "cosine")])
def test_a_misspelt_choice_is_answered_with_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(ValueError, match=rf"Expected {name} to be one of .* Did you mean '{nearest}'\?"):
        Config(**{"data": "digits", name: BAD[name][0]})


@pytest.mark.parametrize(("owner", "option"), [("method", "etta"), ("network", "dept")])
def test_options_are_checked_when_a_config_is_built(owner: str, option: str) -> None:
    with pytest.raises(ValueError, match=rf"every option of {owner} .* but got '{option}'\. Did you mean"):
        Config("digits", **{f"{owner}_options": {option: 1}})


def test_all_bad_values_are_reported_at_once() -> None:
    bad = {name: BAD[name][0] for name in BAD}
    with pytest.raises(ValueError, match="Expected epochs") as caught:
        Config(**bad)
    lines = str(caught.value).split("\n")
    assert sorted(line.split()[1] for line in lines) == sorted(bad)


@pytest.mark.parametrize(
    ("also", "reported"),
    [
        ({"size": "axb"}, "Expected size to be"),
        ({"method_options": {"etta": 1}}, "every option of method 'crl'"),
        ({"network_options": {"dept": 1}}, "every option of network 'resnet32'"),
    ],
)
def test_wrong_sizes_and_options_are_reported_with_other_bad_values(also: dict[str, Any], reported: str) -> None:
    with pytest.raises(ValueError, match="Expected epochs to be") as caught:
        Config("digits", epochs=0, **also)
    assert reported in str(caught.value)


def test_unknown_keys_are_reported_with_bad_values() -> None:
    with pytest.raises(ValueError, match="'etta' is neither") as caught:
        Config("digits").with_settings({"etta": 1, "kapa": 2, "epochs": 0, "method": "crl"})
    assert [line.split()[:2] for line in str(caught.value).split("\n")] == [
        ["'etta'", "is"],
        ["'kapa'", "is"],
        ["Expected", "epochs"],
    ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"nesterov": True, "momentum": 0}, "nesterov needs momentum, but momentum is 0"),
        ({"method": "lmle", "patience": 3}, "lmle takes no patience: validation cannot judge its classifier"),
    ],
)
def test_values_that_do_not_fit_each_other(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Config("digits", **settings)


def test_an_unknown_keyword_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'epoch'"):
        Config("digits", epoch=3)  # type: ignore[call-arg]


def test_other_spellings_of_a_value_become_plain() -> None:
    config = Config("digits", epochs=np.int64(3), lr=np.float32(0.5), images=Path("photos"), size=32)  # type: ignore[arg-type]
    assert config == Config("digits", epochs=3, lr=0.5, images="photos", size="32")
    assert Config.from_dict(config.as_dict()) == config


# Identity


@pytest.mark.parametrize("name", sorted(set(CHANGED) - {"data_options", "method_options", "network_options"}))
def test_identity_ignores_the_seed_and_where_a_run_is_computed(name: str) -> None:
    plain = Config("digits")
    other = replace(plain, **{name: CHANGED[name]})
    assert (other.identity() == plain.identity()) == (name in NO_IDENTITY)


def test_identity_has_the_options_one_by_one() -> None:
    identity = changed().identity()
    assert (identity["method.eta"], identity["method.kappa"]) == (0.5, 7)
    assert (identity["network.depth"], identity["data.missing"]) == (22, "0.1")
    assert not {"seed", "method_options", "network_options", "data_options"} & set(identity)


def test_identity_does_not_depend_on_the_order_of_settings() -> None:
    one = Config("digits").with_settings({"eta": 1, "kappa": 2}).identity()
    two = Config("digits").with_settings({"kappa": 2, "eta": 1}).identity()
    assert list(one.items()) == list(two.items())


@pytest.mark.parametrize("split", [{"resplit": True}, {"split_seed": 0}, {"split_seed": 3}])
def test_seeds_with_one_split_rule_have_one_identity(split: dict[str, Any]) -> None:
    identities = [Config("digits", seed=seed, **split).identity() for seed in (0, 3, 4)]
    assert identities[0] == identities[1] == identities[2]
    assert identities[0] != Config("digits").identity()


def test_a_table_is_the_same_wherever_it_lies() -> None:
    assert Config("/here/labels.csv").identity() == Config("/there/labels.csv").identity()
    assert Config("/here/labels.csv").identity() != Config("/here/others.csv").identity()


# Digests of as_dict and identity by an earlier version. Folders of runs and recorded results are found by these values.
RECORDED: list[tuple[str, dict[str, Any]]] = [
    ("fae516ff802329e0", {"data": "digits"}),
    ("9168b9f2b73fb0aa", {"data": "digits", "seed": 7, "accelerator": "cpu", "devices": 2, "tensorboard": False}),
    ("8c6b9bcc827f0142", {"data": "digits", "network": "mlp", "network.hidden": "8,4", "epochs": "6"}),
    ("c2bd2a472ee9f9dd", {"data": "digits", "method": "crl:eta=0.5: kappa = 7 ", "epochs": 3}),
    ("2d7f9cc8bcfec677", {"data": "digits", "method": "crl:eta=0.5", "eta": 0.1}),
    ("423d8393792e3d9a", {"data": "digits", "method": "lmle:margins=0.1,0.2,.3", "lr": 1}),
    (
        "7506d6903f35e0dd",
        {"data": "digits", "method": "crl+over-sampling", "select": "prior", "schedule": "step", "accumulate": 2},
    ),
    (
        "0d7ea574e40a597c",
        {"data": "digits", "lr": "1e-3", "warmup": 5, "weight_decay": "0", "milestones": "0.2, 0.4,", "decay": 1},
    ),
    (
        "1a3326a8a11908f1",
        {"data": "digits", "nesterov": "yes", "flip": "off", "padding": "0", "clip": "2", "patience": "none"},
    ),
    ("5d4978e712473d90", {"data": "digits", "ratio": "5", "split_seed": "3", "resplit": "true"}),
    ("9d2aaf40a5f6ca63", {"data": "shapes:samples=240,size=16", "data.size": "16", "missing": "0.1", "size": 24}),
    (
        "33487f4709ebc00e",
        {"data": "/somewhere/labels.csv", "images": "photos", "data_root": "sets", "size": "64x48", "fit": "crop"},
    ),
    ("35158458dde63a2c", {"data": "cifar100:exp=100", "unreadable": "raise", "drop_last": True, "batch_norm": "local"}),
    ("b0928fed0fe1245e", {"data": "celeba", "network": "timm:resnet18", "network.drop_rate": "0.1", "precision": "32"}),
    (
        "e574bd6cb7391d5f",
        {"data": "celeba", "network": "densenet", "depth": 22, "network.growth": 4, "optimizer": "adamw"},
    ),
    (
        "ebf961bd5645c994",
        {"data": "celeba", "alpha": "0.2,0.4", "normalize": "true", "scope": "all", "validate_every": 3},
    ),
]
RECORDED_PRESETS = {
    "celeba": "d6d3388d0164bd3a",
    "xdomain": "0768c3276bf483ee",
    "deepfashion": "b0fbc7f501497c23",
    "cifar100": "56417fd77e5c0c16",
    "cifar100-balanced": "dd18a99268059968",
    "cifar100-lt": "a268e107c65a4d1e",
    "digits": "3a8520021ea7d690",
}


def digest(config: Config) -> str:
    return hashlib.sha256(json.dumps([config.as_dict(), config.identity()]).encode()).hexdigest()[:16]


def test_saved_configs_and_identities_stay_as_recorded() -> None:
    configs = [Config(settings["data"]).with_settings(settings) for _, settings in RECORDED]
    assert [digest(config) for config in configs] == [recorded for recorded, _ in RECORDED]
    assert {name: digest(preset(name)) for name in PRESETS} == RECORDED_PRESETS


# The declaration


def test_every_setting_is_documented() -> None:
    documented = inspect.getdoc(Config) or ""
    for name, setting in SETTINGS.items():
        assert f"    {name}: {setting.help}" in documented
    assert "epochs: Passes over the training images. Default: 30." in documented


@pytest.mark.parametrize("name", [name for name, setting in SETTINGS.items() if setting.choices])
def test_every_choice_is_accepted(name: str) -> None:
    for choice in SETTINGS[name].choices:
        assert getattr(Config("digits", **{name: choice}), name) == choice


def test_choices_are_those_of_the_code_that_uses_them() -> None:
    assert SETTINGS["fit"].choices == FITS


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


def test_a_method_may_carry_its_options() -> None:
    begun = Config("digits", method="focal", method_options={"gamma": 3})
    found = begun.with_settings({"method": "crl:eta=0.5: kappa = 7 "})
    assert (found.method, found.method_options) == ("crl", {"eta": 0.5, "kappa": 7})
    assert begun.with_settings({"method": "crl:eta=0.5", "eta": 0.1}).method_options == {"eta": 0.1}
    assert begun.with_settings({"method": "crl:eta=0.5", "method.eta": 0.1}).method_options == {"eta": 0.1}
    with pytest.raises(ValueError, match=r"options of method 'crl' to be KEY=VALUE, each once, .* but got 'eta'"):
        begun.with_settings({"method": "crl:eta"})
    with pytest.raises(ValueError, match=r"each once, with colons between, but got 'eta=0.1'"):
        begun.with_settings({"method": "crl:eta=0.5:eta=0.1"})
