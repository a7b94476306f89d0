"""What every network keeps to."""

from __future__ import annotations

import copy

import pytest
import torch

from helpers.network_forms import FORMS, LAYOUTS, TRIED, images_for, make, settled
from rectifier.networks.head import Output
from rectifier.networks.registry import NETWORKS, build_network, network_options

# The smallest images that each takes, and some that it was published for or that are likely.
SMALLEST = {"deepid2": 31, "mtct": 71, "cifarnet": 4, "resnet32": 3, "densenet": 4, "resnet50": 17, "mlp": 1}
SMALLEST |= {"panda": 16, "anet": 31 + 6, "ddan": 39, "darn": 71, "fashionnet": 32}
SMALLEST |= {f"efficientnet-lite{number}": 32 for number in range(3)}
SHAPES = {
    "deepid2": [(55, 47), (64, 64), (31, 40)],
    "mtct": [(96, 80), (71, 71)],
    "cifarnet": [(32, 32), (8, 8), (4, 9)],
    "resnet32": [(32, 32), (8, 8), (3, 5)],
    "densenet": [(32, 32), (8, 8), (4, 7)],
    "resnet50": [(64, 48), (17, 33)],
    "mlp": [(8, 8), (1, 1)],
    "panda": [(112, 112), (55, 47), (16, 31)],
    "anet": [(61, 53), (64, 64), (37, 43)],
    "ddan": [(227, 227), (96, 80), (39, 41)],
    "darn": [(227, 227), (96, 80), (71, 76)],
    "fashionnet": [(224, 224), (64, 48), (32, 63)],
    "efficientnet-lite0": [(224, 224), (48, 65)],
    "efficientnet-lite1": [(240, 240)],
    "efficientnet-lite2": [(32, 33)],
}


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_takes_every_layout_and_shape(name: str, channels: int) -> None:
    for height, width in SHAPES[name]:
        for sizes in LAYOUTS.values():
            with torch.device("meta"):  # shapes alone: no memory, no arithmetic
                network = build_network(name, sizes, (height, width, channels))
                output = network(torch.empty(2, channels, height, width))
            assert isinstance(output, Output)
            assert output.logits.shape == (2, sum(sizes))
            assert output.features.shape[0] == 2
            assert network.sizes == tuple(sizes)
            branched = name in ("deepid2", "mtct", "ddan", "darn")
            assert output.features.dim() == (3 if branched else 2)
            assert not branched or output.features.shape[1] == len(sizes)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", NETWORKS)
def test_logits_are_finite_at_first(name: str, layout: str) -> None:
    shape = (*TRIED.get(name, (8, 9)), 3)
    network = build_network(name, LAYOUTS[layout], shape, seed=0)
    with torch.no_grad():
        logits, features = network(images_for(network, 2))
    assert torch.isfinite(logits).all()
    assert torch.isfinite(features).all()


@pytest.mark.parametrize("form", FORMS)
def test_a_gradient_reaches_every_parameter(form: str) -> None:
    network = make(form)
    logits, features = network(images_for(network, 8))
    assert torch.isfinite(logits).all()
    assert torch.isfinite(features).all()
    torch.nn.functional.cross_entropy(logits, torch.arange(8) * 3).backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        assert parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize("form", FORMS)
