"""Runs on pretrained networks: from photographs to a run folder, and from that folder to predictions."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from rectifier import compare
from rectifier.data import open_data
from rectifier.data.dataset import ImageData
from rectifier.data.features import CachedFeatures
from rectifier.methods import METHODS
from rectifier.networks.pretrained import load_backbone
from rectifier.report.comparison.tables import write_tables
from rectifier.training import head_stage, opening, predict_images, resume, train
from rectifier.training.config import Config
from rectifier.training.engine.course import Course
from rectifier.training.engine.interrupt import Stopped
from rectifier.training.heads import FeatureTable, merged, train_heads
from rectifier.training.job import RunSpec, open_jobs
from rectifier.training.many import plan, train_missing, train_together
from rectifier.training.predict import load_network
from rectifier.training.recipe import HEAD_EPOCHS
from rectifier.training.run.folder import Run
from rectifier.training.tuned import TunedNetwork, head_spec, saved_network

SIDE = 48
COLOURS = {"red": (200, 40, 40), "green": (40, 200, 40), "blue": (40, 40, 200)}
SHORT: dict[str, Any] = {"size": "64", "epochs": 3, "heads": 2, "batch_size": 16, "network.hidden": 24}
SHORT |= {"accelerator": "cpu", "tensorboard": False, "baselines": False}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of small photographs with two labels, one of them with blanks; blue and striped are rare."""
    folder, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    rows = []
    for number in range(72):
        colour = "blue" if number % 9 == 0 else ("red", "green")[number % 2]
        pixels = np.clip(rng.normal(COLOURS[colour], 40, (SIDE, SIDE, 3)), 0, 255).astype(np.uint8)
        striped = number % 4 == 0
        pixels[:: 6 if striped else SIDE] //= 3
        Image.fromarray(pixels).save(folder / f"{number:02d}.png")
        part = "train" if number < 36 else "validation" if number < 54 else "test"
        rows.append([f"{number:02d}.png", colour, "" if number % 7 == 0 else str(striped), part])
    with (folder / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["image", "colour", "striped", "split"], *rows])
    return folder / "labels.csv"


def config(table: Path, **settings: Any) -> Config:
    return Config(str(table)).with_settings({"network": "efficientnet-lite0", **SHORT, **settings})


def check_predictions(run: Run, table: Path) -> None:
    """Predicting the test images from the folder alone gives the classes of the saved logits."""
    saved = run.predictions("test")
    files = [table.parent / name for name in saved.ids]
    again = predict_images(run, files, rule="argmax", device="cpu")
    expected = torch.stack([part.argmax(1) for part in saved.logits.split(list(saved.space.sizes), 1)], 1)
    assert (again.classes == expected).float().mean() > 0.95  # engines differ by rounding


@pytest.mark.parametrize("tune", ["head", "last", "all"])
def test_a_run_is_predicted_from_its_folder_alone(table: Path, tmp_path: Path, tune: str) -> None:
    run = train(config(table, tune=tune, epochs=2), tmp_path / "run")
    assert run.config.tune == tune
    names = set(run.weights())
    assert {"trunk.stem.conv.weight", "head.hidden.weight", "head.classifier.weight"} <= names
    check_predictions(run, table)


