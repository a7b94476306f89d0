"""Baselines: a constant answer equals the loop, HOG tells directions apart and is computed once; honest verdicts."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from helpers.features import photographs
from oracles_baselines import constant_answer
from rectifier import LabelSpace
from rectifier.data.dataset import ImageArray, ImageData, ImageFiles
from rectifier.data.features import unreadable_images
from rectifier.data.store import build_store
from rectifier.evaluation.by_features.hog import hog_features
from rectifier.training import baselines
from rectifier.training.baselines import CONSTANT, HOG, GradientHistograms, baseline_scores, verdict


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RECTIFIER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of images whose histograms are computed."""
    seen: list[int] = []

    def counting(pixels: Any, workers: int) -> torch.Tensor:
        seen.append(len(pixels))
        return hog_features(pixels, workers)

    monkeypatch.setattr(baselines, "hog_features", counting)
    return seen


def stripes(samples: int = 120, seed: int = 0) -> ImageData:
    """Striped images: the first label is the direction, missing now and then; the second is drawn."""
    draw = np.random.default_rng(seed)
    direction, other = (draw.random(samples) < 0.3).astype(int), draw.integers(0, 3, samples)
    waves = np.where(np.arange(16) // 2 % 2, 200, 40)[None, :, None] + draw.integers(0, 40, (samples, 16, 16))
    pixels = np.where(direction[:, None, None] == 1, waves, waves.transpose(0, 2, 1)).astype(np.uint8)
    targets = torch.from_numpy(np.stack([direction, other], 1))
    targets[::7, 0] = -1
    space = LabelSpace.from_names({"direction": ["down", "across"], "other": ["a", "b", "c"]})
    split = torch.tensor([0, 0, 1, 2]).repeat(samples // 4)
    return ImageData("stripes", ImageArray(np.repeat(pixels[..., None], 3, 3)), targets, space, split)


def only(data: ImageData, label: int) -> ImageData:
    name = data.space.names[label]
    space = LabelSpace.from_names({name: list(data.space.classes[label])})
    return replace(data, targets=data.targets[:, label : label + 1], space=space)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_constant_answer_equals_the_loop(seed: int) -> None:
    data = stripes(seed=seed)
    found = baseline_scores(data)
    train = data.part("train").targets.tolist()
    for part in ("validation", "test"):
        expected = constant_answer(train, data.part(part).targets.tolist())
        assert found[part][CONSTANT] == pytest.approx(expected)
        assert found[part][CONSTANT] == pytest.approx((1 / 2 + 1 / 3) / 2)  # the mean of 1 / classes
    assert json.loads(json.dumps(found)) == found
    assert [name for name, _ in found["test"].items()] == [CONSTANT, HOG]


def test_a_constant_answer_is_computed_not_assumed() -> None:
    data = only(stripes(), 0)
    targets = data.targets.clone()
    targets[data.indices("test")] = 1  # never the most frequent class of training
    assert baseline_scores(replace(data, targets=targets))["test"][CONSTANT] == 0.0


def test_hog_tells_directions_apart_but_not_noise() -> None:
    data = stripes(200)
    assert baseline_scores(only(data, 0))["test"][HOG] > 0.95
    assert baseline_scores(only(data, 1))["test"][HOG] < 0.6


def test_the_same_seed_gives_the_same_scores() -> None:
    assert baseline_scores(stripes(), seed=3) == baseline_scores(stripes(), seed=3)


def test_histograms_are_computed_once(tmp_path: Path, counted: list[int]) -> None:
    data = photographs(tmp_path / "photos", 24)
    first = baseline_scores(data)
    assert sum(counted) == 24
    assert baseline_scores(data) == first
    assert sum(counted) == 24
    Image.new("RGB", (9, 9), "red").save(tmp_path / "photos" / "0005.png")
    baseline_scores(data)
    assert sum(counted) == 25


def test_files_arrays_and_stores_give_the_same(tmp_path: Path) -> None:
    data = stripes(40)
    pixels = data.images.gather(np.arange(40)).repeat(4, 1).repeat(4, 2)  # type: ignore[attr-defined]
    array = replace(data, images=ImageArray(pixels))
    names = tuple(f"{number}.png" for number in range(40))
    for name, image in zip(names, pixels, strict=True):
        Image.fromarray(image).save(tmp_path / name)
    files = replace(data, images=ImageFiles(tmp_path, names), ids=names)
    store = build_store(files, tmp_path / "store", (64, 64))
    assert baseline_scores(files) == baseline_scores(array) == baseline_scores(store)


def test_unreadable_images_are_left_out_and_listed_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = photographs(tmp_path / "photos", 24)
    expected = baseline_scores(data)
    (tmp_path / "photos" / "0003.png").write_text("no image")  # of test
    found = baseline_scores(data)
    assert "1 of 24 images cannot be read" in capsys.readouterr().err
    assert found["validation"] == expected["validation"]
    assert found["test"][CONSTANT] == expected["test"][CONSTANT]
    assert not unreadable_images(data)


def test_a_part_without_readable_images_has_no_hog(tmp_path: Path) -> None:
    data = photographs(tmp_path / "photos", 24)
    for number in range(2, 24, 4):  # validation
        (tmp_path / "photos" / f"{number:04d}.png").unlink()
    found = baseline_scores(data)
    assert list(found["validation"]) == [CONSTANT]
    assert list(found["test"]) == [CONSTANT, HOG]


def test_a_part_without_labels_has_no_score() -> None:
    data = stripes(40)
    targets = data.targets.clone()
    targets[data.indices("test")] = -1
    assert baseline_scores(replace(data, targets=targets))["test"] == {}


def test_without_readable_training_images_an_error_says_so(tmp_path: Path) -> None:
    data = photographs(tmp_path / "photos", 8)
    for number in (0, 1, 4, 5):
        (tmp_path / "photos" / f"{number:04d}.png").unlink()
    with pytest.raises(ValueError, match="No training image of 'photos' can be read"):
        baseline_scores(data)


def test_training_images_are_drawn_and_held_out_ones_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], counted: list[int]
) -> None:
    monkeypatch.setattr(baselines, "MOST_TRAINING", 20)
    found = baseline_scores(stripes(), seed=1)
    assert f"{HOG} learns from 20 of 60 training images." in capsys.readouterr().err
    assert sum(counted) == 20 + 30 + 30
    assert found == baseline_scores(stripes(), seed=1)


