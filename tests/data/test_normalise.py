"""Images are normalised by the mean and deviation of the training part."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rectifier.data import Loader
from rectifier.data.dataset import ImageArray, ImageData
from rectifier.data.normalise import Normalisation, statistics


def test_statistics_need_a_training_part(data: ImageData) -> None:
    with pytest.raises(ValueError, match="data with a training part to normalise by, but got none"):
        Loader(data.part("test"), "test")
    Loader(data.part("test"), "test", normalise=statistics(data))


def test_normalisation(data: ImageData) -> None:
    train = data.part("train").images.pixels.reshape(-1, 3) / 255
    found = statistics(data)
    np.testing.assert_allclose(found.mean, train.mean(0))
    np.testing.assert_allclose(found.std, train.std(0))
    (batch,) = Loader(data, "train", 64)
    assert batch.images.mean().abs() < 1e-5
    assert Loader(data, "test", 64).normalisation == found  # that of train for every part
    (raw,) = Loader(data, "train", 64, normalise=None)
    torch.testing.assert_close(
        raw.images.permute(0, 2, 3, 1) * 255, torch.from_numpy(train.reshape(30, 6, 5, 3)).float() * 255
    )


def test_a_constant_channel_does_not_divide_by_zero(data: ImageData) -> None:
    flat = ImageData("flat", ImageArray(np.full((50, 4, 4, 3), 9, np.uint8)), data.targets, data.space, data.split)
    (batch,) = Loader(flat, "train", 64)
    assert batch.images.isfinite().all()


@pytest.mark.parametrize("wrong", [((0.5,), (0.0,)), ((0.5, 0.5), (1.0,)), ((float("nan"),), (1.0,))])
def test_a_normalisation_that_divides_by_zero(wrong: Any) -> None:
    with pytest.raises(ValueError, match="a mean and a positive deviation for each channel"):
        Normalisation(*wrong)
