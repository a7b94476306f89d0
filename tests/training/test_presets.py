"""Presets: each is a config, and those of the paper have the paper's numbers."""

from __future__ import annotations

import pytest
import torch

from rectifier import LabelSpace, imbalance_measure
from rectifier.data.sources import SOURCES, source_options
from rectifier.methods import build_objective
from rectifier.training.config import Config
from rectifier.training.presets import PRESETS, preset

STATED = ("network", "lr", "weight_decay", "momentum", "batch_size", "epochs")
PAPER = {
    # "Comparisons on Facial Attributes Recognition", Parameter Settings: "We trained the CRL from scratch by the
    # learning rate at 0.001, the decay at 0.0005, the momentum at 0.9, the batch size at 256, and the epoch at 921."
    # Network Architecture: DeepID2.
    "celeba": ("deepid2", 0.001, 0.0005, 0.9, 256, 921),
    # "Comparisons on Clothing Attributes Recognition", Parameter Settings: "We pre-trained the base network on
    # ImageNet-1K at the learning rate 0.01, then fine-tuned the CRL model on the X-Domain images at a lower learning
    # rate 0.001. We set the decay to 0.0005, the momentum to 0.9, the batch size to 128, and the epoch to 256."
    # Network Architecture: "the same network structure as the MTCT".
    "xdomain": ("mtct", 0.001, 0.0005, 0.9, 128, 256),
    # The same section, Further Evaluation (DeepFashion): "ResNet50 as the base network"; "from scratch with the
    # learning rate as 0.01, the decay as 0.00004, the batch size as 64, and the epoch as 141". Momentum is ours.
    "deepfashion": ("resnet50", 0.01, 0.00004, 0.9, 64, 141),
    # "Comparisons on Object Category Recognition", Parameter Settings: "We trained each CNN from scratch with the
    # learning rate at 0.1, the decay at 0.0005, the momentum at 0.9, the batch size at 256, and the epoch at 200."
    "cifar100": ("resnet32", 0.1, 0.0005, 0.9, 256, 200),
}
PAPER["cifar100-balanced"] = PAPER["cifar100"]

# "We set the loss weight eta to 0.01" (CelebA and X-Domain); "For the class imbalanced cases, we set
# eta = 0.01/0.5/0.5 for CifarNet/ResNet32/DenseNet" (CIFAR-100).
ETA = {"celeba": 0.01, "xdomain": 0.01, "cifar100": 0.5}

SPACE = LabelSpace.from_names({"kind": ["cat", "dog"]})


def alpha(config: Config, counts: list[int]) -> float:
    """The weight of the rectification that training would have with these training counts."""
    objective = build_objective(config.method, [torch.tensor(counts)], SPACE, **config.method_options)
    return float(objective.alpha)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_a_config_with_its_settings(name: str) -> None:
    config = preset(name)
    found = {**config.as_dict(), **config.method_options}
    assert {key: found[key] for key in PRESETS[name].settings} == PRESETS[name].settings
    assert Config.from_dict(config.as_dict()) == config


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_names_data_with_options_that_it_takes(name: str) -> None:
    source, _, options = preset(name).data.partition(":")
    assert source in SOURCES
    assert {entry.partition("=")[0] for entry in options.split(",") if entry} <= set(source_options(source, None))


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_settings(name: str) -> None:
    config = preset(name)
    assert tuple(getattr(config, key) for key in STATED) == PAPER[name]
    assert config.optimizer == "sgd"


@pytest.mark.parametrize("name", ETA)
def test_the_papers_weight_of_the_rectification(name: str) -> None:
    config, counts = preset(name), [90, 10]
    assert config.method == "crl"
    assert alpha(config, counts) == pytest.approx(ETA[name] * float(imbalance_measure(torch.tensor(counts))))


def test_balanced_classes_are_weighted_equally() -> None:
    # The same Parameter Settings: "In the class balanced test, [...] we integrated our CRL with the CE loss using equal
    # weight by setting alpha = 0.5 for all models."
    assert (preset("cifar100").data, preset("cifar100-balanced").data) == ("cifar100:imb=1", "cifar100")
    assert alpha(preset("cifar100-balanced"), [50, 50]) == 0.5
    assert alpha(preset("cifar100"), [50, 50]) == 0


def test_presets_leave_their_table_as_it_is() -> None:
    before = {name: dict(entry.settings) for name, entry in PRESETS.items()}
    for name in PRESETS:
        preset(name).with_settings({"epochs": 1})
    assert {name: entry.settings for name, entry in PRESETS.items()} == before


def test_an_unknown_preset() -> None:
    with pytest.raises(ValueError, match=r"Expected preset to be one of 'celeba', .* Did you mean 'cifar100'\?"):
        preset("cifar10")
