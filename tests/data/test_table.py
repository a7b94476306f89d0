from __future__ import annotations

import datetime
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.tables import has_note, photos, table, write, write_csv
from rectifier import LabelSpace
from rectifier.data.sources import open_data
from rectifier.data.table import read_table

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def write_parquet(path: Path, columns: Mapping[str, Sequence[object]]) -> Path:
    parquet.write_table(pyarrow.table(dict(columns)), path)
    return path


COLOURS = ["red", "blue", "", "red", "green", "blue", "red", "red"]
STRIPED = ["yes", "no", "no", "", "yes", "no", "no", "no"]


class TestCsv:
    def test_labels_and_targets(self, tmp_path: Path) -> None:
        data = table(tmp_path, {"colour": COLOURS, "striped": STRIPED})
        assert data.space == LabelSpace.from_names({"colour": ["blue", "green", "red"], "striped": ["no", "yes"]})
        assert data.targets[:, 0].tolist() == [2, 0, -1, 2, 1, 0, 2, 2]
        assert data.targets[:, 1].tolist() == [1, 0, 0, -1, 1, 0, 0, 0]
        assert data.ids == tuple(f"{row}.jpg" for row in range(8))
        assert data.name == "t"

    def test_latin_1(self, tmp_path: Path) -> None:
        photos(tmp_path, 2)
        path = write(tmp_path / "t.csv", "image,kind\n0.jpg,a\n1.jpg,é\n", "latin-1")
        with pytest.raises(ValueError, match=rf"{re.escape(str(path))}, line 3, to be utf-8 text, .* 0xe9; .*latin-1"):
            read_table(path)
        assert read_table(path, encoding="latin-1").space.classes == (("a", "é"),)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "is empty"),
            (" \n\n", "is empty"),
            ("image,kind\n", "to be a table with at least one row, but got a header only"),
            ("image,kind\n0.jpg,a\n ,b\n", "line 3, column 'image' to be an image path, but got a blank"),
            ("image,kind\n0.jpg,a\n1.jpg,b\n\n0.jpg ,c\n", r"names 0\.jpg twice: lines 2 and 5\. Remove one\."),
        ],
    )
    def test_broken(self, tmp_path: Path, text: str, message: str) -> None:
        photos(tmp_path, 4)
        path = write(tmp_path / "t.csv", text)
        with pytest.raises(ValueError, match=re.escape(str(path)) + ",? " + f"({message})"):
            read_table(path, labels="kind" if "kind" in text else None)


