"""Neighbourhoods in feature space: measured as a loop would, and drawn for any colour vision."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from shutil import rmtree
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex, to_rgb
from PIL import Image
from torch import Tensor

from experiments import figures, neighbourhoods
from experiments.neighbourhoods import features_of, mean_silhouette, overwhelmed_share, plane
from helpers.experiments import recorded, run_quick
from rectifier.reproduce.page import write_page
from rectifier.training.run.folder import Run


def slow_overwhelmed_share(features: Tensor, minority: Tensor, majority: Tensor, k: int) -> float:
    points, overwhelmed = features.tolist(), []
    for i, point in enumerate(points):
        if minority[i]:
            others = sorted((math.dist(point, other), j) for j, other in enumerate(points) if j != i)
            strangers = sum(bool(majority[j]) for _, j in others[:k])
            overwhelmed.append(strangers > k / 2)
    return sum(overwhelmed) / len(overwhelmed)


def slow_mean_silhouette(features: Tensor, classes: Tensor, minority: int) -> float:
    points, found = list(zip(features.tolist(), classes.tolist(), strict=True)), []
    for i, (point, own) in enumerate(points):
        if own != minority:
            continue
        distances: dict[int, list[float]] = {}
        for j, (other, its) in enumerate(points):
            if j != i:
                distances.setdefault(its, []).append(math.dist(point, other))
        means = {its: sum(each) / len(each) for its, each in distances.items()}
        inside, nearest = means.pop(own), min(means.values())
        found.append((nearest - inside) / max(nearest, inside))
    return sum(found) / len(found)


@pytest.mark.parametrize("seed", range(20))
def test_overwhelmed_share_is_that_of_the_slow_twin(seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    n, k = 12 + seed, 1 + seed % 7
    # Whole numbers, so that many distances are equal; samples of kind 2 are neither rare nor frequent.
    features = torch.randint(0, 4, (n, 2), generator=random).float()
    kind = torch.cat([torch.tensor([0, 1]), torch.randint(0, 3, (n - 2,), generator=random)])
    expected = slow_overwhelmed_share(features, kind == 0, kind == 1, k)
    assert overwhelmed_share(features, kind == 0, kind == 1, k) == pytest.approx(expected)


def test_overwhelmed_share_in_several_chunks() -> None:
    features, minority = torch.randn(60, 3, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3 == 0
    whole = overwhelmed_share(features, minority, ~minority, 5)
    assert (
        overwhelmed_share(features, minority, ~minority, 5, chunk=7)
        == whole
        == pytest.approx(slow_overwhelmed_share(features, minority, ~minority, 5))
    )


def clusters(distance: float) -> tuple[Tensor, Tensor]:
    """Three clusters of 15 samples, at this distance from each other."""
    classes = torch.arange(45) % 3
    noise = torch.randn(45, 3, generator=torch.Generator().manual_seed(1))
    return distance * torch.eye(3)[classes] + noise, classes


def test_separate_clusters_overwhelm_no_sample() -> None:
    features, classes = clusters(100)
    assert overwhelmed_share(features, classes == 2, classes != 2, 10) == 0
    assert mean_silhouette(features, classes, 2) > 0.95


def test_scattered_minority_is_overwhelmed() -> None:
    features, classes = clusters(100)
    alone = torch.tensor([0, 1, 5])  # one sample of each cluster
    minority = torch.zeros(45, dtype=torch.bool)
    minority[alone] = True
    assert overwhelmed_share(features, minority, ~minority, 10) == 1
    assert mean_silhouette(features, torch.where(minority, 3, classes), 3) < 0


def test_neighbourhoods_do_not_depend_on_order_place_or_scale() -> None:
    features, classes = clusters(1.5)
    order = torch.randperm(45, generator=torch.Generator().manual_seed(2))
    moved = 7 * features[order] + 100
    share = overwhelmed_share(features, classes == 2, classes != 2, 9)
    assert 0 < share < 1
    assert overwhelmed_share(moved, classes[order] == 2, classes[order] != 2, 9) == share
    silhouette = mean_silhouette(features, classes, 2)
    assert mean_silhouette(moved, classes[order], 2) == pytest.approx(silhouette, abs=1e-4)
    assert silhouette == pytest.approx(slow_mean_silhouette(features, classes, 2), abs=1e-6)


def test_neighbours_must_be_there() -> None:
    features, minority = torch.zeros(4, 2), torch.tensor([True, False, False, False])
    with pytest.raises(ValueError, match="Expected k to be a positive integer below 4"):
        overwhelmed_share(features, minority, ~minority, 4)
    with pytest.raises(ValueError, match="Expected minority to be a mask of at least one sample"):
        overwhelmed_share(features, minority & ~minority, minority, 1)


def test_plane_keeps_clusters_together() -> None:
    features, classes = clusters(100)
    places = plane(features)
    assert places.shape == (45, 2)
    assert torch.equal(places, plane(features))
    assert mean_silhouette(places, classes, 2) > 0.5
    assert not plane(torch.ones(5, 3)).any()  # a network that looks at nothing


MAPS = {
    "classes": {role: {"name": f"a_{role}", "images": 5} for role in ("Maj-1", "Maj-2", "Min-1")},
    "rows": {row: {"overwhelmed": {"0": 0.25}, "silhouette": {"0": 0.5}} for row in ("even", "uneven")},
    "maps": {
        row: {role: {"x": [number, 2.0], "y": [number, 1.0]} for number, role in enumerate(("Maj-1", "Maj-2", "Min-1"))}
        for row in ("even", "uneven")
    },
}


# What people without one kind of cones see of linear red, green and blue (Machado, Oliveira and Fernandes 2009).
VISIONS = {
    "all cones": np.eye(3),
    "no red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "no blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def lab_of(linear: Any) -> Any:
    """Return CIE's L*, a* and b* of linear red, green and blue."""
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = np.array(to_xyz) @ np.clip(linear, 0, 1) / [0.9505, 1.0, 1.089]
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def distance(one: str, other: str, vision: str) -> float:
    """Return how different two colours look; two blues that were hard to tell apart had 25."""
    values = [np.array(to_rgb(colour)) for colour in (one, other)]
    linear = [np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4) for value in values]
    first, second = (lab_of(np.array(VISIONS[vision]) @ value) for value in linear)
    return float(np.linalg.norm(first - second))


