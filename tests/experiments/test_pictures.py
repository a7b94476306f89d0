"""Examples that one run misses and another finds: counted, chosen and drawn."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb
from PIL import Image

from experiments import pictures
from experiments.pictures import ExampleRow, count_exchanges, draw_examples, exchange, find_examples
from helpers.experiments import recorded, run_quick
from rectifier._base.files import write_json
from rectifier.data.dataset import ImageArray, ImageData, ImageFiles
from rectifier.labels.space import LabelSpace
from rectifier.report.comparison import RULES
from rectifier.training.config import Config
from rectifier.training.run.folder import Run
from rectifier.training.run.predictions import Predictions

TARGETS = [1, 1, 1, 1, 1, 0, 0, 0, -1]  # class 1 is rare


BASE = [0, 0, 0, 1, 1, 0, 1, 0, 1]


OTHER = [1, 1, 0, 0, 1, 1, 1, 0, 0]


def test_known_decisions_are_exchanged_as_expected() -> None:
    masks = exchange(torch.tensor(TARGETS), torch.tensor(BASE), torch.tensor(OTHER), 1)
    where = {name: mask.nonzero()[:, 0].tolist() for name, mask in masks._asdict().items()}
    assert where == {"missed": [0, 1, 2], "found": [0, 1], "lost": [3], "alarms": [6], "other_alarms": [5, 6]}


def write_run(path: Path, decided: list[list[int]], preferred: str = "argmax", seed: int = 0) -> Run:
    """Write what these functions read of a run: decisions as logits; ``prior`` sees no hats, ``tuned`` sees all."""
    space = LabelSpace.from_names({"even": ["no", "yes"], "hat": ["no", "yes"]})
    run = Run.create(path, replace(Config("shapes"), seed=seed))
    counts = {"even": {"no": 6, "yes": 5}, "hat": {"no": 90, "yes": 2}}
    write_json(path / "data.json", {"counts": {"train": counts, "test": counts}, **json.loads(space.to_json())})
    columns = torch.tensor(decided)
    logits = torch.stack([1.0 - columns, columns], dim=2).flatten(1)
    targets = torch.stack([torch.zeros(len(TARGETS), dtype=torch.int64), torch.tensor(TARGETS)], dim=1)
    ids = tuple(f"image{i}" for i in range(len(TARGETS)))
    run.save_predictions("test", Predictions(logits, targets, ids, space))
    never, always = [0.0, 0.0, 9.0, 0.0], [0.0, 0.0, 0.0, 9.0]
    offsets = {"argmax": [0.0] * 4, "prior": never, "tuned": always}
    write_json(path / "rules.json", {"preferred": preferred, "offsets": offsets})
    return run


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Run, Run]:
    base = write_run(tmp_path / "base", [[0, k] for k in BASE], "prior")
    return base, write_run(tmp_path / "other", [[0, k] for k in OTHER], "tuned")


def test_known_runs_give_the_expected_counts(pair: tuple[Run, Run]) -> None:
    found = count_exchanges([pair], ["argmax", "prior", "preferred"], most=1)
    (hat,) = found["labels"]
    assert {key: hat[key] for key in ("label", "class", "ratio", "rare", "others")} == {
        **{"label": "hat", "class": "yes", "ratio": 45.0},
        **{"rare": 5, "others": 3},
    }

    def counts(rule: str) -> list[int]:
        return [hat["rules"][rule][name]["0"] for name in ("missed", "found", "lost", "alarms", "other_alarms")]

    assert counts("argmax") == [3, 2, 1, 1, 2]
    assert counts("prior") == [5, 0, 0, 0, 0]
    assert counts("preferred") == [5, 5, 0, 0, 3]  # the base prefers never, the other always
    # "yes" is the rarer class of "even". No test image has it, and no run predicts it.
    assert found["all"]["rare"] == 5
    assert found["all"]["others"] == 3 + 9
    assert found["all"]["rules"] == hat["rules"]


def test_examples_are_the_first_of_their_kind(pair: tuple[Run, Run]) -> None:
    shown = find_examples(*pair, most=2)
    assert list(shown) == ["hat", "even"]  # the most imbalanced first
    assert shown["hat"] == {"found": ["image0", "image1"], "lost": ["image3"]}
    assert find_examples(*pair, most=1, rule="prior")["hat"] == {"found": [], "lost": []}
    assert find_examples(*reversed(pair), most=1, rule="preferred")["hat"] == {
        "found": [],
        "lost": [f"image{i}" for i in range(pictures.EACH)],
    }


def test_runs_of_other_seeds_are_not_compared(pair: tuple[Run, Run], tmp_path: Path) -> None:
    later = write_run(tmp_path / "later", [[0, k] for k in OTHER], seed=1)
    with pytest.raises(ValueError, match=r"Expected test images and seed of .*later to be those of .*base"):
        count_exchanges([(pair[0], later)], ["argmax"], most=1)


def test_images_are_read_by_their_ids(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 6, 5, 3), np.uint8)
    for i, image in enumerate(pixels):
        Image.fromarray(image).save(tmp_path / f"{i}.png")
    space, split = LabelSpace.from_sizes([2]), torch.tensor([0, 1, 2])
    ids, targets = ("a", "b", "c"), torch.tensor([[0], [1], [0]])
    for images in (ImageArray(pixels), ImageFiles(tmp_path, ("0.png", "1.png", "2.png"))):
        data = ImageData("tiny", images, targets, space, split, ids)
        read = pictures.read_images(data, ["c", "a"])
        assert np.array_equal(np.stack(read), pixels[[2, 0]])
        with pytest.raises(ValueError, match=r"'tiny' to be what the run was trained on, but got .* image 'd'"):
            pictures.read_images(data, ["a", "d"])


def test_frames_say_who_was_found(tmp_path: Path) -> None:
    grey = [np.full((8, 6, 1), 128, np.uint8)]
    path = tmp_path / "new" / "picture.png"
    for found, lost in ((grey, []), ([], grey * 3), (grey, grey)):
        draw_examples([ExampleRow("hat", found, lost), ExampleRow("no hat", [], [])], ("left", "right"), path)
        shades = np.asarray(Image.open(path).convert("RGB"))
        for colour, images in ((pictures.GREEN, found), (pictures.RED, lost)):
            own = np.round(255 * np.array(to_rgb(colour)))
            # The heads have the same colours: a frame has many more pixels.
            assert ((shades == own).all(2).sum() > 1000) == bool(images)


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quick")
    run_quick("examples", folder)
    return folder


def test_examples_are_counted_and_drawn_next_to_the_runs(quick: Path) -> None:
    content = recorded(quick, "examples")
    found = content["found"]
    ratios = [one["ratio"] for one in found["labels"]]
    assert ratios == sorted(ratios, reverse=True)
    assert set(found["shown"]) <= {one["label"] for one in found["labels"]}
    assert (quick / "quick-pictures" / "examples.png").is_file()
    assert not (quick / "results" / "examples.png").exists()
    page = (quick / "results" / "examples.md").read_text()
    assert "`examples.png` is in `pictures` (small version: `quick-pictures`)" in page
    assert page.count("| all labels |") == len(RULES) + 1
    assert str(quick) not in page


def test_counts_of_examples_agree_with_the_scores(quick: Path) -> None:
    """Missed images are 1 - sensitivity. Found less lost is the difference in sensitivity between the two runs."""
    found = recorded(quick, "examples")["found"]
    runs = [Run(path) for path in sorted((quick / "runs").iterdir())]
    labels = {one["label"] for one in found["labels"]}
    runs = [run for run in runs if labels <= set(run.space.names) and run.config.seed < 2]
    base = {str(run.config.seed): run.metrics["test"]["rules"] for run in runs if run.config.method == "ce"}
    other = {str(run.config.seed): run.metrics["test"]["rules"] for run in runs if run.config.method == "crl"}
    assert set(base) == set(other) == {"0", "1"}
    for one in found["labels"]:
        for rule in RULES:
            counts = one["rules"][rule]
            for seed in base:
                before, after = (side[seed][rule]["labels"][one["label"]]["sensitivity"] for side in (base, other))
                assert counts["missed"][seed] / one["rare"] == pytest.approx(1 - before[one["class"]])
                balance = counts["found"][seed] - counts["lost"][seed]
                assert balance / one["rare"] == pytest.approx(after[one["class"]] - before[one["class"]])