class TestClasses:
    @pytest.mark.parametrize(
        ("values", "classes"),
        [
            (["10", "2", "", "-1"], ["-1", "2", "10"]),
            (["1", "0", " ", "1"], ["0", "1"]),
            (["1.0", "0.0", "", "1.0"], ["0", "1"]),
            (["1.0", "0.5", "2.00"], ["0.5", "1", "2"]),
            (["v1.0", "1.0", "1"], ["1", "1.0", "v1.0"]),
            (["True", "False", "True"], ["False", "True"]),
            ([" cat", "cat ", "dog"], ["cat", "dog"]),
            (["Katze", "猫", "chat noir", "кот"], ["Katze", "chat noir", "кот", "猫"]),
            (["007", "7", "007"], ["007", "7"]),
        ],
    )
    def test_inferred(self, tmp_path: Path, values: list[str], classes: list[str]) -> None:
        data = table(tmp_path, {"kind": values})
        assert sorted(data.space.classes[0]) == sorted(classes)
        for value, target in zip(values, data.targets[:, 0].tolist(), strict=True):
            name = data.space.classes[0][target] if target >= 0 else ""
            assert name in (value.strip(), re.sub(r"\.0+$", "", value.strip()))

    def test_whole_numbers_sort_by_value(self, tmp_path: Path) -> None:
        assert table(tmp_path, {"age": ["10", "9", "100"]}).space.classes == (("9", "10", "100"),)

    @pytest.mark.parametrize("missing", ["NA,-1", ["NA", -1]])
    def test_values_that_mean_missing(self, tmp_path: Path, missing: Any) -> None:
        labels = {"kind": ["NA", " NA", "a", "b"], "age": ["-1.0", "3.0", "4.0", " NA"], "year": ["1", "-1", "2", "2"]}
        data = table(tmp_path, labels, missing=missing)
        assert data.space.classes == (("a", "b"), ("3", "4"), ("1", "2"))
        assert data.targets.tolist() == [[-1, -1, 0], [-1, 0, -1], [0, 1, 1], [1, -1, 1]]

    def test_a_column_left_with_one_class_is_no_label(self, tmp_path: Path) -> None:
        data = table(tmp_path, {"kind": list("aab"), "mark": ["NA", "x", "NA"]}, missing="NA")
        assert data.space.names == ("kind",)
        assert has_note(data, "Column 'mark' is not a label: its only value is 'x'")

    @pytest.mark.parametrize("mark", ["NA", "NaN", "?"])
    def test_classes_that_look_missing_are_noted(self, tmp_path: Path, mark: str) -> None:
        note = f"These classes may be missing labels: {mark!r} of label 'kind'. If so, set missing={mark!r}."
        assert note in table(tmp_path, {"kind": ["a", "b", mark]}).notes
        assert not has_note(table(tmp_path, {"kind": ["a", "b", mark]}, missing=[mark]), "missing labels")
        assert open_data(tmp_path / "t.csv", missing=mark).space.classes == (("a", "b"),)

    def test_several_that_look_missing_take_one_option(self, tmp_path: Path) -> None:
        data = table(tmp_path, {"kind": ["a", "b", "NA", "?"], "size": ["s", "t", "s", "none"]}, missing="?")
        assert has_note(data, "set missing='?,NA,none'")


