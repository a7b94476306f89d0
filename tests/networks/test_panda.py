"""PANDA: one network of groups equals a network for each part, and each part sees its window alone."""

from __future__ import annotations

import pytest
import torch

from oracles import part_by_part
from rectifier.networks.panda import REGIONS, panda
from rectifier.networks.registry import build_network


def small(parts: str = "face", shape: tuple[int, int, int] = (40, 33, 3), **options: object):
    settings = {"side": 24, "maps": 7, "features": 5, **options}
    return build_network("panda", [2, 3], shape, seed=0, parts=parts, **settings).double()


def windows_by_hand(parts: str, height: int, width: int) -> list[tuple[int, int, int, int]]:
    """Top, bottom, left, right in pixels."""
    whole = (0, height, 0, width)
    if parts == "grid":
        rows = [(round(row * height / 3), round((row + 1) * height / 3)) for row in range(3)]
        return [(*row, *columns) for row in rows for columns in ((0, width // 2), (width // 2, width))] + [whole]
    found = []
    for name in ("eyes", "nose", "mouth", "hair", "chin"):
        top, left, bottom, right = REGIONS["face"][name]
        found.append((round(top * height), round(bottom * height), round(left * width), round(right * width)))
    return [*found, whole]


@pytest.mark.parametrize("side", [16, 24, 40])
@pytest.mark.parametrize("parts", REGIONS)
def test_features_and_gradients_equal_one_network_after_another(parts: str, side: int) -> None:
    trunk = small(parts, side=side).trunk
    images = torch.randn(3, 3, 40, 33, dtype=torch.float64)
    layers = [*trunk.convolutions, trunk.connected]
    with torch.no_grad():
        for layer in layers:
            layer.bias.normal_()
    features = trunk(images)
    weights = [(layer.weight, layer.bias) for layer in layers]
    expected = part_by_part(weights, images, windows_by_hand(parts, 40, 33), side)
    torch.testing.assert_close(features, expected)
    wanted = list(trunk.parameters())
    ours = torch.autograd.grad(features.square().sum(), wanted)
    torch.testing.assert_close(ours, torch.autograd.grad(expected.square().sum(), wanted))


@pytest.mark.parametrize("parts", REGIONS)
def test_a_pixel_is_seen_by_the_parts_around_it_alone(parts: str) -> None:
    trunk = small(parts).trunk.eval()
    images = torch.randn(8, 3, 40, 33, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    row, column = 25, 12  # nose and mouth of a face; second row, left
    other = images.clone()
    other[:, :, row, column] += 100.0
    moved = (trunk(images) != trunk(other)).unflatten(1, (-1, 5)).any(2).any(0)
    within = [
        top <= row < bottom and left <= column < right for top, bottom, left, right in windows_by_hand(parts, 40, 33)
    ]
    assert moved.tolist() == within
    assert 1 < sum(within) < len(within)


def test_the_parts_of_a_grid_lie_side_by_side_and_cover_the_image() -> None:
    *cells, whole = panda([2], (31, 17, 1), parts="grid").trunk.windows
    seen = torch.zeros(31, 17, dtype=torch.int64)
    for rows, columns in cells:
        seen[rows, columns] += 1
    assert len(cells) == 6
    assert (seen == 1).all()
    assert torch.ones(31, 17)[whole].shape == (31, 17)


def test_eyes_and_mouth_of_celeba_are_in_their_windows() -> None:
    # In the aligned images, 218 x 178, the eyes are near row 111, columns 69 and 108, and the mouth's corners near
    # row 152, columns 73 and 106.
    names = list(REGIONS["face"])
    windows = dict(zip(names, panda([2], (218, 178, 3)).trunk.windows, strict=True))

    def within(name: str, row: int, column: int) -> bool:
        rows, columns = windows[name]
        return rows.start <= row < rows.stop and columns.start <= column < columns.stop

    for column in (69, 108):
        assert [name for name in names if within(name, 111, column)] == ["eyes", "nose", "whole"]
    for column in (73, 106):
        assert [name for name in names if within(name, 152, column)] == ["mouth", "whole"]


@pytest.mark.parametrize(("parts", "number"), [("face", 6), ("grid", 7)])
def test_it_has_the_size_that_its_layers_add_up_to(parts: str, number: int) -> None:
    with torch.device("meta"):
        network = panda([2] * 40, (112, 112, 3), parts=parts)
    conv = (3 * 25 + 1) * 64 + (64 * 25 + 1) * 64 + 2 * (64 * 9 + 1) * 64
    part = conv + (64 * 3 * 3 + 1) * 128  # 56, 28, 14, 7, 3
    assert sum(p.numel() for p in network.parameters()) == number * part + (number * 128 + 1) * 80


def test_initial_weights_count_the_inputs_of_one_part() -> None:
    trunk = build_network("panda", [2], (64, 64, 3), seed=0).trunk
    assert float(trunk.convolutions[1].weight.detach().std()) == pytest.approx((2 / (64 * 25)) ** 0.5, rel=0.02)
    assert float(trunk.connected.weight.detach().std()) == pytest.approx((2 / 576) ** 0.5, rel=0.02)
