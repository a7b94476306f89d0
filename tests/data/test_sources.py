from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from rectifier import LabelSpace
from rectifier.data.sources import SOURCES, data_root, literal, open_data, reader_options
from rectifier.data.store import build_store

FEW = "shapes:samples=60,size=16,ratio=4"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Twenty photographs in ``photos`` and a table of two labels and a number for each."""
    (tmp_path / "photos").mkdir()
    rows = [[f"{row}.png", "ab"[row % 2], "xyz"[row % 3], row - 1 if row < 3 else 1] for row in range(20)]
    for row, (name, *_) in enumerate(rows):
        Image.fromarray(np.full((4, 4, 3), row, np.uint8)).save(tmp_path / "photos" / name)
    with (tmp_path / "table.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["image", "a", "b", "n"], *rows])
    return tmp_path / "table.csv"


class TestNames:
    def test_options_in_the_name_and_in_the_call(self) -> None:
        one = open_data(f"{FEW},labels=shape/colour,seed=3")
        two = open_data("shapes", samples=60, size=16, ratio=4, labels="shape/colour", seed=3)
        assert one.space.names == ("shape", "colour")
        assert one.fingerprint == two.fingerprint
        assert np.array_equal(one.images.pixels, two.images.pixels)
        assert open_data(f" {FEW}".strip() + ", labels = shape ,").space.names == ("shape",)

    def test_the_call_wins_but_a_seed_in_the_name_stays(self) -> None:
        assert len(open_data("shapes:samples=60,size=16,ratio=4", samples=90).part("train")) == 90
        named = open_data(f"{FEW},seed=3")
        assert open_data(f"{FEW},seed=3", seed=4).fingerprint == named.fingerprint
        assert open_data(FEW, seed=4).fingerprint != named.fingerprint
        assert open_data(FEW, seed=3).fingerprint == named.fingerprint

    @pytest.mark.parametrize(
        ("spec", "name"),
        [
            ("shpaes", "shapes"),
            ("shpaes:samples=60", "shapes"),
            ("CelebA", "celeba"),
            ("CIFAR-100:imb=1", "cifar100"),
            ("digit", "digits"),
        ],
    )
    def test_misspelt_names(self, spec: str, name: str) -> None:
        message = rf"Expected data to be a data set \(digits, .*but got '{spec}'\. Did you mean '{name}'\?"
        with pytest.raises(FileNotFoundError, match=message):
            open_data(spec)

    def test_a_path_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match=rf"^{tmp_path}/label\.csv does not exist\.$"):
            open_data(tmp_path / "label.csv")
        (tmp_path / "labels.csv").touch()
        with pytest.raises(FileNotFoundError, match=r"label\.csv does not exist\. Did you mean 'labels\.csv'\?$"):
            open_data(tmp_path / "label.csv")

    @pytest.mark.parametrize(("spec", "options"), [("shapes:sample=60", {}), ("shapes", {"sample": 60})])
    def test_misspelt_options(self, spec: str, options: dict[str, Any]) -> None:
        message = r"Expected every option of shapes to be among .*, but got 'sample'\. Did you mean 'samples'\?"
        with pytest.raises(ValueError, match=message):
            open_data(spec, **options)

    @pytest.mark.parametrize("spec", ["shapes:samples", "shapes:samples=60,size", "digits:5"])
    def test_options_without_a_value(self, spec: str) -> None:
        with pytest.raises(ValueError, match=r"Expected options of .* to be key=value, with commas between, but got"):
            open_data(spec)

    def test_images_belong_to_tables(self, tmp_path: Path) -> None:
        for spec in ("digits", str(tmp_path)):
            with pytest.raises(ValueError, match="Expected images to be given only with a table"):
                open_data(spec, images=tmp_path)

    def test_every_source_can_be_described_and_called(self, tmp_path: Path) -> None:
        get_it = "Get |Request |is not public|Pass download=True, or get "
        for name, source in SOURCES.items():
            assert source.about
            assert all(option.isidentifier() for option in reader_options(source.read))
            if source.on_disk:
                with pytest.raises(FileNotFoundError, match=f"^Neither {tmp_path}/.* exists. .*({get_it})"):
                    open_data(name, root=tmp_path)


class TestRoot:
    def test_order(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("RECTIFIER_DATA", raising=False)
        assert data_root() == Path("data")
        monkeypatch.setenv("RECTIFIER_DATA", "/somewhere")
        assert data_root() == Path("/somewhere")
        assert data_root("elsewhere") == Path("elsewhere")
        monkeypatch.setenv("RECTIFIER_DATA", "")
        assert data_root() == Path("data")

    def test_named_data_are_looked_for_there(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("RECTIFIER_DATA", str(tmp_path / "disk"))
        with pytest.raises(FileNotFoundError, match=re.escape(str(tmp_path / "disk/fashion/styles.csv"))):
            open_data("fashion")
        with pytest.raises(FileNotFoundError, match=re.escape(str(tmp_path / "mine/fashion/styles.csv"))):
            open_data("fashion", root=tmp_path / "mine")


class TestPaths:
    def test_a_table(self, table: Path) -> None:
        for spec in (table, str(table)):
            data = open_data(spec, images=str(table.parent / "photos"), seed=5, labels="a,b")
            assert (data.name, data.space.names) == ("table", ("a", "b"))
            assert any("Split drawn with seed 5" in note for note in data.notes)

    def test_the_options_of_a_table_as_a_command_line_gives_them(self, table: Path) -> None:
        LabelSpace.from_names({"n": [1, 0]}).to_json(table.parent / "space.json")
        texts = {"missing": "-1", "space": str(table.parent / "space.json"), "shares": "0.5/0.2/0.3", "seed": "7"}
        data = open_data(table, images=table.parent / "photos", **{k: literal(v) for k, v in texts.items()})
        assert data.space.classes == (("1", "0"),)
        assert data.targets[:4, 0].tolist() == [-1, 1, 0, 0]
        assert any("Split drawn with seed 7, stratified over all labels: 0.5/0.2/0.3" in note for note in data.notes)

    def test_a_wrong_folder_of_images(self, table: Path) -> None:
        with pytest.raises(
            FileNotFoundError, match=r"photo/0\.png, named in .*table\.csv, line 2, does not exist\. Set images"
        ):
            open_data(table, images=table.parent / "photo")

    def test_misspelt_options_of_a_table(self, table: Path) -> None:
        with pytest.raises(ValueError, match=r"option of .*table\.csv .* got 'label'\. Did you mean 'labels'\?"):
            open_data(table, label="a")

    def test_a_folder(self, tmp_path: Path) -> None:
        for name in ("cat/1.png", "cat/2.png", "dog/1.png", "dog/2.png"):
            (tmp_path / "pets" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "pets" / name).write_text(name)
        data = open_data(tmp_path / "pets", seed=1, label="pet")
        assert (data.name, data.space.names, len(data)) == ("pets", ("pet",), 4)
        with pytest.raises(ValueError, match=r"option of .*pets .* got 'lable'\. Did you mean 'label'\?"):
            open_data(tmp_path / "pets", lable="pet")

    def test_a_store(self, table: Path, tmp_path: Path) -> None:
        data = open_data(table, images=table.parent / "photos", labels="a,b")
        build_store(data, tmp_path / "store", size=4)
        again = open_data(tmp_path / "store")
        assert again.fingerprint == data.fingerprint
        assert torch.equal(again.targets, data.targets)
        with pytest.raises(ValueError, match=r"seed to be omitted for '.*store', which draws nothing, but got 9"):
            open_data(tmp_path / "store", seed=9)

    def test_a_store_that_is_not_finished(self, tmp_path: Path) -> None:
        (tmp_path / "half/shards").mkdir(parents=True)
        with pytest.raises(ValueError, match=r"half is an unfinished store\. Build it again to resume\."):
            open_data(tmp_path / "half")

    def test_an_empty_name(self) -> None:
        with pytest.raises(FileNotFoundError, match="or an existing table or folder, but got ''"):
            open_data("")


def test_literals() -> None:
    values = {"3": 3, "-1": -1, "0.5": 0.5, "1e-3": 1e-3, "True": True, "off": False, "yes": True, "a/b": "a/b", "": ""}
    for text, value in values.items():
        assert literal(text) == value
        assert type(literal(text)) is type(value)


def test_neither_yes_nor_no(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="download to be true or false, but got 'perhaps'"):
        open_data("cifar100:download=perhaps", root=tmp_path)