@pytest.fixture
def maps(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The figure of some maps."""
    kept: list[Any] = []
    monkeypatch.setattr(neighbourhoods, "save_figure", lambda figure, *_: kept.append(figure))
    neighbourhoods.draw_maps(MAPS, Path("maps.png"))
    return kept[0]


@pytest.mark.parametrize("vision", VISIONS)
def test_colours_of_classes_and_rules_differ_for_any_colour_vision(vision: str, maps: Any) -> None:
    classes = [to_hex(points.get_facecolor()[0]) for points in maps.axes[0].collections]
    assert len(classes) == 3
    assert min(distance(one, other, vision) for one, other in combinations(classes, 2)) > 40
    assert distance(*figures.RULE_COLOURS.values(), vision) > 40


def test_classes_of_a_map_have_markers_of_their_own(maps: Any) -> None:
    for axis in maps.axes:
        outlines = [points.get_paths()[0].vertices.tolist() for points in axis.collections]
        assert all(one != other for one, other in combinations(outlines, 2))
        assert [points.get_offsets().tolist() for points in axis.collections] == [
            [[number, number], [2.0, 1.0]] for number in range(3)
        ]


def test_maps_say_of_which_seed_they_are(maps: Any) -> None:
    assert "first seed" in maps.get_suptitle()


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quick")
    run_quick("features", folder)
    return folder


def test_features_are_measured_and_drawn(quick: Path) -> None:
    found = recorded(quick, "features")["found"]
    rows = ["bln(1)", "imb(1)", "imb(1) + CRL"]
    assert list(found["rows"]) == list(found["maps"]) == rows
    images = [found["classes"][role]["images"] for role in ("Maj-1", "Maj-2", "Min-1")]
    assert images[0] > images[1] > images[2]
    for row in rows:
        for measure in ("overwhelmed", "silhouette", "overwhelmed_of_all"):
            assert list(found["rows"][row][measure]) == ["0", "1"]
        assert [len(places["x"]) == len(places["y"]) > 1 for places in found["maps"][row].values()] == [True] * 3
    with Image.open(quick / "results" / "features.png") as picture:
        assert picture.size[0] > 2 * picture.size[1]
    page = (quick / "results" / "features.md").read_text()
    assert all(f"| {row} |" in page for row in rows)


def test_features_are_shown_without_the_runs(tmp_path: Path) -> None:
    result = run_quick("features", tmp_path)
    rmtree(tmp_path / "runs")
    drawn = tmp_path / "results" / "features.png"
    drawn.unlink()
    assert "(features.png)" in result.experiment.show(result)
    assert drawn.is_file()
    unmeasured = write_page(replace(result, found={}), quick=True).read_text()
    assert "Nothing is measured yet." in unmeasured
    assert "(features.png)" not in unmeasured


def test_features_that_were_not_saved_are_found_again(quick: Path, tmp_path: Path) -> None:
    one = next(Run(path) for path in sorted((quick / "runs").iterdir()) if Run(path).config.features)
    saved, targets = features_of(one)
    other = Run(tmp_path)
    for name in ("config.json", "data.json", "weights.safetensors"):
        (tmp_path / name).write_bytes((one.path / name).read_bytes())
    other.save_predictions("test", replace(one.predictions("test"), features=None))
    again, same = features_of(other)
    torch.testing.assert_close(again, saved, atol=1e-3, rtol=2e-3)  # they are saved in half precision
    assert torch.equal(targets, same)
