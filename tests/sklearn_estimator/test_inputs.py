"""What X may be: vectors, image arrays, file names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from scipy.sparse import csr_array
from sklearn.preprocessing import StandardScaler

from rectifier.sklearn import RectifierClassifier
from rectifier.sklearn.inputs import Standardise, image_array, kind_of, read_files
from sklearn_estimator.samples import FAST, blobs

Pixels = np.ndarray[Any, Any]


def images(samples: int = 40, side: int = 8) -> tuple[Pixels, Pixels]:
    """Return bytes ``(n, side, side, 3)``: class 1 is bright on the left."""
    random = np.random.RandomState(0)
    pixels, y = random.randint(0, 100, (samples, side, side, 3)).astype(np.uint8), np.arange(samples) % 4 == 0
    pixels[y, :, : side // 2] += 100
    return pixels, y.astype(int)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("images")
    names = [str(folder / f"{number}.png") for number in range(40)]
    for name, pixels in zip(names, images()[0], strict=True):
        Image.fromarray(pixels).save(name)
    return names


@pytest.mark.parametrize(
    ("x", "kind"),
    [
        (np.zeros((4, 3)), "vectors"),
        ([[1, 2], [3, 4]], "vectors"),
        (pd.DataFrame({"a": [1.0, 2.0]}), "vectors"),
        (np.zeros(4), "vectors"),
        (np.zeros((0, 3)), "vectors"),
        (csr_array(np.eye(3)), "vectors"),
        (np.zeros((4, 8, 8)), "image arrays"),
        (np.zeros((4, 8, 8, 3), np.uint8), "image arrays"),
        ([np.zeros((8, 8, 3))] * 4, "image arrays"),
        (["a.png", "b.png"], "file names"),
        ([Path("a.png"), Path("b.png")], "file names"),
        (pd.Series(["a.png"]), "file names"),
        (pd.DataFrame({"file": ["a.png", "b.png"]}), "file names"),
        (np.array([["a.png"], ["b.png"]]), "file names"),
    ],
)
def test_the_kind_of_x_is_seen(x: Any, kind: str) -> None:
    assert kind_of(x) == kind


def test_channels_come_first_or_last() -> None:
    pixels = images()[0]
    last, first = image_array(pixels), image_array(pixels.transpose(0, 3, 1, 2))
    assert last.dtype == torch.uint8
    assert last.shape == (40, 3, 8, 8)
    assert torch.equal(last, first)
    assert image_array(np.zeros((2, 3, 9, 3))).shape == (2, 3, 3, 9)  # where both fit, the last axis
    assert image_array(np.zeros((2, 9, 9, 4))).shape == (2, 4, 9, 9)
    assert torch.equal(image_array(pixels[..., 0])[:, 0], last[:, 0])


def test_standardisation_is_that_of_scikit_learn() -> None:
    X, _ = blobs()
    X[:, 1] = 0.1  # a constant, which is not exact in binary
    weights = np.arange(len(X)) % 4
    expected = StandardScaler().fit(X, sample_weight=weights).transform(X)
    layer = Standardise.of(torch.from_numpy(X), torch.from_numpy(weights))
    torch.testing.assert_close(layer(torch.from_numpy(X)), torch.from_numpy(expected))


def test_images_are_standardised_by_channel() -> None:
    pixels = images(samples=2000, side=16)[0]  # of several chunks
    layer = Standardise.of(image_array(pixels), torch.ones(len(pixels)))
    scaled = torch.from_numpy(pixels).double() / 255
    torch.testing.assert_close(layer.mean, scaled.mean((0, 1, 2)))
    torch.testing.assert_close(layer.deviation, scaled.std((0, 1, 2), correction=0))


def test_scale_and_origin_of_features_do_not_matter() -> None:
    X, y = blobs()
    first = RectifierClassifier(**FAST).fit(X, y).decision_function(X)
    moved = 1000 * X + 77
    np.testing.assert_allclose(RectifierClassifier(**FAST).fit(moved, y).decision_function(moved), first, rtol=1e-6)
    raw = RectifierClassifier(**FAST, standardize=False).fit(moved, y).decision_function(moved)
    assert not np.allclose(raw, first)


def test_images_in_all_forms_give_one_answer(files: list[str]) -> None:
    pixels, y = images()
    options = {**FAST, "image_size": 8}
    expected = RectifierClassifier(**options).fit(pixels, y)
    assert expected.score(pixels, y) > 0.9
    assert expected.sample_shape_ == (8, 8, 3)
    assert not hasattr(expected, "n_features_in_")
    for x in (files, pd.Series(files), pixels.transpose(0, 3, 1, 2), (pixels / 255).astype(np.float32)):
        found = RectifierClassifier(**options).fit(x, y)
        np.testing.assert_allclose(found.predict_proba(x), expected.predict_proba(pixels), atol=1e-4)
    assert (expected.predict(files) == expected.predict(pixels)).all()  # fitted to arrays


def test_files_become_grey_for_a_network_of_grey_images(files: list[str]) -> None:
    grey = np.stack([np.asarray(Image.open(name).convert("L")) for name in files])
    found = RectifierClassifier(**FAST).fit(grey, images()[1])
    assert found.sample_shape_ == (8, 8, 1)
    np.testing.assert_allclose(found.predict_proba(files), found.predict_proba(grey), rtol=1e-5)


def test_files_have_the_size_of_the_network(files: list[str]) -> None:
    options = {**FAST, "epochs": 1}
    y = images()[1]
    assert RectifierClassifier(**options).fit(files, y).sample_shape_ == (32, 32, 3)
    assert RectifierClassifier(**options, image_size=(12, 10)).fit(files, y).sample_shape_ == (12, 10, 3)


def test_bad_files_are_named(files: list[str], tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"Cannot read 2 of 3 images\. .*bad\.png: .*; .*gone\.png: no such file"):
        read_files([files[0], tmp_path / "bad.png", tmp_path / "gone.png"], 8, 8, 3)


def test_an_augmentation_changes_training_only() -> None:
    pixels, y = images()
    seen: list[torch.Tensor] = []

    def mirror(batch: torch.Tensor) -> torch.Tensor:
        seen.append(batch)
        return batch.flip(3)

    options = {**FAST, "epochs": 2}
    found = RectifierClassifier(**options, augment=mirror).fit(pixels, y)
    assert len(seen) == 2
    assert seen[0].shape == (40, 3, 8, 8)
    assert seen[0].max() <= 1
    found.predict(pixels)
    assert len(seen) == 2
    mirrored = RectifierClassifier(**options).fit(pixels[:, :, ::-1], y)
    np.testing.assert_allclose(found.predict_proba(pixels), mirrored.predict_proba(pixels), atol=1e-5)


def test_an_estimator_can_be_fitted_to_another_kind() -> None:
    pixels, y = images()
    found = RectifierClassifier(**FAST).fit(pixels.reshape(40, -1), y)
    assert found.n_features_in_ == 192
    found.fit(pixels, y)
    assert not hasattr(found, "n_features_in_")


def test_wrong_x() -> None:
    (X, y), (pixels, _) = blobs(), images()
    of_vectors, of_images = RectifierClassifier(**FAST).fit(X, y), RectifierClassifier(**FAST).fit(pixels, images()[1])
    with pytest.raises(ValueError, match=r"samples of shape \(4,\), as in fit, but got samples of shape \(8, 8, 3\)"):
        of_vectors.predict(pixels)
    with pytest.raises(ValueError, match=r"Expected X to be vectors of 4 features, as in fit, but got file names"):
        of_vectors.predict(["a.png"])
    with pytest.raises(ValueError, match=r"samples of shape \(8, 8, 3\), as in fit, but got samples of shape \(4,\)"):
        of_images.predict(X)
    with pytest.raises(ValueError, match="samples of shape"):
        of_images.predict(pixels[:, :6])
    with pytest.raises(ValueError, match="Expected X to be finite"):
        of_images.predict(np.full((1, 8, 8, 3), np.nan))
    with pytest.raises(TypeError, match="Sparse data was passed"):
        of_vectors.predict(csr_array(X))
    with pytest.raises(ValueError, match="1 or 3 channels"):
        RectifierClassifier(**FAST).fit(np.zeros((4, 8, 8, 5)), [0, 1, 0, 1])
