from __future__ import annotations

import numpy as np
import pytest
import torch
from skimage.feature import hog as reference

from rectifier.evaluation.by_features import hog
from rectifier.evaluation.by_features.hog import hog_features
from rectifier.evaluation.by_features.neighbours import neighbour_scores


@pytest.mark.parametrize(("shape", "cell"), [((3, 55, 47, 3), 8), ((3, 32, 32, 1), 8), ((3, 8, 13, 1), 4)])
def test_hog_of_each_image(shape: tuple[int, ...], cell: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    found = hog_features(pixels)
    expected = [
        reference(image, orientations=9, pixels_per_cell=(cell, cell), cells_per_block=(2, 2), channel_axis=-1)
        for image in pixels
    ]
    torch.testing.assert_close(found, torch.from_numpy(np.stack(expected)).float())
    assert torch.equal(hog_features(torch.from_numpy(pixels)), found)


def test_hog_keeps_the_order_of_many_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hog, "_IMAGES", 3)
    pixels = np.random.default_rng(0).integers(0, 256, (11, 16, 16, 1), dtype=np.uint8)
    found = hog_features(pixels, workers=1)
    assert found.shape == (11, 36)
    assert torch.equal(found, torch.cat([hog_features(image[None]) for image in pixels]))
    assert torch.equal(hog_features(pixels, workers=2), found)
    assert hog_features(pixels[:0]).shape == (0, 36)


def test_hog_tells_directions_apart() -> None:
    """Stripes across and stripes down, shifted: HOG tells them apart; brightness does not matter."""
    g = np.random.default_rng(0)
    stripes = (np.arange(24) // 4 % 2)[None, :, None] * np.ones((24, 1, 1))
    targets = np.arange(20) % 2
    images = [np.roll(stripes if t else stripes.transpose(1, 0, 2), g.integers(8), (0, 1)) for t in targets]
    pixels = np.stack([(image * g.integers(60, 250)).astype(np.uint8) for image in images])
    features, own = hog_features(pixels), torch.from_numpy(targets)[:, None]
    scores = neighbour_scores(features[10:], features[:10], own[:10], (2,), 3)
    assert torch.equal(scores.argmax(1), own[10:, 0])


def test_wrong_input() -> None:
    for pixels in (np.zeros((2, 3, 32, 3), np.uint8), np.zeros((2, 32, 32, 3)), np.zeros((32, 32, 3), np.uint8)):
        with pytest.raises(ValueError, match=r"pixels to be uint8 of shape \(N, H, W, C\), at least 4 high and wide"):
            hog_features(pixels)