def test_histograms_equal_those_of_each_image() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 64, 64, 3), np.uint8)
    compute = GradientHistograms()
    found = compute(pixels)["hog"]
    assert found.shape[1:] == compute.layers["hog"]
    np.testing.assert_array_equal(found, np.concatenate([hog_features(image[None]) for image in pixels]))


RISING = [0.5 + 0.01 * epoch for epoch in range(20)]
PEAK = [*RISING, *reversed(RISING)]


def said(score: float, scores: list[float | None] | list[float], *, hog: float = 0.55, **options: Any) -> str | None:
    return verdict(score, {CONSTANT: 0.5, HOG: hog}, scores, "tuned", **options)


@pytest.mark.parametrize("scores", [RISING, PEAK, [], [None, 0.6], [float("nan"), 0.6]])
def test_a_better_model_has_no_verdict(scores: list[float | None]) -> None:
    assert said(0.69, scores) is None
    assert verdict(0.69, {}, scores, "tuned") is None


def test_a_model_that_has_learned_nothing() -> None:
    found = said(0.502, [0.5, 0.502, 0.499], hog=0.612)
    assert found is not None
    assert found.startswith(
        "The model is no better than a constant answer after any epoch (50.2 % against 50.0 % class-"
    )
    assert "on validation under tuned): it has learned nothing. HOG + logistic regression reaches 61.2 %. Try" in found
    assert "smaller learning rate (rectifier lr-find suggests one), or more epochs (--epochs), or a pretrained" in found


def test_a_diverged_model_has_learned_nothing() -> None:
    found = said(float("nan"), [float("nan")] * 12)
    assert found is not None
    assert "it has learned nothing" in found


def test_an_earlier_epoch_was_better_than_what_is_kept() -> None:
    found = said(0.5, [0.52, 0.58, *[0.5] * 28])
    assert found is not None
    assert "no better than a constant answer (50.0 %" in found
    assert "it was better after epoch 2 (58.0 %) and has lost that." in found
    assert "learned nothing" not in found


def test_where_validation_has_one_class_nothing_is_said_of_the_model() -> None:
    found = verdict(1.0, {CONSTANT: 1.0, HOG: 1.0}, [1.0, 1.0], "argmax")
    assert found == "A constant answer reaches 100.0 % on validation: it has too few classes to judge a model."


def test_hog_is_better() -> None:
    found = said(0.58, PEAK, hog=0.612)
    assert found == (
        "HOG + logistic regression is better than the model (61.2 % against 58.0 % class-balanced accuracy on"
        " validation under tuned). Try a pretrained network (--network auto)."
    )
    assert said(0.58, PEAK, hog=0.5799) is None


def test_hog_is_as_good() -> None:
    assert "is as good as the model (58.0 % class" in str(said(0.58, PEAK, hog=0.5801))


@pytest.mark.parametrize("alike", [10, 25])
def test_the_last_epochs_give_one_answer(alike: int) -> None:
    found = said(0.69, [*RISING, *[0.5 + 1e-8] * alike])
    assert found is not None
    assert found.startswith(f"The last {alike} epochs give one answer to every image. Try a smaller learning rate")


def test_a_constant_score_above_chance_is_no_collapse() -> None:
    assert said(1.0, [1.0] * 30) is None
    assert said(0.69, [*RISING, *[0.5] * 9]) is None  # of 29 epochs


def test_a_short_training_collapses_too() -> None:
    assert "The last 2 epochs give one answer" in str(said(0.6, [0.58, 0.6, 0.5, 0.5]))
    assert said(0.6, [0.6, 0.5]) is None


def test_the_advice_fits_the_network_and_the_curve() -> None:
    assert str(said(0.58, RISING, hog=0.9)).endswith(
        "Try more epochs (--epochs), or a pretrained network (--network auto)."
    )
    assert str(said(0.58, PEAK, hog=0.9, tune="head")).endswith("Try fine-tuning (--tune last).")
    nothing = str(said(0.5, [0.5] * 30, tune="head"))
    assert nothing.endswith("Try a smaller learning rate (rectifier lr-find suggests one).")


def test_every_verdict_advises_something() -> None:
    draw = random.Random(0)
    for _ in range(300):
        scores = [draw.choice([None, 0.5, draw.random()]) for _ in range(draw.randrange(30))]
        found = said(draw.random(), scores, hog=draw.random(), tune=draw.choice([None, "head", "last"]))
        assert found is None or (" Try " in found and not found.endswith("Try ."))


def test_the_number_of_threads_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    during: list[int] = []
    monkeypatch.setattr(baselines, "train_heads", lambda *_, **__: during.append(torch.get_num_threads()) or 1 / 0)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(ZeroDivisionError, match="division"):
            baseline_scores(stripes(40))
        assert (during, torch.get_num_threads()) == ([1], 2)
    finally:
        torch.set_num_threads(before)
