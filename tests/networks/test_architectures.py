"""Single networks: numbers of parameters against the literature and by hand, layers against independent versions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from rectifier.networks.cifarnet import cifarnet
from rectifier.networks.deepid2 import deepid2
from rectifier.networks.densenet import densenet
from rectifier.networks.layers import LocalConv2d, ResponseNorm
from rectifier.networks.registry import build_network


def parameters(name: str, sizes: list[int], shape: tuple[int, int, int], **options: object) -> int:
    with torch.device("meta"):
        network = build_network(name, sizes, shape, **options)
    return sum(parameter.numel() for parameter in network.parameters())


CIFAR = (32, 32, 3)


def resnet_by_hand(n: int, classes: int) -> int:
    first = 3 * 16 * 9 + 2 * 16
    stage1 = n * (2 * 16 * 16 * 9 + 2 * 2 * 16)
    stage2 = (16 * 32 * 9 + 32 * 32 * 9 + 2 * 2 * 32) + (n - 1) * (2 * 32 * 32 * 9 + 2 * 2 * 32)
    stage3 = (32 * 64 * 9 + 64 * 64 * 9 + 2 * 2 * 64) + (n - 1) * (2 * 64 * 64 * 9 + 2 * 2 * 64)
    return first + stage1 + stage2 + stage3 + 65 * classes


def densenet_by_hand(n: int, k: int, classes: int) -> int:
    total, maps = 3 * 16 * 9, 16
    for block in range(3):
        for _ in range(n):
            total += 2 * maps + 9 * maps * k
            maps += k
        total += 2 * maps + (maps * maps if block < 2 else 0)
    return total + (maps + 1) * classes


@pytest.mark.parametrize(
    ("depth", "classes", "published"),
    # He et al. 2016, table 6, for 10 classes
    [(20, 10, 0.27), (32, 10, 0.46), (44, 10, 0.66), (56, 10, 0.85), (110, 10, 1.7), (32, 100, 0.47)],
)
def test_resnet_has_the_published_size(depth: int, classes: int, published: float) -> None:
    number = parameters("resnet32", [classes], CIFAR, depth=depth)
    assert number == resnet_by_hand((depth - 2) // 6, classes)
    assert number / 1e6 == pytest.approx(published, abs=0.05 if depth == 110 else 0.01)


def test_resnet32_with_100_classes() -> None:
    assert parameters("resnet32", [100], CIFAR) == 470_004


@pytest.mark.parametrize(
    ("depth", "growth", "published"),
    [(40, 12, 1.0), (100, 12, 7.0), (100, 24, 27.2)],  # Huang et al. 2017, table 2
)
def test_densenet_has_the_published_size(depth: int, growth: int, published: float) -> None:
    number = parameters("densenet", [10], CIFAR, depth=depth, growth=growth)
    assert number == densenet_by_hand((depth - 4) // 3, growth, 10)
    assert number / 1e6 == pytest.approx(published, abs=0.06)


@pytest.mark.parametrize(("depth", "growth", "published"), [(100, 12, 0.8), (250, 24, 15.3), (190, 40, 25.6)])
def test_densenet_bc_has_the_published_size(depth: int, growth: int, published: float) -> None:
    number = parameters("densenet", [10], CIFAR, depth=depth, growth=growth, bottleneck=True, compression=0.5)
    assert number / 1e6 == pytest.approx(published, abs=0.06)


def test_densenet_40_12_with_10_classes() -> None:
    assert parameters("densenet", [10], CIFAR) == 1_019_722
    assert densenet([10], CIFAR).trunk.features == 16 + 36 * 12


def test_resnet50_has_the_known_size() -> None:
    assert parameters("resnet50", [1000], (224, 224, 3)) == 25_557_032


def test_deepid2_joins_the_published_inputs() -> None:
    network = deepid2([2] * 40, (55, 47, 3))
    assert network.trunk.joined.in_features == 1_200 + 960
    assert network.trunk.joined.out_features == 160
    conv = (3 * 16 + 1) * 20 + (20 * 9 + 1) * 40 + (40 * 9 + 1) * 60 + (60 * 4 + 1) * 80
    assert parameters("deepid2", [2] * 40, (55, 47, 3)) == conv + 2_161 * 160 + 40 * (161 * 64 + 65 * 2)


def test_local_deepid2_has_its_weights_once_for_each_region() -> None:
    shared = parameters("deepid2", [2] * 40, (55, 47, 3))
    more = (20 - 1) * (40 * 9 + 1) * 60 + (12 - 1) * (60 * 4 + 1) * 80  # 5 x 4 regions, 4 x 3 places
    assert parameters("deepid2", [2] * 40, (55, 47, 3), local=True) == shared + more


def test_mtct_has_the_size_that_its_layers_add_up_to() -> None:
    conv, channels = 0, 3
    for maps, side in ((96, 11), (256, 5), (384, 3), (512, 3), (512, 3)):
        conv += (channels * side * side + 1) * maps + 2 * (maps + 1) * maps
        channels = maps
    branches = 3 * (513 * 512 + 513 * 128) + 129 * (6 + 9 + 55)
    assert parameters("mtct", [6, 9, 55], (256, 256, 3)) == conv + branches


def test_cifarnet_has_the_size_that_its_layers_add_up_to() -> None:
    conv = (3 * 25 + 1) * 64 + (64 * 25 + 1) * 64
    assert parameters("cifarnet", [10], (24, 24, 3)) == conv + 2305 * 384 + 385 * 192 + 193 * 10
    krizhevsky = (3 * 25 + 1) * 32 + (32 * 25 + 1) * 32 + (32 * 25 + 1) * 64 + 1025 * 64 + 65 * 10
    assert parameters("cifarnet", [10], CIFAR, form="cuda-convnet") == krizhevsky


# Independent versions.


def functional_resnet(weights: dict[str, Tensor], images: Tensor, n: int) -> Tensor:
    """He et al. read again: tensors in the order in which they were made, no modules."""
    tensors = iter(tensor for name, tensor in weights.items() if not name.endswith("num_batches_tracked"))

    def convolve_and_normalise(maps: Tensor, stride: int) -> Tensor:
        maps = F.conv2d(maps, next(tensors), stride=stride, padding=1)
        gamma, beta, mean, variance = (next(tensors)[None, :, None, None] for _ in range(4))
        return (maps - mean) / (variance + 1e-5).sqrt() * gamma + beta

    maps = convolve_and_normalise(images, 1).clamp(min=0)
    for stage in range(3):
        for block in range(n):
            stride = 2 if stage > 0 and block == 0 else 1
            shortcut = maps
            if stride == 2:
                shortcut = maps[:, :, ::2, ::2]
                shortcut = torch.cat([shortcut, torch.zeros_like(shortcut)], 1)
            inner = convolve_and_normalise(maps, stride).clamp(min=0)
            maps = (convolve_and_normalise(inner, 1) + shortcut).clamp(min=0)
    features = maps.flatten(2).mean(2)
    weight, bias = next(tensors), next(tensors)
    assert next(tensors, None) is None
    return features @ weight.T + bias


@pytest.mark.parametrize("side", [16, 7])
def test_resnet32_equals_a_functional_version(side: int) -> None:
    network = build_network("resnet32", [100], (side, side, 3), seed=0).double()
    images = torch.randn(4, 3, side, side, dtype=torch.float64)
    with torch.no_grad():
        network(images)  # gives the batch statistics values of their own
        network.eval()
        torch.testing.assert_close(network(images).logits, functional_resnet(network.state_dict(), images, n=5))


def test_a_resnet_block_of_new_width_keeps_every_other_pixel_and_adds_empty_maps() -> None:
    network = build_network("resnet32", [10], (8, 8, 3), depth=8)
    block = network.trunk.blocks[1]
    maps = torch.rand(1, 16, 4, 4)
    with torch.no_grad():
        block.norm2.weight.zero_()
        block.eval()
        result = block(maps)
    assert torch.equal(result[:, :16], maps[:, :, ::2, ::2])
    assert not result[:, 16:].any()


def test_a_dense_layer_reads_all_maps_of_its_block() -> None:
    network = build_network("densenet", [10], (8, 8, 3), depth=10, growth=4, seed=0).eval()
    stages = network.trunk.stages
    images = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        first = stages[0](images)
        second, third = stages[1](first), stages[2](stages[1](first))
    assert second.shape[1] == 16 + 4
    assert third.shape[1] == 16 + 8
    assert torch.equal(third[:, :16], first)
    assert torch.equal(third[:, :20], second)


@pytest.mark.parametrize(("grid", "region"), [((4, 6), 2), ((5, 3), 2), ((3, 4), 1), ((4, 4), 3)])
def test_a_local_convolution_equals_one_convolution_for_each_region(grid: tuple[int, int], region: int) -> None:
    torch.manual_seed(0)
    layer = LocalConv2d(3, 5, 2, grid, region).double()
    nn.init.normal_(layer.bias)
    images = torch.randn(2, 3, grid[0] + 1, grid[1] + 1, dtype=torch.float64)
    result = layer(images)
    assert result.shape == (2, 5, *grid)
    across = -(-grid[1] // region)
    for row in range(grid[0]):
        for column in range(grid[1]):
            number = (row // region) * across + column // region
            window = images[:, :, row : row + 2, column : column + 2].flatten(1)
            expected = window @ layer.weight[number].T + layer.bias[number]
            torch.testing.assert_close(result[:, :, row, column], expected)


def test_a_local_convolution_with_equal_weights_is_a_convolution() -> None:
    layer, plain = LocalConv2d(4, 6, 3, (5, 4), region=2), nn.Conv2d(4, 6, 3)
    with torch.no_grad():
        layer.weight.copy_(plain.weight.flatten(1).expand_as(layer.weight))
        layer.bias.copy_(plain.bias.expand_as(layer.bias))
    images = torch.randn(3, 4, 7, 6)
    torch.testing.assert_close(layer(images), plain(images))


def test_response_normalisation_is_tensorflows() -> None:
    norm = cifarnet([10], (8, 8, 1)).double().trunk.norm1
    maps = torch.rand(1, 64, 1, 1, dtype=torch.float64)
    values = maps.flatten()
    expected = [values[c] / (1 + 0.001 / 9 * (values[max(0, c - 4) : c + 5] ** 2).sum()) ** 0.75 for c in range(64)]
    torch.testing.assert_close(norm(maps).flatten(), torch.stack(expected))


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("size", [1, 2, 5, 40])
def test_response_normalisation_is_pytorchs(groups: int, size: int) -> None:
    maps = torch.randn(2, 12, 3, 4, dtype=torch.float64, requires_grad=True)
    ours = ResponseNorm(12, size, alpha=0.7, beta=0.6, k=1.3, groups=groups).double()(maps)
    theirs = nn.LocalResponseNorm(size, alpha=0.7, beta=0.6, k=1.3)(maps.reshape(2 * groups, -1, 3, 4)).view_as(maps)
    torch.testing.assert_close(ours, theirs)
    weights = torch.randn_like(maps)
    gradients = [torch.autograd.grad((out * weights).sum(), maps)[0] for out in (ours, theirs)]
    torch.testing.assert_close(*gradients)


def deviation(layer: nn.Module) -> float:
    return float(layer.weight.detach().std())


def test_initial_weights_are_the_originals() -> None:
    network = build_network("cifarnet", [100], CIFAR, seed=0)
    assert network.trunk.conv2.weight.abs().max() <= 0.1
    assert deviation(network.trunk.conv2) == pytest.approx(0.88 * 0.05, rel=0.02)  # a normal cut at two deviations
    assert deviation(network.head.classifier) == pytest.approx(0.88 / 192, rel=0.02)
    assert network.trunk.fc1.bias.unique().tolist() == pytest.approx([0.1])
    assert not network.trunk.conv1.bias.any()
    resnet = build_network("resnet32", [100], CIFAR, seed=0)
    assert deviation(resnet.trunk.blocks[-1].conv2) == pytest.approx((2 / (9 * 64)) ** 0.5, rel=0.02)
    face = build_network("deepid2", [2] * 40, (55, 47, 3), seed=0, local=True)
    assert deviation(face.trunk.conv3) == pytest.approx((2 / 360) ** 0.5, rel=0.02)
    assert deviation(face.trunk.joined) == pytest.approx((2 / 2160) ** 0.5, rel=0.02)


def test_resnet50_is_named_as_torchvisions() -> None:
    with torch.device("meta"):
        names = set(build_network("resnet50", [10], (64, 64, 3)).trunk.state_dict())
    assert {"conv1.weight", "bn1.running_var", "layer1.0.downsample.0.weight", "layer1.0.downsample.1.bias"} <= names
    assert {"layer3.5.conv3.weight", "layer4.2.bn3.num_batches_tracked", "layer2.0.conv2.weight"} <= names
    assert len(names) == 318  # torchvision's 320 less fc.weight and fc.bias
