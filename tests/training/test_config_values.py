"""The values of a config: every wrong one gets one sentence; identities are those of recorded runs."""

from __future__ import annotations

import hashlib
import inspect
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.configs import CHANGED, changed
from rectifier.data.decode import FITS
from rectifier.training.config import Config
from rectifier.training.presets import PAPER, PRESETS, preset
from rectifier.training.settings import SETTINGS

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
    "weights": [5],
    "tune": ["heads", None],
    "views": [0, 1.5],
    "heads": [0, 1.5],
    "noise": [-1, "some"],
    "refit": ["no", None],
    "smoothing": [-0.1, 1, None],
    "epochs": [0, -1, 1.5, "3", True],
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
    "augment": ["trivially", None],
    "rate_decay": [0, 1.5],
    "freeze_norm": ["no", 1],
    "ema": [1, -0.1],
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
    "baselines": ["no", 1],
}

# Neither the seed nor where and on what something is computed makes it another experiment.
NO_IDENTITY = {"step", "seed", "images", "data_root", "accelerator", "devices", "nodes"}
NO_IDENTITY |= {"checkpoint_seconds", "tensorboard", "features", "baselines"}


def test_the_cases_here_cover_every_field() -> None:
    plain = Config("digits", network="resnet32")
    assert list(CHANGED) == list(BAD) == list(SETTINGS)
    assert not [name for name in SETTINGS if getattr(changed(), name) == getattr(plain, name)]


# Wrong values


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in BAD for value in BAD[name]])
def test_a_bad_value_gets_one_sentence(name: str, value: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=rf"\A(Expected {name} to be|No {name}) [^\n]+\Z"):
        Config(**{"data": "digits", name: value})


@pytest.mark.parametrize(("name", "nearest"), [("method", "crl"), ("network", "resnet32"), ("schedule", "cosine")])
def test_a_misspelt_choice_is_answered_with_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(ValueError, match=rf"(Expected {name} to be one of|No {name}) .* Did you mean '{nearest}'\?"):
        Config(**{"data": "digits", name: BAD[name][0]})


@pytest.mark.parametrize(("owner", "option"), [("method", "etta"), ("network", "dept")])
def test_options_are_checked_when_a_config_is_built(owner: str, option: str) -> None:
    with pytest.raises(ValueError, match=rf"every option of {owner} .* but got '{option}'\. Did you mean"):
        Config("digits", network="resnet32", **{f"{owner}_options": {option: 1}})


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
        Config("digits", network="resnet32", epochs=0, **also)
    assert reported in str(caught.value)


def test_unknown_keys_are_reported_with_bad_values() -> None:
    with pytest.raises(ValueError, match="'etta' is neither") as caught:
        Config("digits", network="resnet32").with_settings({"etta": 1, "kapa": 2, "epochs": 0, "method": "crl"})
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
    plain = Config("digits", network="resnet32")
    other = replace(plain, **{name: CHANGED[name]})
    assert (other.identity() == plain.identity()) == (name in NO_IDENTITY)


def test_identity_has_the_options_one_by_one() -> None:
    identity = changed().identity()
    assert (identity["method.eta"], identity["method.kappa"]) == (0.5, 7)
    assert (identity["network.depth"], identity["data.missing"]) == (22, "0.1")
    assert not {"seed", "method_options", "network_options", "data_options"} & set(identity)


def test_identity_does_not_depend_on_the_order_of_settings() -> None:
    one = Config("digits", network="resnet32").with_settings({"eta": 1, "kappa": 2}).identity()
    two = Config("digits", network="resnet32").with_settings({"kappa": 2, "eta": 1}).identity()
    assert list(one.items()) == list(two.items())


@pytest.mark.parametrize("split", [{"resplit": True}, {"split_seed": 0}, {"split_seed": 3}])
def test_seeds_with_one_split_rule_have_one_identity(split: dict[str, Any]) -> None:
    identities = [Config("digits", seed=seed, **split).identity() for seed in (0, 3, 4)]
    assert identities[0] == identities[1] == identities[2]
    assert identities[0] != Config("digits", network="resnet32").identity()


def test_a_table_is_the_same_wherever_it_lies() -> None:
    assert Config("/here/labels.csv").identity() == Config("/there/labels.csv").identity()
    assert Config("/here/labels.csv").identity() != Config("/here/others.csv").identity()


# Digests of as_dict and identity by a version without pretrained networks and without a recipe. Folders of runs and
# recorded results are found by these values.
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
    new = {name for name, setting in SETTINGS.items() if setting.since_pretrained}
    assert all(getattr(config, name) == SETTINGS[name].default for name in new)
    values = {name: value for name, value in config.as_dict().items() if name not in new | {"baselines"}}
    return hashlib.sha256(json.dumps([values, config.identity()]).encode()).hexdigest()[:16]


def test_saved_configs_and_identities_stay_as_recorded() -> None:
    configs = [Config(settings["data"]).with_settings({**PAPER, **settings}) for _, settings in RECORDED]
    assert [digest(config) for config in configs] == [recorded for recorded, _ in RECORDED]
    assert {name: digest(preset(name)) for name in PRESETS} == RECORDED_PRESETS


# The declaration


def test_every_setting_is_documented() -> None:
    documented = inspect.getdoc(Config) or ""
    for name, setting in SETTINGS.items():
        assert f"    {name}: {setting.help}" in documented
    assert "epochs: Passes over the training images. Default: chosen by the data." in documented
    assert "momentum: Momentum of SGD. Default: 0.9." in documented


@pytest.mark.parametrize("name", [name for name, setting in SETTINGS.items() if setting.choices])
def test_every_choice_is_accepted(name: str) -> None:
    for choice in SETTINGS[name].choices:
        assert getattr(Config("digits", **{name: choice}), name) == choice


def test_choices_are_those_of_the_code_that_uses_them() -> None:
    assert SETTINGS["fit"].choices == FITS
