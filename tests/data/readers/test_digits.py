from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from rectifier.data.dataset import PARTS
from rectifier.data.readers.digits import digits
from rectifier.labels import imbalance_ratio


def test_as_they_are() -> None:
    data = digits(ratio=1)
    source = load_digits()
    position = [int(name.split("/")[1]) for name in data.ids]
    assert sorted(position) == list(range(1797))
    assert data.images.pixels.shape == (1797, 8, 8, 1)
    assert np.abs(data.images.pixels[..., 0] / 255 * 16 - source.images[position]).max() < 0.05
    assert (data.images.pixels.min(), data.images.pixels.max()) == (0, 255)
    assert data.targets[:, 0].tolist() == source.target[position].tolist()


@pytest.mark.parametrize("ratio", [2, 7.5, 20, 100])
def test_ratio_is_met_by_training_alone(ratio: float) -> None:
    data, whole = digits(ratio=ratio), digits(ratio=1)
    assert imbalance_ratio(data.counts("train")[0]) == pytest.approx(ratio, rel=0.05)
    for part in PARTS[1:]:
        assert data.part(part).ids == whole.part(part).ids
        assert imbalance_ratio(data.counts(part)[0]) < 1.1
    assert set(data.part("train").ids) < set(whole.part("train").ids)


def test_parts_are_named_and_said_in_the_notes() -> None:
    data = digits(seed=3)
    assert [name.split("/")[0] for name in data.ids] == [PARTS[part] for part in data.split]
    assert data.name == "digits"
    assert "seed 3" in data.notes[0]
    assert "1:20" in data.notes[0]
    assert "complete" in digits(ratio=1).notes[0]


def test_seed_chooses_images_and_the_rarest_digit() -> None:
    assert torch.equal(digits(seed=1).targets, digits(seed=1).targets)
    assert digits(seed=1).ids == digits(seed=1).ids
    assert digits(seed=1, ratio=1).part("test").ids != digits(seed=2, ratio=1).part("test").ids
    assert [int(digits(seed=seed).counts("train")[0].argmin()) for seed in (0, 1, 9)] == [9, 8, 0]


@pytest.mark.parametrize("ratio", [0.5, 101, float("nan"), "20", True])
def test_wrong_ratio(ratio: object) -> None:
    with pytest.raises(ValueError, match=r"Expected ratio to be from 1 \(complete\) to 100, but got"):
        digits(ratio=ratio)  # type: ignore[arg-type]


def test_everything_wrong_is_said_at_once() -> None:
    with pytest.raises(ValueError, match=r"(?s)Expected ratio .*\n.*Expected seed to be a non-negative integer, .* -1"):
        digits(ratio=0, seed=-1)
