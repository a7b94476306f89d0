"""The run folder: which run it holds, whether that is finished, and that no other is touched."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open

from rectifier import LabelSpace
from rectifier._base import files
from rectifier.data import ImageData
from rectifier.data.dataset import PARTS, ImageArray, ImageFiles
from rectifier.data.normalise import Normalisation
from rectifier.training.config import Config
from rectifier.training.run import folder
from rectifier.training.run.folder import Run, describe_data
from rectifier.training.run.predictions import Predictions

CONFIG = Config("digits", network="mlp")
NORMALISATION = Normalisation((0.1, 0.2, 1 / 3), (0.5, 0.25, 0.7))
SPACE = LabelSpace.from_names({"colour": ["red", "green/blue", "größer"], "striped": ["no", "yes"]})


def make_data(seed: int = 0, samples: int = 40) -> ImageData:
    g = torch.Generator().manual_seed(seed)
    targets = torch.stack([torch.randint(-1, size, (samples,), generator=g) for size in SPACE.sizes], 1)
    split = torch.randint(0, 3, (samples,), generator=g)
    return ImageData("tiny", ImageArray(np.zeros((samples, 4, 5, 3), np.uint8)), targets, SPACE, split, notes=("seen",))


def files_of(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run that has started."""
    run = Run.create(tmp_path / "run", CONFIG)
    run.begin(make_data(), NORMALISATION, {"lr": 0.05})
    return run


# Created and opened


@pytest.mark.parametrize("there", [False, True])
def test_a_new_and_an_empty_folder_are_free(tmp_path: Path, there: bool) -> None:
    path = tmp_path / "deep" / "run"
    if there:
        path.mkdir(parents=True)
    Run.create(path, CONFIG)
    assert Run.open(path).config == CONFIG
    assert not Run.open(str(path)).is_finished


def test_checking_writes_nothing(tmp_path: Path) -> None:
    Run.check_free(tmp_path / "run", CONFIG)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "differing"),
    [
        ({"seed": 1}, "seed 0 there, 1 here"),
        ({"method": "ce"}, "method crl there, ce here"),
        ({"method_options": {"eta": 0.5}}, "method_options {} there, {'eta': 0.5} here"),
        ({"data": "shapes", "lr": 0.5}, "data digits there, shapes here; lr None there, 0.5 here"),
    ],
)
def test_the_folder_of_another_run_names_what_differs(run: Run, change: dict[str, Any], differing: str) -> None:
    before = files_of(run.path)
    message = f"{run.path} already holds another run ({differing}). A new run needs a new or empty folder."
    with pytest.raises(FileExistsError, match=re.escape(message)):
        Run.create(run.path, replace(CONFIG, **change))
    assert files_of(run.path) == before


def test_the_folder_of_the_same_run_says_whether_it_is_finished(run: Run) -> None:
    with pytest.raises(FileExistsError, match="holds the same run, not finished"):
        Run.create(run.path, CONFIG)
    run.save_results({}, {})
    with pytest.raises(FileExistsError, match="holds the same run, finished"):
        Run.create(run.path, CONFIG)


def test_what_was_asked_is_kept_next_to_what_the_recipe_chose(tmp_path: Path) -> None:
    asked, settled = Config("digits", network="mlp"), Config("digits", network="mlp", epochs=30, optimizer="sgd")
    run = Run.create(tmp_path / "run", settled, asked)
    assert (run.asked, run.config) == (asked, settled)
    for same in (asked, settled):
        with pytest.raises(FileExistsError, match="holds the same run, not finished"):
            Run.check_free(run.path, same)
    with pytest.raises(FileExistsError, match=re.escape("another run (epochs None there, 5 here)")):
        Run.check_free(run.path, replace(asked, epochs=5))
    plain = Run.create(tmp_path / "plain", settled, settled)
    assert plain.asked == settled
    assert [path.name for path in plain.path.iterdir()] == ["config.json"]


