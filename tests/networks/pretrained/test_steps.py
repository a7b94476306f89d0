"""Networks as sequences of steps, and groups of parameters where they are none."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from rectifier.networks.pretrained.backbone import Backbone, Preprocessing
from rectifier.networks.pretrained.loading import load_backbone
from rectifier.networks.pretrained.steps import groups


class Residual(nn.Module):
    """A network like torchvision's: stages as containers, and operations between them that are no modules."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.layer1 = nn.Sequential(nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1))
        self.layer2 = nn.Sequential(nn.Conv2d(4, 6, 2, stride=2), nn.Conv2d(6, 6, 3, padding=1))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(6, 5)

    def forward(self, images: Tensor) -> Tensor:
        return self.fc(torch.flatten(self.pool(self.layer2(self.layer1(self.norm(self.conv(images))))), 1))


class Tokens(nn.Module):
    """A network like a transformer: a parameter of its own, and blocks in an encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.zeros(1, 1, 4))
        self.patches = nn.Conv2d(3, 4, 4, stride=4)
        self.encoder = nn.Module()
        self.encoder.blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(6))
        self.norm = nn.LayerNorm(4)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.patches(images).flatten(2).transpose(1, 2) + self.token
        for block in self.encoder.blocks:
            tokens = block(tokens).relu()
        return self.norm(tokens).mean(1)


def backbone(trunk: nn.Module, width: int, size: int = 16) -> Backbone:
    prepared = Preprocessing((size, size), (0.5,) * 3, (0.5,) * 3, "bilinear")
    torch.manual_seed(0)
    return Backbone("toy", trunk.eval(), width, prepared, "", "", "")


def settled() -> Backbone:
    return load_backbone("efficientnet-lite0", size=48)


BACKBONES = {"lite": settled, "residual": lambda: backbone(Residual(), 5), "tokens": lambda: backbone(Tokens(), 4)}


@pytest.mark.parametrize("tune", ["head", "last", "all"])
@pytest.mark.parametrize("kind", BACKBONES)
def test_a_cut_network_is_the_whole_network(kind: str, tune: str) -> None:
    made = BACKBONES[kind]()
    below, above = made.cut(tune)
    given = torch.randn(3, 3, *made.preprocessing.size)
    with torch.no_grad():
        torch.testing.assert_close(above(below(given)), made.trunk(given), atol=1e-6, rtol=0)


@pytest.mark.parametrize("tune", ["head", "last", "all"])
@pytest.mark.parametrize("kind", BACKBONES)
def test_the_penultimate_layer_follows_the_last_one(kind: str, tune: str) -> None:
    """The features are both layers, wherever the network is cut, and its weights and stages are those that it had."""
    plain = BACKBONES[kind]()
    made = plain.with_penultimate()
    given = torch.randn(3, 3, *made.preprocessing.size)
    below, above = made.cut(tune)
    with torch.no_grad():
        features, last = above(below(given)), plain.trunk(given)
        torch.testing.assert_close(features[:, : plain.width], last, atol=1e-6, rtol=0)
        torch.testing.assert_close(made.features(given), features, atol=1e-6, rtol=0)
    assert features.shape == (3, made.width)
    assert made.trunk is plain.trunk
    assert [len(stage) for stage in made.stages()] == [len(stage) for stage in plain.stages()]
    if kind == "tokens":  # no sequence of steps
        assert made is plain
    else:
        steps = made.steps.modules[: made.steps.before_last_layer()] if made.steps else ()
        with torch.no_grad():
            penultimate = nn.Sequential(*steps)(given)
        expected = penultimate.mean((2, 3)) if penultimate.dim() == 4 else penultimate
        torch.testing.assert_close(features[:, plain.width :], expected, atol=1e-6, rtol=0)
        assert made.width == {"lite": 1280 + 320, "residual": 5 + 6}[kind]


@pytest.mark.parametrize("kind", BACKBONES)
def test_stages_hold_every_parameter_once(kind: str) -> None:
    made = BACKBONES[kind]()
    found = [id(parameter) for stage in made.stages() for parameter in stage]
    assert len(set(found)) == len(found)
    assert set(found) == {id(parameter) for parameter in made.trunk.parameters()}


@pytest.mark.parametrize("kind", BACKBONES)
def test_more_is_trained_from_head_to_last_to_all(kind: str) -> None:
    made = BACKBONES[kind]()
    head, last, whole = ({id(p) for p in made.trainable(tune)} for tune in ("head", "last", "all"))
    assert head == set()
    assert head < last < whole == {id(p) for p in made.trunk.parameters()}
    assert {id(p) for p in made.stages()[-1]} <= last
    assert not {id(p) for p in made.stages()[0]} & last


def test_the_last_stage_starts_at_the_smallest_maps() -> None:
    made = load_backbone("efficientnet-lite0")
    below, above = made.cut("last")
    with torch.no_grad():
        assert below(torch.zeros(1, 3, 224, 224)).shape == (1, 192, 7, 7)
    assert len(made.stages()) == 9  # stem, seven stages, head
    assert {id(p) for p in above.parameters()} == {id(p) for p in made.trainable("last")}
    residual = backbone(Residual(), 5)
    assert residual.cut("last")[0](torch.zeros(1, 3, 16, 16)).shape == (1, 6, 4, 4)
    assert [len(stage) for stage in residual.stages()] == [8, 4, 2]  # layer1 has the maps of the first convolution


def test_training_what_is_above_trains_the_trunk() -> None:
    made = backbone(Residual(), 5)
    with torch.no_grad():
        next(made.cut("last")[1].parameters()).zero_()
    assert made.trunk.layer2[1].weight.abs().max() == 0


def test_a_network_that_is_no_sequence_is_trained_from_images() -> None:
    made = backbone(Tokens(), 4)
    assert made.steps is None
    below, above = made.cut("last")
    assert isinstance(below, nn.Identity)
    assert above is made.trunk
    names = {id(p): name for name, p in made.trunk.named_parameters()}
    assert {names[id(p)] for p in made.trainable("last")} == {
        *(f"encoder.blocks.{number}.{kind}" for number in (3, 4, 5) for kind in ("weight", "bias")),
        *("norm.weight", "norm.bias"),
    }
    assert [names[id(p)] for p in groups(made.trunk)[0]] == ["token", "patches.weight", "patches.bias"]
    assert len(groups(made.trunk)) == 8


def test_looking_for_steps_leaves_no_trace() -> None:
    made = backbone(Residual(), 5)
    made.trunk.train()
    made.trunk.pool.eval()
    state = torch.get_rng_state()
    assert made.steps is not None
    assert torch.equal(torch.get_rng_state(), state)
    assert made.trunk.training
    assert not made.trunk.pool.training
    assert int(made.trunk.norm.num_batches_tracked) == 0


def test_an_unknown_tune_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"tune to be one of 'head', 'last', 'all', but got 'lst'. Did you mean 'last'"
    ):
        backbone(Tokens(), 4).cut("lst")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"size": (16, 0)}, "size to be a height and a width"),
        ({"interpolation": "bicubi"}, "interpolation to be one of .* Did you mean 'bicubic'"),
        ({"std": (0.5,)}, "std to be as long as mean and positive"),
    ],
)
def test_a_wrong_preparation_is_refused(changed: dict, message: str) -> None:
    known = {"size": (16, 16), "mean": (0.5,) * 3, "std": (0.5,) * 3, "interpolation": "bicubic"}
    with pytest.raises(ValueError, match=message):
        Preprocessing(**{**known, **changed})
