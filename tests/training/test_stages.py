"""What methods do after or during the training of the network, seen in the finished runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from helpers.cases import StopsAfter
from helpers.training import SHAPES, assert_same, config
from rectifier._base import console
from rectifier.data import open_data
from rectifier.labels import columns
from rectifier.methods import METHODS, find_method
from rectifier.samplers.lmle.quintuplets import QuintupletSampler
from rectifier.training import RunSpec, resume, stages, train, train_together
from rectifier.training import finish as outcome
from rectifier.training import many as suite
from rectifier.training.engine import fit as fitting
from rectifier.training.engine.interrupt import Stopped
from rectifier.training.predict import predict_images
from rectifier.training.run.folder import Run

BINARY = "shapes:samples=120,size=16,ratio=6,labels=shape=2/colour=2,missing=0.1"
CLASSIFIER = "head.classifier."


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    with console.quiet():
        yield


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Run:
    with console.quiet():
        return train(config(SHAPES, method="ce", select="last"), tmp_path_factory.mktemp("plain") / "run")


def trained(folder: Path, method: str, **settings: Any) -> Run:
    return train(config(SHAPES, method=method, select="last", **settings), folder / method)


@pytest.mark.parametrize("method", ["crt", "lws", "tau-normalisation"])
def test_the_classifier_alone_changes_after_training(
    tmp_path: Path, plain: Run, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcome, "choose_tau", lambda *_: 0.7)  # validation of so few images may well prefer 0
    options = {} if method == "tau-normalisation" else {"retrain_epochs": 2}
    run = trained(tmp_path, method, **options)
    before, after = plain.weights(), run.weights()
    assert before.keys() == after.keys()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert all(name.startswith(CLASSIFIER) for name in changed)
    weight, was = after[f"{CLASSIFIER}weight"], before[f"{CLASSIFIER}weight"]
    along = torch.nn.functional.cosine_similarity(weight, was)
    if method == "crt":  # retrained from new weights
        assert along.abs().max() < 0.99
    else:  # only their lengths
        torch.testing.assert_close(along, torch.ones_like(along))
        assert len(set((weight.norm(dim=1) / was.norm(dim=1)).tolist())) > 1
    if method == "tau-normalisation":
        torch.testing.assert_close(weight.norm(dim=1), was.norm(dim=1) ** 0.3)
        assert not after[f"{CLASSIFIER}bias"].any()
    assert (run.path / "history.csv").read_bytes() == (plain.path / "history.csv").read_bytes()
    logits = run.predictions("test").logits
    assert not torch.allclose(logits, plain.predictions("test").logits)


def test_a_classifier_trained_once_more_sees_rare_classes_as_often(tmp_path: Path) -> None:
    settings = {"epochs": 12, "select": "last", "lr": 0.05}
    data = "shapes:samples=300,size=16,ratio=20,labels=shape=3"
    accuracy = {}
    for method, options in (("ce", {}), ("crt", {"retrain_epochs": 12})):
        run = train(config(data, method=method, **settings, **options), tmp_path / method)
        logits = run.predictions("validation").logits
        accuracy[method] = logits.argmax(1).bincount(minlength=3).min() / len(logits)
    assert accuracy["crt"] > accuracy["ce"]  # the class that is said least often is said more often


def test_a_run_stopped_in_its_second_stage_resumes_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"epochs": 2, "retrain_epochs": 3, "network.dropout": 0.2}
    unbroken = trained(tmp_path, "crt", **settings)
    for at in (4, 9):  # in the first stage, and in the second
        with monkeypatch.context() as patch:
            patch.setattr(StopsAfter, "steps", at)
            patch.setattr(fitting, "Interrupt", StopsAfter)
            with pytest.raises(Stopped):
                train(config(SHAPES, method="crt", select="last", **settings), tmp_path / f"at{at}")
        run = resume(tmp_path / f"at{at}")
        assert_same(run, unbroken)
        assert (run.path / "history-classifier.csv").read_bytes() == (
            unbroken.path / "history-classifier.csv"
        ).read_bytes()


@pytest.mark.parametrize(
    ("method", "by_stage"),
    [
        *(("ce", [True]), ("crl", [True]), ("threshold-adjustment", [True]), ("tau-normalisation", [True])),
        *(("over-sampling", [False]), ("class-balanced", [False]), ("logit-adjustment", [False])),
        *(("crt", [True, False]), ("lws+over-sampling", [False, False])),
    ],
)
def test_no_epoch_is_chosen_by_a_second_correction_for_the_prior(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, by_stage: list[bool]
) -> None:
    """The network of crt is trained on all samples as they come, its classifier on balanced ones."""
    corrected, validation = [], stages.Validation

    def watched(fabric: Any, network: Any, batches: Any, sizes: Any, offsets: torch.Tensor, *more: Any) -> Any:
        corrected.append(bool(offsets.any()))
        return validation(fabric, network, batches, sizes, offsets, *more)

    monkeypatch.setattr(stages, "Validation", watched)
    options = {"retrain_epochs": 1} if len(by_stage) > 1 else {}
    run = train(config(SHAPES, method=method, select="prior", epochs=1, **options), tmp_path / "run")
    assert corrected == by_stage
    assert any(run.rules["offsets"]["prior"]) == (not find_method(method).moves_threshold)


def test_seeds_retrain_side_by_side(tmp_path: Path) -> None:
    configs = [config(SHAPES, method="crt", seed=seed, retrain_epochs=2) for seed in (0, 1)]
    together = train_together([RunSpec("", each, tmp_path / "a" / str(each.seed)) for each in configs])
    for each, run in zip(configs, together, strict=True):
        assert_same(run, train(each, tmp_path / "b" / str(each.seed)))


@pytest.mark.parametrize("method", [name for name in METHODS if name != "ce"])
def test_every_method_trains_and_is_not_cross_entropy(tmp_path: Path, method: str) -> None:
    options = {"eta": 0.8} if METHODS[method].rectification else {}
    options |= {"weights_from": 0.5} if "weights_from" in METHODS[method].options else {}
    data = BINARY if method == "asymmetric" else SHAPES
    settings = {"epochs": 2, "batch_size": 30, "select": "last"}
    run = train(config(data, method=method, **settings, **options), tmp_path / "run")
    other = train(config(data, method="ce", **settings), tmp_path / "ce")
    assert run.metrics["test"]["class_balanced_accuracy"] is not None
    if METHODS[method].posthoc:
        assert run.rules["offsets"]["argmax"] != other.rules["offsets"]["argmax"]
    else:
        assert not torch.equal(run.predictions("test").logits, other.predictions("test").logits)


@pytest.mark.parametrize("method", ["ldam-drw", "triplet-knn", "svm", "lmle", "hog-knn", "crl+svm"])
def test_new_images_are_decided_as_those_of_the_test_part(tmp_path: Path, method: str) -> None:
    data = open_data(SHAPES)
    run = trained(tmp_path, method, batch_size=30, epochs=5)
    saved = run.predictions("test")
    rows = data.indices("test")[:10].numpy()
    for row, pixels in zip(rows, data.images.gather(rows), strict=True):  # type: ignore[attr-defined]
        Image.fromarray(pixels).save(tmp_path / f"{row:04d}.png")
    forecast = predict_images(run, sorted(tmp_path.glob("*.png")), rule="argmax", device="cpu", batch_size=4)
    wanted = columns.argmax(saved.logits[:10], run.space.sizes)
    assert torch.equal(forecast.classes, wanted)
    assert ("decision.safetensors" in {path.name for path in run.path.iterdir()}) == bool(find_method(method).decision)


def test_lmle_mines_in_rounds_and_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"epochs": 5, "batch_size": 30, "rounds": 2, "pretrain": 0.2}
    mined: list[int] = []
    mine = QuintupletSampler.mine

    def counted(sampler: QuintupletSampler, features: torch.Tensor) -> None:
        mined.append(sampler.epoch)
        mine(sampler, features)

    with monkeypatch.context() as patch:
        patch.setattr(QuintupletSampler, "mine", counted)
        unbroken = trained(tmp_path, "lmle", **settings)
    assert len(mined) == 2
    batches = len(unbroken.path.joinpath("history.csv").read_text().splitlines()) - 1
    assert batches == 5
    for at in (2, 7, 12):
        with monkeypatch.context() as patch:
            patch.setattr(StopsAfter, "steps", at)
            patch.setattr(fitting, "Interrupt", StopsAfter)
            with pytest.raises(Stopped):
                train(config(SHAPES, method="lmle", select="last", **settings), tmp_path / f"at{at}")
        assert_same(resume(tmp_path / f"at{at}"), unbroken)


def test_lmle_needs_five_samples_a_label(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="batch_size to be at least 10 for each process, five samples for each label"):
        trained(tmp_path, "lmle", batch_size=9)
    assert not (tmp_path / "lmle").exists()


@pytest.mark.parametrize("method", ["ldam+lws", "ldam-drw+tau-normalisation"])
def test_a_classifier_without_lengths_is_refused_at_once(method: str) -> None:
    with pytest.raises(ValueError, match="leaves the classifier linear"):
        config(SHAPES, method=method)
    with pytest.raises(ValueError, match="classifier to be linear for method 'lws', but got 'cosine'"):
        config(SHAPES, method="lws", **{"network.classifier": "cosine"})


def test_compare_looks_at_all_methods_before_it_trains_one(tmp_path: Path) -> None:
    common = config("shapes:samples=96,size=16,ratio=4,labels=shape=3", epochs=2)
    for method in ("asymmetric", "lmle"):  # neither for labels of three classes, nor for batches of four
        planned = suite.plan(replace(common, batch_size=4), ["ce", method], 1, tmp_path / method)
        with pytest.raises(ValueError, match=r"sizes to be 2|batch_size to be at least 5"):
            suite.train_missing(planned)
        assert not (tmp_path / method).exists()


def test_a_message_names_labels_that_no_image_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = outcome.predict

    def half_dead(*arguments: Any) -> Any:
        logits, features = real(*arguments)
        logits[:, :4] = torch.tensor([1.0, -2.0, 0.5, 3.0])  # of the first label, of four classes
        return logits, features

    monkeypatch.setattr(outcome, "predict", half_dead)
    said: list[str] = []
    monkeypatch.setattr(console, "say", said.append)  # the fixture would keep it quiet
    sizes = "shapes:samples=60,size=16,ratio=4,labels=shape=4/colour=3"
    run = train(config(sizes, method="ce", epochs=1), tmp_path / "run")
    warning = "1 of 2 labels (shape): the logits are the same for every validation image."
    assert [warning in text for text in said].count(True) == 1
    said.clear()
    assert outcome.blind_labels(run.predictions("validation")) == ["shape"]
    monkeypatch.setattr(outcome, "predict", real)
    seeing = train(config(sizes, method="ce", epochs=1), tmp_path / "seeing")
    assert outcome.blind_labels(seeing.predictions("validation")) == []
    assert not any("same for every" in text for text in said)


@pytest.mark.parametrize(
    ("method", "score", "times"), [("crl", 7 / 24, 1), ("crl", 7 / 24 + 0.01, 0), ("ce", 7 / 24, 0)]
)
def test_a_message_says_early_that_rectification_collapses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, score: float, times: int
) -> None:
    """Four classes and three: the same answer for all is right for a quarter and a third of the classes."""
    monkeypatch.setattr(stages.Validation, "__call__", lambda self: torch.tensor(score))
    said: list[str] = []
    monkeypatch.setattr(console, "say", said.append)
    sizes = "shapes:samples=60,size=16,ratio=4,labels=shape=4/colour=3"
    train(config(sizes, method=method, epochs=8, validate_every=1), tmp_path / "run")
    found = [text for text in said if "All images got the same prediction after epoch 2" in text]
    assert len(found) == times
    assert all("rectify_from=0.25" in text for text in found)
    assert not [text for text in said if "got the same prediction" in text and text not in found]