class TestParquet:
    def test_two_columns_of_one_name(self, tmp_path: Path) -> None:
        write_parquet(tmp_path / "t.parquet", {"image": photos(tmp_path, 2), "c": ["x", "y"], "c ": ["u", "v"]})
        with pytest.raises(
            ValueError, match=r"t\.parquet, line 1, to be a header of different names, but got 'c' twice"
        ):
            read_table(tmp_path / "t.parquet")

    def test_types(self, tmp_path: Path) -> None:
        when = datetime.datetime(2020, 1, 1, 12)
        columns = {
            "image": photos(tmp_path, 4),
            "whole": [3, None, 12, 3],
            "single": pyarrow.array([1.0, None, float("nan"), 0.0]),
            "flag": [True, False, None, True],
            "text": ["a ", None, "", "b"],
            "day": pyarrow.array([when, None, when, when.replace(year=2021)], pyarrow.timestamp("ns")),
            "word": pyarrow.array(["x", "y", "x", None]).dictionary_encode(),
        }
        data = read_table(write_parquet(tmp_path / "t.parquet", columns))
        assert dict(zip(data.space.names, data.space.classes, strict=True)) == {
            "whole": ("3", "12"),
            "single": ("0", "1"),
            "flag": ("False", "True"),
            "text": ("a", "b"),
            "day": ("2020-01-01 12:00:00", "2021-01-01 12:00:00"),
            "word": ("x", "y"),
        }
        assert data.targets.tolist() == [
            [0, 1, 1, 0, 0, 0],
            [-1, -1, 0, -1, -1, 1],
            [1, -1, -1, -1, 0, 0],
            [0, 0, 1, 1, 1, -1],
        ]

    @given(
        st.lists(
            st.tuples(
                st.none() | st.integers(-3, 12),
                st.none() | st.booleans(),
                st.none() | st.sampled_from(["a", "b c", "é,;", "\n", "x\ny", "NA", '"']),
                st.none() | st.sampled_from([0.0, 1.0, 2.5, -4.0]),
            ),
            min_size=4,
            max_size=12,
        )
    )
    def test_the_same_table_as_csv_and_as_parquet(
        self, tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[Any, ...]]
    ) -> None:
        folder = tmp_path_factory.mktemp("both")
        columns = {"image": photos(folder, len(rows) + 2), "fixed": [*"ab" * len(rows)][: len(rows) + 2]}
        for name, values in zip(("whole", "flag", "text", "real"), zip(*rows, strict=True), strict=True):
            columns[name] = [*values, None, None]
        one = read_table(write_csv(folder / "t.csv", columns))
        two = read_table(write_parquet(folder / "t.parquet", columns))
        assert one.space == two.space
        assert one.fingerprint == two.fingerprint
        assert one.notes == two.notes

    def test_without_pyarrow(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        expected = r"^Reading Parquet needs pyarrow, which is not installed: pip install 'rectifier\[parquet\]'$"
        with pytest.raises(ImportError, match=expected):
            read_table(tmp_path / "t.parquet")

    def test_broken(self, tmp_path: Path) -> None:
        path = write(tmp_path / "t.parquet", "no table")
        with pytest.raises(ValueError, match=r"t\.parquet to be a Parquet table, but got another file"):
            read_table(path)
        whole = write_parquet(path, {"image": photos(tmp_path, 2), "kind": [0, 1]}).read_bytes()
        path.write_bytes(whole[:-60] + b"\xff" * 50 + whole[-10:])
        with pytest.raises(ValueError, match=r"t\.parquet to be a Parquet table, but got another file"):
            read_table(path)
        with pytest.raises(FileNotFoundError, match=r"gone\.parquet does not exist"):
            read_table(tmp_path / "gone.parquet")
        with pytest.raises(ValueError, match=r"t\.pq to be a table with at least one row"):
            read_table(write_parquet(tmp_path / "t.pq", {"image": pyarrow.array([], pyarrow.string())}))
        names = ["0.jpg", "1.jpg", "0.jpg"]
        with pytest.raises(ValueError, match=r"t\.pq names 0\.jpg twice: lines 1 and 3"):
            read_table(write_parquet(tmp_path / "t.pq", {"image": names, "kind": [1, 2, 3]}))

    def test_embedded_images_are_no_paths(self, tmp_path: Path) -> None:
        images = [{"bytes": bytes([row]) * 5000, "path": "x"} for row in range(3)]
        path = write_parquet(tmp_path / "t.parquet", {"image": images, "kind": [0, 1, 1]})
        with pytest.raises(ValueError, match=r"t\.parquet names struct<bytes: binary, path: string> twice"):
            read_table(path)


class TestColumns:
    def test_columns_that_are_no_labels_are_noted(self, tmp_path: Path) -> None:
        rows = 60
        data = table(
            tmp_path,
            {
                "id": [f"x{row}" for row in range(rows)],
                "serial": range(1000, 1000 + rows),
                "weight": [f"{(row % 25) / 7:.3f}" for row in range(rows)],
                "site": ["only"] * rows,
                "note": [""] * rows,
                "age": [row % 25 for row in range(rows)],
                "kind": [row % 3 for row in range(rows)],
                "size": [f"{row % 4}.5" for row in range(rows)],
            },
        )
        assert data.space.names == ("age", "kind", "size")
        assert has_note(data, "Column 'image' holds the image paths")
        assert has_note(data, "Column 'id' is not a label: 60 different values in 60 rows")
        assert has_note(data, "Column 'serial' is not a label: 60 different values in 60 rows")
        assert has_note(data, "Column 'weight' is not a label: 25 different numbers with fractions")
        assert has_note(data, "Column 'site' is not a label: its only value is 'only'")
        assert has_note(data, "Column 'note' is not a label: it is blank")
        assert has_note(data, "Split drawn with seed 0, stratified over all labels: 0.8/0.1/0.1")

    @pytest.mark.parametrize("labels", ["site, weight", ["site", "weight"], ("site", "weight")])
    def test_labels_that_are_named(self, tmp_path: Path, labels: Any) -> None:
        columns = {"weight": [f"{row}.5" for row in range(40)], "kind": list("ab") * 20, "site": ["only"] * 40}
        data = table(tmp_path, columns, labels=labels)
        assert data.space.names == ("site", "weight")
        assert data.space.sizes == (1, 40)

    @pytest.mark.parametrize("ignore", ["a,b", ["a", "b"]])
    def test_columns_to_ignore(self, tmp_path: Path, ignore: Any) -> None:
        assert table(tmp_path, {c: list("xyx") for c in "abc"}, ignore=ignore).space.names == ("c",)

    @pytest.mark.parametrize("name", ["image", "Path", "FILE", "img"])
    def test_usual_names_of_the_image_column(self, tmp_path: Path, name: str) -> None:
        path = write_csv(tmp_path / "t.csv", {"kind": list("aba"), name: photos(tmp_path, 3)})
        assert read_table(path).ids == ("0.jpg", "1.jpg", "2.jpg")

    def test_the_image_column_is_found_by_its_values(self, tmp_path: Path) -> None:
        names = photos(tmp_path, 3)
        path = write_csv(tmp_path / "t.csv", {"kind": list("aba"), "what": names, "mask": ["a.png", "b.png", "c.png"]})
        data = read_table(path, ignore="mask")
        assert data.ids == tuple(names)
        assert has_note(data, "Column 'what' holds the image paths")

    def test_the_image_column_is_named(self, tmp_path: Path) -> None:
        columns = {"image": ["photo", "photo", "drawing"], "mine": photos(tmp_path, 3)}
        path = write_csv(tmp_path / "t.csv", columns)
        data = read_table(path, image="mine")
        assert (data.ids, data.space.names) == (tuple(columns["mine"]), ("image",))

    def test_no_image_column(self, tmp_path: Path) -> None:
        path = write_csv(tmp_path / "t.csv", {"kind": list("ab"), "age": [1, 2]})
        message = r"t\.csv to be a table with a column of image paths, but got kind, age; name it in image"
        with pytest.raises(ValueError, match=message):
            read_table(path)

    def test_no_label_column(self, tmp_path: Path) -> None:
        with pytest.raises(
            ValueError, match=r"t\.csv has no label column\. .*'x'.* needs at least two classes\. .*, set labels\.$"
        ):
            table(tmp_path, {"kind": ["x", "x"]})

    def test_unknown_columns_are_all_named_with_the_nearest(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"t\.csv") as caught:
            table(tmp_path, {"colour": list("aba"), "part": list("xyz")}, labels="color", ignore="prt", group="imag")
        lines = str(caught.value).splitlines()
        assert [line.split()[1] for line in lines] == ["group", "labels", "ignore"]
        assert [line.split()[-1] for line in lines] == ["'image'?", "'colour'?", "'part'?"]


class TestSpace:
    SPACE = LabelSpace.from_names({"striped": ["yes", "no", "maybe"], "colour": ["red", "green", "blue"]})

    def test_order_and_classes_are_fixed(self, tmp_path: Path) -> None:
        self.SPACE.to_json(tmp_path / "space.json")
        columns = {"colour": COLOURS, "other": range(8), "striped": STRIPED}
        for space in (self.SPACE, tmp_path / "space.json", str(tmp_path / "space.json")):
            data = table(tmp_path, columns, space=space)
            assert data.space == self.SPACE
            assert data.targets[:, 0].tolist() == [0, 1, 1, -1, 0, 1, 1, 1]
            assert data.targets[:, 1].tolist() == [0, 2, -1, 0, 1, 2, 0, 0]

    @pytest.mark.parametrize("kind", ["csv", "parquet"])
    def test_an_unknown_class(self, tmp_path: Path, kind: str) -> None:
        columns = {"image": photos(tmp_path, 3), "striped": ["yes", None, "no"], "colour": ["red", "grene", "blue"]}
        path = {"csv": write_csv, "parquet": write_parquet}[kind](tmp_path / f"t.{kind}", columns)
        line = {"csv": 3, "parquet": 2}[kind]
        message = rf"t\.{kind}, line {line}, label 'colour' to be one of its 3 classes, but got 'grene'.*'green'\?"
        with pytest.raises(ValueError, match=message):
            read_table(path, space=self.SPACE)

    def test_an_unknown_number_names_its_own_row(self, tmp_path: Path) -> None:
        path = write_parquet(tmp_path / "t.parquet", {"image": photos(tmp_path, 4), "n": [1.0, None, 2.0, 7.0]})
        with pytest.raises(ValueError, match=r"t\.parquet, line 4, label 'n' .* got '7'"):
            read_table(path, space=LabelSpace.from_names({"n": [1, 2]}))

    def test_classes_written_as_in_the_table(self, tmp_path: Path) -> None:
        for classes in (["1.0", "2.0"], ["1", "2"]):
            data = table(tmp_path, {"n": ["1.0", "2.0", ""]}, space=LabelSpace.from_names({"n": classes}))
            assert data.targets[:, 0].tolist() == [0, 1, -1]

    def test_a_label_that_is_no_column(self, tmp_path: Path) -> None:
        with pytest.raises(
            ValueError, match=r"Expected labels \(of .*t\.csv\) .* got 'striped'.*Did you mean 'stripe'"
        ):
            table(tmp_path, {"stripe": STRIPED, "colour": COLOURS}, space=self.SPACE)

    def test_labels_together_with_space(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="Expected labels to be omitted if space is given"):
            table(tmp_path, {"striped": STRIPED, "colour": COLOURS}, space=self.SPACE, labels="colour")

    def test_broken_json(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match=r"gone\.json does not exist"):
            table(tmp_path, {"kind": list("aba")}, space=tmp_path / "gone.json")
        for text in ("{", '{"labels": [{"name": "kind"}]}', "[]", '{"labels": []}'):
            with pytest.raises(ValueError, match=r"bad\.json to be a label space in JSON, but got another file"):
                table(tmp_path, {"kind": list("aba")}, space=write(tmp_path / "bad.json", text))


class TestImages:
    def test_the_folder_of_the_table_is_where_paths_start(self, tmp_path: Path) -> None:
        photos(tmp_path / "deep" / "er", 2)
        path = write(tmp_path / "t.csv", "image,kind\ndeep/er/0.jpg,a\ndeep/er/1.jpg,b\n")
        assert read_table(path).images.root == tmp_path

    def test_another_folder(self, tmp_path: Path) -> None:
        names = photos(tmp_path / "photos", 3)
        path = write_csv(tmp_path / "t.csv", {"image": names, "kind": list("aba")})
        assert read_table(path, images=tmp_path / "photos").images.root == tmp_path / "photos"
        for wrong in (None, tmp_path / "nowhere", path):
            root = re.escape(str(wrong or tmp_path))
            message = rf"{root}/0\.jpg, named in .*t\.csv, line 2, does not exist\. Set images"
            with pytest.raises(FileNotFoundError, match=message):
                read_table(path, images=wrong)

    def test_the_wrong_column(self, tmp_path: Path) -> None:
        columns = {"image": ["photo", "drawing"], "mine": photos(tmp_path, 2)}
        with pytest.raises(FileNotFoundError, match=r"or image to the column of paths \(now 'image'\)"):
            read_table(write_csv(tmp_path / "t.csv", columns))

    def test_absolute_paths(self, tmp_path: Path) -> None:
        names = [str(tmp_path / "photos" / name) for name in photos(tmp_path / "photos", 3)]
        (tmp_path / "tables").mkdir()
        data = read_table(write_csv(tmp_path / "tables" / "t.csv", {"image": names, "kind": list("aba")}))
        assert data.ids == tuple(names)
        assert all((data.images.root / path).is_file() for path in data.images.paths)

    def test_some_images_may_be_absent(self, tmp_path: Path) -> None:
        """Those are counted, and left out, when the images are decoded."""
        photos(tmp_path, 2)
        path = write(tmp_path / "t.csv", "image,kind\ngone.jpg,a\n0.jpg,b\n1.jpg,a\n")
        assert len(read_table(path)) == 3