def test_in_evaluation_samples_do_not_see_each_other(form: str) -> None:
    network = settled(make(form, "celeba", channels=1))
    images = images_for(network, 5)
    with torch.no_grad():
        together = network(images)
        alone = [network(image[None]) for image in images]
    for whole, parts in zip(together, zip(*alone, strict=True), strict=True):
        torch.testing.assert_close(torch.cat(parts), whole, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("form", FORMS)
def test_one_seed_one_network_whatever_the_global_state(form: str) -> None:
    first = make(form, seed=3)
    torch.manual_seed(99)
    state = torch.get_rng_state()
    second = make(form, seed=3)
    assert torch.equal(torch.get_rng_state(), state)
    for name, parameter in first.state_dict().items():
        assert torch.equal(parameter, second.state_dict()[name]), name
    other = make(form, seed=4)
    assert not torch.equal(first.head.classifier.weight, other.head.classifier.weight)


def test_without_a_seed_weights_come_from_the_global_state() -> None:
    torch.manual_seed(0)
    first = build_network("mlp", [3], (4, 4, 1)).head.classifier.weight
    torch.manual_seed(0)
    assert torch.equal(build_network("mlp", [3], (4, 4, 1)).head.classifier.weight, first)


@pytest.mark.parametrize("form", FORMS)
def test_channels_last_gives_the_same(form: str) -> None:
    network = settled(make(form))
    other = copy.deepcopy(network).to(memory_format=torch.channels_last)
    images = images_for(network)
    with torch.no_grad():
        expected, got = network(images), other(images.to(memory_format=torch.channels_last))
    torch.testing.assert_close(got.logits, expected.logits, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(got.features, expected.features, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("form", FORMS)
def test_bfloat16_autocast_trains(form: str) -> None:
    network = make(form).to(memory_format=torch.channels_last)
    images = images_for(network).to(memory_format=torch.channels_last)
    with torch.autocast("cpu", torch.bfloat16):
        logits, features = network(images)
    assert logits.dtype == torch.bfloat16
    (logits.float().logsumexp(1).sum() + features.float().sum()).backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in network.parameters())


@pytest.mark.parametrize("form", [form for form in FORMS if form != "resnet50"])
def test_forward_is_one_graph(form: str) -> None:
    torch._dynamo.reset()
    network = settled(make(form))
    images = images_for(network)
    compiled = torch.compile(network, fullgraph=True, backend="eager")
    with torch.no_grad(), torch._dynamo.config.patch(error_on_recompile=True):
        for seed in range(2):
            images = images_for(network, seed=seed)
            torch.testing.assert_close(compiled(images), network(images))
    torch._dynamo.reset()


@pytest.mark.parametrize("form", ["deepid2 local", "resnet8", "mlp deep"])
def test_a_training_step_is_one_graph(form: str) -> None:
    torch._dynamo.reset()
    network = make(form)
    for module in network.modules():  # random numbers are drawn in another order in a compiled graph
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    twin = copy.deepcopy(network)
    compiled = torch.compile(twin, fullgraph=True, backend="aot_eager")
    images = images_for(network)
    for each in (network, compiled):
        each(images).logits.square().sum().backward()
    for (name, ours), theirs in zip(twin.named_parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-3, rtol=1e-3, msg=name)
    torch._dynamo.reset()


@pytest.mark.parametrize("name", NETWORKS)
def test_too_small_an_image_is_refused_with_the_smallest_that_works(name: str) -> None:
    side = SMALLEST[name]
    with torch.device("meta"):
        network = build_network(name, [3], (side, side, 3))
        assert network(torch.empty(2, 3, side, side)).logits.shape == (2, 3)
    if side > 1:
        for height, width in ((side - 1, side), (side, side - 1)):
            with pytest.raises(ValueError, match=f"at least {side} x {side}, but got {height} x {width}"):
                build_network(name, [3], (height, width, 3))


def test_the_other_cifarnet_needs_more() -> None:
    assert build_network("cifarnet", [3], (8, 8, 1), form="cuda-convnet").trunk.fc1.in_features == 64
    with pytest.raises(ValueError, match="cifarnet in form 'cuda-convnet' to be at least 8 x 8, but got 7 x 8"):
        build_network("cifarnet", [3], (7, 8, 1), form="cuda-convnet")


@pytest.mark.parametrize("shape", [(3, 32, 32), (32, 32), (32, 32, 0), (32, 32, 3.0), 32, (True, 32, 3)])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_shape_is_height_width_channels(name: str, shape: object) -> None:
    with pytest.raises(ValueError, match=r"shape to be \(height, width, channels\)"):
        build_network(name, [3], shape)


def test_a_perceptron_takes_vectors() -> None:
    network = build_network("mlp", [3, 4], (20,), hidden=0)
    assert network(torch.randn(5, 20)).features.shape == (5, 20)
    with pytest.raises(ValueError, match=r"images to be of shape \(N, 20\), but got shape \(5, 21\)"):
        network(torch.randn(5, 21))


def test_images_of_another_kind_are_refused() -> None:
    network = build_network("resnet32", [3], (32, 24, 3), depth=8)
    with pytest.raises(ValueError, match=r"of shape \(N, 3, 32, 24\), but got shape \(2, 32, 24, 3\)"):
        network(torch.zeros(2, 32, 24, 3))
    with pytest.raises(TypeError, match=r"floating point tensor, but got a torch\.uint8 tensor"):
        network(torch.zeros(2, 3, 32, 24, dtype=torch.uint8))


@pytest.mark.parametrize(
    ("given", "meant"), [("resnet23", "resnet32"), ("deepid", "deepid2"), ("timn:NAME", "timm:NAME")]
)
def test_an_unknown_name_is_answered_with_the_nearest(given: str, meant: str) -> None:
    with pytest.raises(ValueError, match=f"No network '{given}'. Did you mean '{meant}'"):
        build_network(given, [3], (32, 32, 3))


@pytest.mark.parametrize("name", NETWORKS)
def test_an_unknown_option_is_answered_with_the_nearest(name: str) -> None:
    option = network_options(name)[0]
    with pytest.raises(TypeError, match=f"every option of .* to be among .*Did you mean '{option}'"):
        build_network(name, [3], (96, 96, 3), **{option + "x": 1})


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("resnet32", {"depth": 31}, r"depth to be 6n \+ 2"),
        ("resnet32", {"depth": 2}, r"depth to be 6n \+ 2"),
        ("densenet", {"depth": 41}, r"depth to be 3n \+ 4"),
        ("densenet", {"depth": 13, "bottleneck": True}, r"depth to be 6n \+ 4"),
        ("densenet", {"growth": 0}, "growth to be a positive integer, but got 0"),
        ("densenet", {"bottleneck": 1}, "bottleneck to be True or False"),
        ("densenet", {"compression": 1.5}, "compression to be a number above 0 and at most 1"),
        ("cifarnet", {"form": "tensorflw"}, "form to be one of .*Did you mean 'tensorflow'"),
        ("cifarnet", {"dropout": -0.1}, "dropout to be a number from 0 and below 1"),
        ("deepid2", {"local": "yes"}, "local to be True or False"),
        ("deepid2", {"branch": -1}, "branch to be a width"),
        ("mtct", {"branch": "512"}, "branch to be a width"),
        ("resnet50", {"branch": (64, 0)}, "branch to be a width"),
        ("mlp", {"hidden": True, "branch": 2.5}, "hidden to be a width.*\n.*branch to be a width"),
        ("panda", {"parts": "faces"}, "parts to be one of .*Did you mean 'face'"),
        ("panda", {"side": 15, "maps": 0}, "side to be an integer, 16 or more, but got 15.*\n.*maps to be a positive"),
        ("anet", {"shift": -1, "region": 0}, "region to be a positive.*\n.*shift to be a number of pixels, 0 or more"),
        ("anet", {"features": 1.5}, "features to be a positive integer"),
        ("darn", {"shared": -1}, "shared to be a width"),
        ("ddan", {"dropout": 1}, "dropout to be a number from 0 and below 1"),
        ("fashionnet", {"shared": (64, True)}, "shared to be a width"),
    ],
)
def test_a_wrong_option_is_refused(name: str, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_network(name, [3], (96, 96, 3), **options)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_can_end_in_cosines(name: str) -> None:
    shape = (*TRIED.get(name, (8, 9)), 3)
    with torch.device("meta"):
        linear = build_network(name, [3, 4], shape)
        network = build_network(name, [3, 4], shape, classifier="cosine")
        assert network(torch.empty(2, *network.sample_shape)).logits.shape == (2, 7)
    assert set(linear.state_dict()) - set(network.state_dict()) == {"head.classifier.bias"}
    assert network.head.classifier.weight.shape == linear.head.classifier.weight.shape
    with pytest.raises(ValueError, match=r"classifier to be one of 'linear', 'cosine', but got 'cosin'.*mean 'cosine'"):
        build_network(name, [3, 4], shape, classifier="cosin")


def test_every_network_says_what_it_is_and_what_it_was_made_for() -> None:
    for name, architecture in NETWORKS.items():
        assert architecture.about
        assert architecture.build.__doc__
        with torch.device("meta"):
            assert build_network(name, [2], architecture.shape).shape == architecture.shape