def test_a_folder_with_other_files(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(ValueError, match=r"holds other files\. A run needs a new or empty folder\."):
        Run.create(tmp_path, CONFIG)
    assert files_of(tmp_path) == {"thesis.tex": b"mine"}


def test_a_file_in_place_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("mine")
    with pytest.raises(ValueError, match=r"run is a file\. A run needs a folder\."):
        Run.create(tmp_path / "run", CONFIG)
    assert files_of(tmp_path) == {"run": b"mine"}


def test_opening_what_is_no_run(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent"):
        message = (
            f"{path} is not the folder of a run: it has no config.json." if path.exists() else f"{path} does not exist."
        )
        with pytest.raises(FileNotFoundError, match=re.escape(message)):
            Run.open(path)


# Data


def test_what_is_noted_of_the_data_comes_back(run: Run) -> None:
    data, again = make_data(), Run.open(run.path)
    assert again.space == data.space
    assert again.normalisation == NORMALISATION
    assert [c.tolist() for c in again.train_counts] == [c.tolist() for c in data.counts("train")]
    assert again.data == describe_data(data, NORMALISATION)


def test_samples_and_classes_are_counted_part_by_part() -> None:
    data = make_data(seed=1)
    found = describe_data(data, NORMALISATION)
    split, targets = data.split.tolist(), data.targets.tolist()
    for p, part in enumerate(PARTS):
        own = [row for row, s in zip(targets, split, strict=True) if s == p]
        assert found["samples"][part] == len(own)
        for a, (name, classes) in enumerate(zip(SPACE.names, SPACE.classes, strict=True)):
            expected = {c: sum(row[a] == k for row in own) for k, c in enumerate(classes)}
            assert found["counts"][part][name] == expected
            assert list(found["counts"][part][name]) == list(classes)
    assert found["shape"] == [4, 5, 3]


def test_images_that_are_not_decoded_have_no_shape() -> None:
    data = make_data()
    files = ImageFiles(Path("somewhere"), tuple(f"{i}.png" for i in range(len(data))))
    assert describe_data(replace(data, images=files), NORMALISATION)["shape"] is None


def other_targets(data: ImageData) -> ImageData:
    targets = data.targets.clone()
    targets[data.indices("train")[0], 0] = 2 - targets[data.indices("train")[0], 0].clamp(min=1)
    return replace(data, targets=targets)


def other_split(data: ImageData) -> ImageData:
    return replace(data, split=data.split.roll(1))


def other_ids(data: ImageData) -> ImageData:
    return replace(data, ids=tuple(f"new-{i}" for i in range(len(data))))


def other_names(data: ImageData) -> ImageData:
    return replace(data, space=LabelSpace(SPACE.names, (SPACE.classes[0], ("plain", "yes"))))


def other_shape(data: ImageData) -> ImageData:
    return replace(data, images=ImageArray(np.zeros((len(data), 8, 5, 3), np.uint8)))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (other_targets, "counts"),
        (other_split, "split_hash"),
        (other_ids, "fingerprint"),
        (other_names, "labels"),
        (other_shape, "shape"),
        (lambda data: data.select(range(len(data) - 1)), "samples"),
        (lambda data: replace(data, name="other"), "name"),
    ],
)
def test_data_that_changed_under_a_run_is_named(run: Run, change: Any, named: str) -> None:
    before = files_of(run.path)
    message = rf"The data of .*run has changed since the run started: .*\b{named}\b"
    with pytest.raises(ValueError, match=message):
        run.begin(change(make_data()), NORMALISATION, {})
    assert files_of(run.path) == before


def test_pixels_that_changed_are_named(run: Run) -> None:
    data = make_data()
    pixels = data.images.pixels.copy()  # type: ignore[attr-defined]
    pixels[[0, 1]] = pixels[[1, 0]]  # same mean, same deviation
    pixels[0, 0, 0, 0] ^= 1
    with pytest.raises(ValueError, match=r"started: pixels\.$"):
        run.begin(replace(data, images=ImageArray(pixels)), NORMALISATION, {})


def test_notes_may_change(run: Run) -> None:
    run.begin(replace(make_data(), notes=("seen again",)), NORMALISATION, {})
    assert len(run.environment["sessions"]) == 2


# Sessions


def test_every_session_is_kept(run: Run) -> None:
    first = run.environment["sessions"]
    run.end_session(seconds=1.5)
    run.begin(make_data(), NORMALISATION, {"lr": 0.1})
    run.end_session(seconds=2.5)
    found = run.environment
    assert [session["seconds"] for session in found["sessions"]] == [1.5, 2.5]
    assert found["sessions"][0] == {**first[0], "seconds": 1.5}
    assert found["decided"] == {"lr": 0.1}
    assert {"rectifier", "commit", "packages"} <= set(found)


# What a run that is not finished lacks


@pytest.mark.parametrize("what", ["weights", "predictions", "metrics", "rules"])
def test_what_is_not_there_yet_names_the_unfinished_run(run: Run, what: str) -> None:
    read = {"weights": run.weights, "predictions": lambda: run.predictions("test")}
    with pytest.raises(FileNotFoundError, match=f"{run.path}.*{what}.* is missing: the run is not finished"):
        read.get(what, lambda: getattr(run, what))()


