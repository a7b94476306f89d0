"""Saved predictions: what goes in comes out, in half precision where that is enough, and damage is an error."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from rectifier import LabelSpace
from rectifier.training.run.predictions import Predictions

SPACE = LabelSpace.from_names({"Größe/size": ["klein", "mittel", "groß"], "striped": ["no", "yes"]})
ODD = ("a,b.png", "snow \N{SNOWMAN}.png", 'quo"te\\.png', "new\nline", "", os.fsdecode(b"caf\xe9.png"))


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def predictions(features: Tensor | None = None, ids: tuple[str, ...] = ODD) -> Predictions:
    targets = torch.tensor([[0, 1], [2, -1], [-1, 0], [1, 1], [2, 0], [0, -100]])
    return Predictions(drawn(6, 5), targets, ids, SPACE, features)


def saved(path: Path, what: Predictions) -> Predictions:
    what.save(path)
    return Predictions.load(path)


def stored_type(path: Path) -> torch.dtype:
    with safe_open(path, "pt") as file:
        return file.get_tensor("features").dtype


def test_logits_targets_ids_and_labels_come_back_exactly(tmp_path: Path) -> None:
    before = predictions()
    after = saved(tmp_path / "test.safetensors", before)
    assert torch.equal(after.logits, before.logits)
    assert torch.equal(after.targets, before.targets)
    assert (after.ids, after.space, after.features) == (before.ids, before.space, None)
    assert os.listdir(tmp_path) == ["test.safetensors"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_logits_keep_their_precision(tmp_path: Path, dtype: torch.dtype) -> None:
    before = Predictions(drawn(6, 5).to(dtype), predictions().targets, ODD, SPACE)
    after = saved(tmp_path / "test.safetensors", before).logits
    assert after.dtype == dtype
    assert torch.equal(after, before.logits)


@pytest.mark.parametrize("shape", [(6, 4), (6, 2, 4)])
def test_features_are_stored_in_half_precision(tmp_path: Path, shape: tuple[int, ...]) -> None:
    path, features = tmp_path / "test.safetensors", drawn(*shape)
    after = saved(path, predictions(features)).features
    assert after is not None
    assert torch.equal(after, features.half().float())
    assert not torch.equal(after, features)
    assert (after.dtype, stored_type(path)) == (torch.float32, torch.float16)


@pytest.mark.parametrize("value", [7e4, -7e4, 1e30, float("inf"), float("nan")])
def test_features_that_half_precision_cannot_hold_stay_as_they_are(tmp_path: Path, value: float) -> None:
    path, features = tmp_path / "test.safetensors", drawn(6, 4)
    features[3, 1] = value
    after = saved(path, predictions(features)).features
    assert after is not None
    assert torch.equal(after.nan_to_num(nan=0.5), features.nan_to_num(nan=0.5))
    assert stored_type(path) == torch.float32


def test_tensors_that_are_views_of_others_are_saved(tmp_path: Path) -> None:
    wide, tall = drawn(6, 10), drawn(4, 6)
    before = Predictions(wide[:, ::2], predictions().targets.T.contiguous().T, ODD, SPACE, tall.T)
    after = saved(tmp_path / "test.safetensors", before)
    assert torch.equal(after.logits, wide[:, ::2])
    assert torch.equal(after.targets, before.targets)
    assert after.features is not None
    assert torch.equal(after.features, tall.T.half().float())


def test_equal_predictions_are_equal_files(tmp_path: Path) -> None:
    contents = set()
    for number in range(5):
        predictions(drawn(6, 4)).save(tmp_path / f"{number}.safetensors")
        contents.add((tmp_path / f"{number}.safetensors").read_bytes())
    assert len(contents) == 1


def test_no_samples_at_all(tmp_path: Path) -> None:
    none = Predictions(torch.zeros(0, 5), torch.zeros(0, 2, dtype=torch.int64), (), SPACE, torch.zeros(0, 4))
    after = saved(tmp_path / "test.safetensors", none)
    assert (after.logits.shape, after.targets.shape, after.ids) == ((0, 5), (0, 2), ())


def test_a_class_whose_name_is_no_text(tmp_path: Path) -> None:
    # A folder for each class may have a name whose bytes are no UTF-8; the fingerprint of data allows for it.
    space = LabelSpace.from_names({"kind": [os.fsdecode(b"caf\xe9"), "tea"]})
    before = Predictions(drawn(2, 2), torch.tensor([[0], [1]]), ("0", "1"), space)
    assert saved(tmp_path / "test.safetensors", before).space == space


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"absent\.safetensors does not exist"):
        Predictions.load(tmp_path / "absent.safetensors")


def whole(path: Path) -> bytes:
    predictions(drawn(6, 4)).save(path)
    return path.read_bytes()


TENSORS = {"logits": torch.zeros(1, 5), "targets": torch.zeros(1, 2)}
ABOUT = {"ids": ["0"], **json.loads(SPACE.to_json())}


def described(**changes: object) -> dict[str, str]:
    """The metadata of the file, with entries changed, or left out where they are None."""
    return {"rectifier": json.dumps({key: value for key, value in {**ABOUT, **changes}.items() if value is not None})}


DAMAGED: dict[str, bytes] = {
    "empty": b"",
    "text": b"logits,targets\n1,2\n",
    "zeros": bytes(5000),
    "no metadata": save(TENSORS),
    "weights": save(TENSORS, {"label_space": SPACE.to_json()}),
    "no ids": save(TENSORS, described(ids=None)),
    "ids that are no list": save(TENSORS, described(ids=5)),
    "no labels": save(TENSORS, described(labels=None)),
    "labels that are no label space": save(TENSORS, described(labels=[{"names": "striped"}])),
    "no JSON": save(TENSORS, {"rectifier": "ids"}),
    "a list": save(TENSORS, {"rectifier": "[]"}),
    "no logits": save({"targets": torch.zeros(1, 2)}, described()),
    "no targets": save({"logits": torch.zeros(1, 5)}, described()),
}


def test_the_cases_below_fail_for_their_damage_alone(tmp_path: Path) -> None:
    (tmp_path / "test.safetensors").write_bytes(save(TENSORS, described()))
    assert Predictions.load(tmp_path / "test.safetensors").ids == ("0",)


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_file_that_is_something_else(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "test.safetensors"
    path.write_bytes(DAMAGED[damage])
    with pytest.raises(ValueError, match=r"test\.safetensors to be saved predictions, but got a damaged file \("):
        Predictions.load(path)


@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 0.999])
def test_a_file_that_ends_too_early(tmp_path: Path, share: float) -> None:
    path = tmp_path / "test.safetensors"
    content = whole(path)
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match=r"test\.safetensors to be saved predictions, but got a damaged file \("):
        Predictions.load(path)
