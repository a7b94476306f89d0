"""ANet: the mean over shifted crops in evaluation, one of them in training."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from rectifier.networks.anet import anet
from rectifier.networks.layers import LocalConv2d
from rectifier.networks.registry import build_network

HEIGHT, WIDTH = 41, 38


def small(shift: int = 6, **options: object):
    return build_network("anet", [2, 3], (HEIGHT, WIDTH, 3), seed=0, shift=shift, **options)


def crops_one_by_one(network, images: Tensor, shift: int) -> list[Tensor]:
    """Features of each crop, from a network without crops that has the same weights."""
    plain = build_network("anet", [2, 3], (HEIGHT - shift, WIDTH - shift, 3), seed=1, shift=0).eval()
    plain.load_state_dict(network.state_dict())
    places = [(0, 0), (0, shift), (shift, 0), (shift, shift), (shift // 2, shift // 2)]
    return [plain(images[:, :, y : y + HEIGHT - shift, x : x + WIDTH - shift]).features for y, x in places]


def test_in_evaluation_features_are_the_mean_over_the_crops() -> None:
    network = small().eval()
    images = torch.randn(3, 3, HEIGHT, WIDTH)
    with torch.no_grad():
        logits, features = network(images)
        each = crops_one_by_one(network, images, 6)
    assert len({tuple(crop.flatten().tolist()) for crop in each}) == 5
    torch.testing.assert_close(features, torch.stack(each).mean(0))
    torch.testing.assert_close(logits, network.head(features).logits)


def test_in_training_every_image_is_seen_by_one_crop_of_its_own() -> None:
    network = small().train()
    images = torch.randn(40, 3, HEIGHT, WIDTH)
    torch.manual_seed(0)
    with torch.no_grad():
        features = network(images).features
        each = torch.stack(crops_one_by_one(network, images, 6))
    nearest = (each - features).abs().amax(2)  # (crops, images)
    assert (nearest.amin(0) < 1e-5).all()
    assert set(nearest.argmin(0).tolist()) == set(range(5))


def test_crops_are_drawn_from_the_global_state() -> None:
    network = small().train()
    images = torch.randn(8, 3, HEIGHT, WIDTH)

    def drawn(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return network(images).features

    assert torch.equal(drawn(0), drawn(0))
    assert not torch.equal(drawn(0), drawn(1))


def test_without_shift_training_and_evaluation_see_the_same() -> None:
    network = small(shift=0)
    images = torch.randn(3, 3, HEIGHT, WIDTH)
    assert network.trunk.places == ((0, 0),)
    torch.testing.assert_close(network.train()(images).logits, network.eval()(images).logits)


def test_a_training_step_is_one_graph() -> None:
    torch._dynamo.reset()
    network = small()
    compiled = torch.compile(network, fullgraph=True, backend="aot_eager")
    images = torch.randn(4, 3, HEIGHT, WIDTH)
    compiled(images).logits.square().sum().backward()
    assert all(parameter.grad.abs().max() > 0 for parameter in network.parameters())
    torch._dynamo.reset()


@pytest.mark.parametrize("region", [1, 2, 3])
def test_the_last_two_convolutions_share_weights_within_regions_only(region: int) -> None:
    trunk = anet([2], (61, 53, 3), region=region).trunk
    assert trunk.crop == (55, 47)
    assert all(isinstance(layer, LocalConv2d) for layer in (trunk.conv3, trunk.conv4))
    assert len(trunk.conv3.weight) == -(-10 // region) * -(-8 // region)
    assert len(trunk.conv4.weight) == -(-4 // region) * -(-3 // region)


def test_it_has_the_size_that_its_layers_add_up_to() -> None:
    network = anet([2] * 40, (61, 53, 3))
    conv = (3 * 16 + 1) * 20 + (20 * 9 + 1) * 40 + 5 * 4 * (40 * 9 + 1) * 60 + 2 * 2 * (60 * 4 + 1) * 80
    assert sum(p.numel() for p in network.parameters()) == conv + (80 * 4 * 3 + 1) * 160 + 161 * 80


def test_the_smallest_image_grows_with_the_shift() -> None:
    assert anet([2], (33, 33, 1), shift=2).trunk.crop == (31, 31)
    with pytest.raises(ValueError, match="images for anet to be at least 34 x 34, but got 33 x 40"):
        anet([2], (33, 40, 1), shift=3)
