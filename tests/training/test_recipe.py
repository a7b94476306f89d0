"""The recipe fills in what a config leaves open, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rectifier.data.dataset import ImageArray, ImageData
from rectifier.labels import LabelSpace
from rectifier.training import recipe
from rectifier.training.config import Config
from rectifier.training.recipe import HEAD_EPOCHS, head_epochs, is_on_features, settle
from rectifier.training.run.folder import Run

SPACE = LabelSpace.from_names({"kind": ["a", "b"]})


def data(images: int = 100, side: int = 32) -> ImageData:
    targets, split = torch.arange(images).view(-1, 1) % 2, torch.zeros(images, dtype=torch.int64)
    return ImageData("made", ImageArray(np.zeros((images, side, side, 3), np.uint8)), targets, SPACE, split)


def settled(images: int = 100, side: int = 32, **settings: Any) -> Config:
    return settle(Config("digits").with_settings(settings), data(images, side))[0]


def test_photographs_get_a_pretrained_network_and_three_lines_say_so() -> None:
    config, lines = settle(Config("made"), data())
    assert (config.network, config.method, config.tune) == ("efficientnet-lite0", "logit-adjustment", "head")
    assert (config.size, config.optimizer, config.heads, config.select) == ("224x224", "adamw", 5, "argmax")
    assert is_on_features(config)
    assert len(lines) == 3
    assert "ImageNet weights are installed" in lines[0]
    assert "224 x 224 pixels, the size of the weights, enlarged from 32 x 32" in lines[1]
    assert all(part in lines[2] for part in ("logit-adjustment", "5 heads", f"{HEAD_EPOCHS} epochs"))


def test_a_settled_config_stays_and_says_nothing() -> None:
    for asked in ({}, {"network": "resnet32"}, {"tune": "last"}, {"method": "ldam"}, {"network": "mlp", "epochs": 3}):
        config, _ = settle(Config("made").with_settings(asked), data())
        assert settle(config, data()) == (config, [])


def test_what_is_given_stays() -> None:
    given: dict[str, Any] = {
        "method": "crl",
        "method.eta": 0.5,
        "epochs": 7,
        "batch_size": 33,
        "optimizer": "sgd",
        "lr": 0.3,
    }
    given |= {"weight_decay": 0.0, "heads": 2, "noise": 0.0, "size": "64", "network.hidden": 9, "select": "last"}
    config = settled(network="efficientnet-lite1", **given)
    for name in ("method", "epochs", "batch_size", "optimizer", "lr", "weight_decay", "heads", "noise", "select"):
        assert getattr(config, name) == given[name], name
    assert (config.network, config.size, config.method_options) == ("efficientnet-lite1", "64x64", {"eta": 0.5})
    assert config.network_options["hidden"] == 9


def test_tuning_sees_mirror_images_unless_they_change_the_labels() -> None:
    assert settled().views == settled(tune="last", flip=False).views == 1
    assert settled(tune="last", network="efficientnet-lite0").views == 1  # digits
    assert settle(Config("made").with_settings({"tune": "last"}), data())[0].views == 2
    assert settled(tune="last", flip=False, views=3).views == 3


def test_tiny_images_are_trained_from_scratch_with_the_reason() -> None:
    config, lines = settle(Config("made"), data(side=8))
    assert (config.network, config.method) == ("resnet32", "crl")
    assert "8 x 8 pixels are too few" in lines[0]


def test_without_the_package_of_the_weights_training_is_from_scratch_and_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(name: str, weights: object = None) -> None:
        raise ModuleNotFoundError("pip install 'rectifier[pretrained]'")

    monkeypatch.setattr(recipe, "check_backbone", missing)
    config, lines = settle(Config("made"), data())
    assert config.network == "resnet32"
    assert "rectifier[pretrained]" in lines[0]


def test_the_epoch_is_chosen_under_the_rule_that_will_be_used() -> None:
    assert settled(method="ce").select == "prior"
    assert settled(method="crl").select == "prior"
    for method in ("logit-adjustment", "over-sampling", "class-balanced"):
        assert settled(method=method).select == "argmax"


@pytest.mark.parametrize(
    ("images", "batch", "epochs"), [(100, 16, 200), (800, 32, 80), (2000, 64, 64), (50_000, 128, 30)]
)
def test_networks_from_scratch_get_enough_steps(images: int, batch: int, epochs: int) -> None:
    config = settled(images, network="resnet32")
    assert (config.batch_size, config.epochs) == (batch, epochs)
    steps = images / batch * epochs
    assert steps >= 0.6 * recipe.STEPS


def test_adamw_does_not_inherit_the_rate_of_sgd() -> None:
    assert settled(network="resnet32", optimizer="adamw").lr == recipe.ADAMW_RATE
    assert settled(network="resnet32").lr is None  # the network's own, for SGD
    assert settled(network="efficientnet-lite0", optimizer="sgd").lr == 0.01
    assert settled(network="efficientnet-lite0").lr == recipe.HEAD["lr"]


def test_a_cosine_classifier_is_one_head_without_a_hidden_layer() -> None:
    config = settled(method="ldam")
    assert config.heads == 1
    assert "hidden" not in config.network_options


def test_methods_that_start_late_get_an_epoch_after_that() -> None:
    assert (settled(network="resnet32", method="drw").epochs or 0) >= 5


def test_a_network_that_cannot_be_built_is_refused_before_anything_is_decoded() -> None:
    class NoPixels(ImageArray):
        def gather(self, *_: object, **__: object) -> Any:
            raise AssertionError("decoded")

    made = data()
    made = ImageData("made", NoPixels(made.images.pixels), made.targets, SPACE, made.split)  # type: ignore[attr-defined]
    with pytest.raises(FileNotFoundError, match=r"absent\.pt"):
        settle(Config("made", weights="absent.pt", network="efficientnet-lite0"), made)


def test_settings_that_heads_do_not_use_are_named() -> None:
    asked = {"network": "efficientnet-lite0", "clip": 1.0, "patience": 3, "schedule": "step", "size": "64"}
    *_, images, recipe_line, unused = settle(Config("made").with_settings(asked), data())[1]
    assert "64 x 64 pixels, as asked (the weights' own size is 224 x 224)" in images
    assert "logit-adjustment on efficientnet-lite0" in recipe_line  # a network with a name has a method
    assert unused.startswith("Without effect on heads: clip, patience, schedule=step.")
    assert len(settle(Config("made").with_settings({**asked, "tune": "last"}), data())[1]) == 2
    assert len(settle(Config("made").with_settings({"network": "efficientnet-lite0"}), data())[1]) == 2


@pytest.mark.parametrize(("tune", "named"), [("head", True), ("last", True), ("all", False)])
def test_augmentation_of_images_that_are_not_read_again_is_named(tune: str, named: bool) -> None:
    lines = settle(Config("made").with_settings({"augment": "trivial", "tune": tune}), data())[1]
    assert ("Without effect on cached features: augment. Use --tune all." in lines) == named


def test_a_run_as_weights_brings_its_network(tmp_path: Path) -> None:
    Run.create(tmp_path / "run", Config("made", network="efficientnet-lite1", method="ce"))
    (tmp_path / "run" / "weights.safetensors").write_bytes(b"")
    config, lines = settle(Config("made", weights=str(tmp_path / "run")), data())
    assert config.network == "efficientnet-lite1"
    assert lines[0] == f"Network: efficientnet-lite1, that of the run {tmp_path / 'run'}."


@pytest.mark.parametrize(
    "asked", [{"method": "ldam"}, {"network.classifier": "cosine"}, {"network.scale_learned": True}]
)
def test_several_heads_that_have_no_mean_are_refused_before_work(asked: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="heads to be 1 for"):
        settled(network="efficientnet-lite0", heads=5, **asked)


def test_fine_tuning_has_small_batches_on_large_data() -> None:
    assert settled(50_000, tune="last", network="efficientnet-lite0").batch_size == 128


def test_large_data_gets_larger_batches_and_fewer_epochs() -> None:
    assert [settled(images).batch_size for images in (100, 8000, 8001, 50_000)] == [128, 128, 256, 512]
    assert [settled(images).epochs for images in (100, 30_000, 30_001)] == [30, 30, 15]
    assert settled(epochs=9).epochs == 9
    tuned = settled(tune="last", epochs=9)
    assert (tuned.epochs, head_epochs(tuned, 100)) == (9, 30)  # of fine-tuning, and of the heads before it
