"""Views equal a loop with pillow alone, and depend only on content and number."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helpers.features import digest
from oracles_features import view_of
from rectifier.data.decode import decode, load
from rectifier.data.features.views import SMALLEST, WIDEST, Views, crop_box


@pytest.fixture
def path(tmp_path: Path) -> Path:
    pixels = np.random.default_rng(0).integers(0, 256, (10, 7, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    return tmp_path / "a.png"


def test_views_equal_the_loop(path: Path) -> None:
    size, numbers = (12, 9), (0, 1, 2, 3, 6)
    found = Views(size, "stretch", "bilinear").of(load(path, size), numbers, digest(path))
    for view, number in zip(found, numbers, strict=True):
        difference = view.astype(int) - view_of(path, size, number, digest(path))
        assert abs(difference).max() <= 1, number


@pytest.mark.parametrize("fit", ["stretch", "crop", "pad"])
def test_a_view_does_not_depend_on_the_others(path: Path, fit: str) -> None:
    views = Views((6, 6), fit, "bicubic")
    every = views.of(load(path, (6, 6)), range(5), b"content")
    for number in range(5):
        np.testing.assert_array_equal(views.of(load(path, (6, 6)), [number], b"content")[0], every[number])
    np.testing.assert_array_equal(every[0], decode(path, (6, 6), fit, "bicubic"))
    np.testing.assert_array_equal(every[1], every[0][:, ::-1])
    other = views.of(load(path, (6, 6)), range(5), b"other content")
    assert [np.array_equal(a, b) for a, b in zip(every, other, strict=True)] == [True, True, False, False, False]


def test_crops_stay_in_the_image_and_differ() -> None:
    boxes = np.array([crop_box(number, bytes([content])) for number in range(2, 12) for content in range(50)])
    left, top, right, bottom = boxes.T
    assert (boxes >= 0).all()
    assert (boxes <= 1).all()
    width, height = right - left, bottom - top
    assert (width * height).max() <= 1
    assert (width * height).min() >= SMALLEST / WIDEST  # a side longer than the image is cut
    assert (width / height).min() >= 1 / WIDEST - 1e-9
    assert (width / height).max() <= WIDEST + 1e-9
    assert len(np.unique(boxes, axis=0)) == 500