def test_a_run_that_never_started_is_not_finished(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", CONFIG)
    for what in ("data", "space", "train_counts", "environment"):
        with pytest.raises(FileNotFoundError, match="is missing: the run is not finished"):
            getattr(run, what)


def test_a_run_is_finished_with_its_metrics_and_not_before(run: Run) -> None:
    with pytest.raises(ValueError, match="Out of range float values"):
        run.save_results({"preferred": float("nan")}, {"test": 1})
    assert not run.is_finished
    run.save_results({"preferred": "argmax"}, {"test": 1})
    assert run.is_finished
    assert (run.rules, run.metrics) == ({"preferred": "argmax"}, {"test": 1})


# What it saves


def test_a_checkpoint_comes_back_and_the_newer_replaces_the_older(run: Run) -> None:
    assert run.checkpoint() is None
    for step in (1, 2):
        weights = torch.randn(3, 2, generator=torch.Generator().manual_seed(step))
        state = {"step": step, "best": None, "epochs": [{"loss": 0.5}], "network": {"w": weights.bfloat16()}}
        run.save_checkpoint(state)
        found = run.checkpoint()
        assert found is not None
        assert torch.equal(found["network"]["w"], state["network"]["w"])
        assert {key: found[key] for key in ("step", "best", "epochs")} == {
            key: state[key] for key in ("step", "best", "epochs")
        }


def test_a_checkpoint_cannot_run_code(run: Run) -> None:
    run.save_checkpoint({"path": Path("x")})
    with pytest.raises(Exception, match="Weights only load failed"):
        run.checkpoint()


def test_weights_come_back_with_their_label_space(run: Run) -> None:
    wide = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    before = {"conv": wide.T, "norm.steps": torch.tensor(7), "half": wide.half()}
    run.save_weights(before)
    after = run.weights()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) and after[name].dtype == before[name].dtype for name in before)
    with safe_open(run.path / "weights.safetensors", "pt") as file:
        assert LabelSpace.from_json(file.metadata()["label_space"]) == SPACE


def test_predictions_of_both_parts_are_kept_apart(run: Run) -> None:
    for number, part in enumerate(("validation", "test")):
        logits = torch.full((2, 5), float(number))
        run.save_predictions(part, Predictions(logits, torch.zeros(2, 2, dtype=torch.int64), ("a", "b"), SPACE))
    assert [run.predictions(part).logits.unique().tolist() for part in ("validation", "test")] == [[0.0], [1.0]]


def test_everything_is_written_whole(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    predictions = Predictions(torch.zeros(1, 5), torch.zeros(1, 2, dtype=torch.int64), ("a",), SPACE)
    run.save_weights({"w": torch.zeros(2)})
    run.save_checkpoint({"step": 1})
    run.save_predictions("test", predictions)
    run.save_results({}, {})
    before = files_of(run.path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    saves: list[Any] = [
        lambda: run.save_weights({"w": torch.ones(2)}),
        lambda: run.save_checkpoint({"step": 2}),
        lambda: run.save_predictions("test", replace(predictions, ids=("b",))),
        lambda: run.save_results({"a": 1}, {"a": 1}),
        lambda: run.end_session(seconds=1),
    ]
    for save in saves:
        with pytest.raises(OSError, match="No space left on device while saving"):
            save()
    assert files_of(run.path) == before


def test_json_files_are_for_people_too(run: Run) -> None:
    text = (run.path / "data.json").read_text(encoding="utf-8")
    assert "größer" in text
    assert json.loads(text)["labels"][0]["classes"] == list(SPACE.classes[0])


# Read once


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the JSON files that runs read from now on."""
    names: list[str] = []

    def counted(path: Path) -> Any:
        names.append(path.name)
        return files.read_json(path)

    monkeypatch.setattr(folder, "read_json", counted)
    return names


def test_a_file_is_parsed_once(run: Run, reads: list[str]) -> None:
    again = Run.open(run.path)
    for _ in range(3):
        assert (again.space, again.normalisation) == (SPACE, NORMALISATION)
        assert again.train_counts
        assert again.environment["decided"] == {"lr": 0.05}
    assert again.config is again.config
    assert sorted(reads) == ["data.json", "environment.json"]


def test_what_this_run_writes_is_read_again(run: Run, reads: list[str]) -> None:
    for number in range(5):  # of equal size, and faster than the clock of some file systems
        run.save_results({"preferred": "argmax"}, {"test": number})
        assert run.metrics == {"test": number}
    assert reads == ["metrics.json"] * 5


def test_what_another_writes_is_read_again(run: Run) -> None:
    run.save_results({}, {"test": 1})
    assert run.metrics == {"test": 1}
    Run(run.path).save_results({}, {"test": 2})
    assert run.metrics == {"test": 2}
    (run.path / "metrics.json").write_text('{"test": 30}')
    assert run.metrics == {"test": 30}
    (run.path / "metrics.json").unlink()
    with pytest.raises(FileNotFoundError, match="metrics"):
        _ = run.metrics