@pytest.mark.parametrize("refit", [False, True])
def test_tuning_is_never_worse_on_validation_than_the_head_it_starts_from(
    table: Path, tmp_path: Path, refit: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    ruinous = config(table, tune="last", lr=10.0, epochs=2, refit=refit)
    run = train(ruinous, tmp_path / "run")
    rows = run.history()
    assert rows[0]["epoch"] == 0
    best = max(row["validation"] or 0.0 for row in rows)
    assert run.rules["validation"]["argmax"] == pytest.approx(best, abs=1e-6)
    assert run.rules["validation"]["argmax"] >= (rows[0]["validation"] or 0.0) - 1e-6
    assert ("Not kept: 2 heads retrained" in capsys.readouterr().err.replace("\n", " ")) == refit


@pytest.mark.parametrize("tune", ["last", "all"])
def test_new_heads_are_those_of_the_features_of_the_last_epoch(
    table: Path, tmp_path: Path, tune: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Heads that are trained by hand on the features of the saved trunk are the head of the run."""
    monkeypatch.setattr(head_stage, "head_epochs", lambda *_: 3)
    monkeypatch.setattr(head_stage, "_ROUNDING", 1.0)  # they stay, whatever their score
    run = train(config(table, tune=tune, views=1, flip=False, precision="32", select="last"), tmp_path / "run")
    data = open_data(str(table))
    backbone, head = saved_network(run)
    pixels = {part: prepared(data, part, backbone) for part in ("train", "validation")}
    with torch.no_grad():
        x = {part: backbone.features.eval()(images) for part, images in pixels.items()}
    tables = {part: FeatureTable(x[part], data.targets[data.indices(part)], data.space) for part in x}
    specs = [head_spec(run.config, seed, 3) for seed in range(2)]
    found = merged(train_heads(tables["train"], specs, validation=tables["validation"]))
    with torch.no_grad():
        # Of training images: another image may have features that training hardly knows, which enlarge rounding.
        ours, theirs = found.logits(x["train"]), head(x["train"]).logits
    torch.testing.assert_close(ours, theirs, atol=2e-2, rtol=2e-2)  # features by two engines


def prepared(data: ImageData, part: str, backbone: Any) -> Tensor:
    images: Any = data.images
    known = backbone.preprocessing
    rows = [Image.open(images.root / images.paths[i]).convert("RGB") for i in data.indices(part).tolist()]
    resized = [np.asarray(each.resize(known.size[::-1], Image.Resampling.BICUBIC)) for each in rows]
    pixels = torch.from_numpy(np.stack(resized)).permute(0, 3, 1, 2) / 255
    mean, deviation = (torch.tensor(values).view(3, 1, 1) for values in (known.mean, known.std))
    return (pixels - mean) / deviation


def test_noise_is_a_row_of_the_residuals_and_only_in_training(table: Path, tmp_path: Path) -> None:
    network: Any = load_network(train(config(table), tmp_path / "run"))
    backbone = load_backbone("efficientnet-lite0", size=(64, 64)).with_penultimate()
    tuned, x = TunedNetwork(backbone, "head", network.head.eval()), torch.randn(6, backbone.width)
    plain = tuned.eval()(x).logits
    tuned.noise = torch.eye(backbone.width)[:2] * 50
    assert torch.equal(tuned(x).logits, plain)
    tuned.train()
    tuned.head.eval()  # without dropout
    choices = torch.stack([network.head(x + row).logits for row in tuned.noise])
    found = tuned(x).logits
    assert (found == choices).all(2).any(0).all()
    assert not torch.equal(found, plain)


@pytest.mark.parametrize("method", [m for m in METHODS if m != "hog-knn"])
def test_every_method_works_on_features(table: Path, tmp_path: Path, method: str) -> None:
    more: dict[str, Any] = {"epochs": 6}
    if METHODS[method].classifier == "cosine":
        more |= {"network.hidden": 0, "heads": 1}
    if method in ("crt", "lws"):
        more["retrain_epochs"] = 1
    if method == "lmle":
        more |= {"rounds": 1, "cluster_size": 8}
    run = train(config(table, method=method, **more), tmp_path / "run")
    assert run.is_finished
    for part in ("validation", "test"):
        assert run.predictions(part).logits.isfinite().all()


def test_compared_runs_train_side_by_side_as_they_do_alone(table: Path, tmp_path: Path) -> None:
    base = config(table)
    together = train_missing(plan(base, ["ce", "crl:eta=0.5", "logit-adjustment"], 2, tmp_path / "together"))
    alone = [train(run.config, tmp_path / run.path.name) for run in together]
    for one, other in zip(together, alone, strict=True):
        assert one.config == other.config
        torch.testing.assert_close(
            one.predictions("test").logits, other.predictions("test").logits, atol=1e-4, rtol=1e-4
        )


def test_runs_of_one_group_choose_their_epochs_by_their_own_rule_and_length(table: Path, tmp_path: Path) -> None:
    base = config(table, epochs=4)
    settings: list[dict[str, Any]] = [{}, {"select": "last"}, {"epochs": None}, {"method": "ce", "select": "argmax"}]
    configs = [base.with_settings(own) if own.get("epochs", 1) else replace(base, epochs=None) for own in settings]
    specs = [RunSpec(str(i), each, tmp_path / "together" / str(i)) for i, each in enumerate(configs)]
    for number, run in enumerate(train_together(specs)):
        alone = train(configs[number], tmp_path / str(number))
        assert run.config == alone.config
        for name, weight in alone.weights().items():
            torch.testing.assert_close(run.weights()[name], weight, atol=1e-4, rtol=1e-3)


def test_runs_share_data_only_where_they_need_the_same(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def opened(*settings: dict[str, Any]) -> list[Any]:
        folders = (tmp_path / str(number) for number in range(len(settings)))
        return [
            job.opened for job in open_jobs([RunSpec("run", config(table, **own), next(folders)) for own in settings])
        ]

    tuned = [{"tune": "last", "flip": flip} for flip in (True, False)]
    mirrored, plain = opened(*tuned)
    assert [mirrored.data.images.views, plain.data.images.views] == [2, 1]
    features, pixels = opened({"method": "ce"}, {"method": "hog-knn"})
    assert isinstance(features.data.images, CachedFeatures)
    assert not isinstance(pixels.data.images, CachedFeatures)
    capsys.readouterr()
    first, *others = opened(*({"network": "auto", "method": m, "size": "72"} for m in ("ce", "crl", "focal")))
    assert all(other is first for other in others)
    said = capsys.readouterr().err.replace("\n", " ")
    assert said.count("Images: 72 x 72") == 1
    assert [said.count(f"Recipe: {m} on") for m in ("ce", "crl", "focal")] == [1, 1, 1]


def test_weights_of_another_network_are_refused_before_images_are_decoded(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = train(config(table), tmp_path / "run")
    capsys.readouterr()
    other = Config(str(table), network="resnet32", size="32", weights=str(run.path), accelerator="cpu")
    with pytest.raises(ValueError, match="does not hold weights of resnet32: 1 of"):
        train(other, tmp_path / "other")
    assert "Decoding" not in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


def test_a_stopped_run_resumes(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = train(config(table), tmp_path / "whole")
    train_heads = head_stage.train_heads

    def stopped(*given: Any, **more: Any) -> Any:
        raise Stopped(15, "the training of heads")

    monkeypatch.setattr(head_stage, "train_heads", stopped)
    with pytest.raises(Stopped):
        train(config(table), tmp_path / "run")
    monkeypatch.setattr(head_stage, "train_heads", train_heads)
    run = resume(tmp_path / "run")
    assert torch.equal(run.predictions("test").logits, whole.predictions("test").logits)


def test_a_run_that_stops_in_fine_tuning_resumes_to_the_bit(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = config(table, tune="last")
    whole = train(given, tmp_path / "whole")
    end_epoch = Course.end_epoch

    def stopped(course: Course, validated: Any) -> None:
        end_epoch(course, validated)
        if course.state.epoch == 2:
            course.save()
            raise Stopped(15, "fine-tuning")

    with monkeypatch.context() as patch:
        patch.setattr(Course, "end_epoch", stopped)
        with pytest.raises(Stopped):
            train(given, tmp_path / "run")
    run = resume(tmp_path / "run")
    assert torch.equal(run.predictions("test").logits, whole.predictions("test").logits)


def test_a_run_is_a_starting_point_for_another(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = train(config(table, tune="last", epochs=2, lr=0.01), tmp_path / "first")
    second = train(config(table, weights=str(first.path)), tmp_path / "second")
    assert "tensors fitted" in capsys.readouterr().err.replace("\n", " ")
    one, other = ({n: w for n, w in run.weights().items() if n.startswith("trunk.")} for run in (first, second))
    assert all(torch.equal(one[name], other[name]) for name in one)
    check_predictions(second, table)


def test_the_network_of_a_run_gives_its_logits(table: Path, tmp_path: Path) -> None:
    run = train(config(table), tmp_path / "run")
    network = load_network(run)
    assert network.head.hidden.weight.shape[0] == 48  # two heads of 24 units are one of 48


def test_a_comparison_shows_the_baselines(table: Path, tmp_path: Path) -> None:
    base = replace(config(table, epochs=1), baselines=True)
    runs = train_missing(plan(base, ["ce", "crl"], 2, tmp_path))
    found = compare(runs)
    (scores,) = {tuple(run.baselines["test"].items()) for run in runs if run.baselines}
    assert {name: one["mean"] for name, one in found.reference.items()} == pytest.approx(dict(scores))
    (markdown,) = (path for path in write_tables(found, tmp_path / "tables") if path.suffix == ".md")
    for name, score in scores:
        assert re.search(rf"\| {re.escape(name)} +\| +{100 * score:.1f}", markdown.read_text())


def test_photographs_are_compared_with_baselines(table: Path, tmp_path: Path) -> None:
    run = train(config(table, baselines=None), tmp_path / "run")
    assert set(run.baselines or {}) == {"validation", "test"}
    assert 0 < (run.baselines or {})["test"]["constant answer"] < 1


def test_the_kept_epoch_and_rule_are_said(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = train(config(table, epochs=3), tmp_path / "run")
    said = capsys.readouterr().err.replace("\n", " ")
    score = 100 * (run.rules["validation"]["argmax"] or 0.0)
    assert re.search(rf"Kept: 2 heads after epochs? \d( to \d)? of 3, {score:.1f} % on validation under argmax", said)


@pytest.mark.parametrize(
    "asked",
    [{"network.hidden": -3}, {"network.init": "foo"}, {"method": "crl-instance-relative", "network.hidden": 0}],
)
def test_a_head_that_cannot_be_trained_is_refused_first(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any]
) -> None:
    monkeypatch.setattr(opening, "cached_features", lambda *_, **__: pytest.fail("images were decoded"))
    with pytest.raises(ValueError, match=r"hidden|init"):
        train(config(table, **asked), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_fine_tuning_starts_from_the_head_that_is_trained_alone(table: Path, tmp_path: Path) -> None:
    settings = {"batch_size": 12, "views": 1, "precision": "32", "lr": None}
    alone = train(config(table, **settings, epochs=HEAD_EPOCHS), tmp_path / "head")
    tuned = train(config(table, **settings, tune="last", epochs=1), tmp_path / "last")
    started = tuned.history()[0]
    assert started["epoch"] == 0
    assert started["validation"] == pytest.approx(alone.rules["validation"]["argmax"], abs=0.03)  # maps are float16
    assert len(compare([alone.path, tuned.path]).as_dict()["groups"]) == 2
