from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import fakes
from rectifier.data.text_files import find_folder, numbered_lines, read_csv


def write(folder: Path, content: str | bytes) -> Path:
    path = folder / "file.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize("mark", [",", ";", "\t"])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_columns_and_the_lines_they_stand_on(tmp_path: Path, mark: str, newline: str) -> None:
    rows = [["image", "kind "], ["a.jpg", "x"], [], ["b.jpg", " y"], ["c.jpg", ""]]
    table = read_csv(write(tmp_path, newline.join(map(mark.join, rows))))
    assert table.columns == {"image": ["a.jpg", "b.jpg", "c.jpg"], "kind": ["x", " y", ""]}
    assert table.lines == [2, 4, 5]
    assert len(table) == 3
    assert table.place(1) == f"{table.path}, line 4,"


def test_a_quoted_value_may_hold_separators_quotes_and_lines(tmp_path: Path) -> None:
    table = read_csv(write(tmp_path, 'a,b\n"1,\n2","say ""x"""\n3,4\n'))
    assert table.columns == {"a": ["1,\n2", "3"], "b": ['say "x"', "4"]}
    assert table.lines == [2, 4]


@pytest.mark.parametrize("odd", ["\u2028", "\x85", "\x0c", "\x00"])
def test_only_line_ends_end_a_line(tmp_path: Path, odd: str) -> None:
    table = read_csv(write(tmp_path, f"a,b\n1{odd}1,2\n3,4\n"))
    assert table.columns == {"a": [f"1{odd}1", "3"], "b": ["2", "4"]}
    assert table.lines == [2, 3]


def test_the_dots_of_windows_are_no_line_end(tmp_path: Path) -> None:
    table = read_csv(write(tmp_path, b"a,b\n1\x85,caf\xe9\n"), encoding="latin-1")
    assert table.columns["b"] == ["café"]


def test_what_spreadsheets_leave_behind(tmp_path: Path) -> None:
    text = "sep=;\r\nimage;kind;\r\n0.png;a;\r\n1.png;b;\r\n;;\r\n;;\r\n"
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        table = read_csv(write(tmp_path, text.encode(encoding)))
        assert table.columns == {"image": ["0.png", "1.png"], "kind": ["a", "b"]}
        assert table.lines == [3, 4]


def test_the_separator_that_a_spreadsheet_names(tmp_path: Path) -> None:
    path = write(tmp_path, 'sep=;\nimage;"colour (r,g,b)"\n0.png;red\n')
    assert read_csv(path).columns == {"image": ["0.png"], "colour (r,g,b)": ["red"]}
    path = write(tmp_path, "sep=;\nimage;a;a\n0.png;1;2\n")
    with pytest.raises(ValueError, match="line 2, to be a header of different names, but got 'a' twice"):
        read_csv(path)


def test_a_workbook_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"to be a text file, but got a zip file, such as an Excel workbook"):
        read_csv(write(tmp_path, b"PK\3\4 and so on"))


@pytest.mark.parametrize("mark", [",", ";"])
def test_free_text_in_the_last_column_takes_what_is_left(tmp_path: Path, mark: str) -> None:
    path = write(tmp_path, mark.join(["a", "name\n1", "x", " y", "z\n2", "w\n"]))
    assert read_csv(path, overflow="name").columns == {"a": ["1", "2"], "name": [f"x{mark} y{mark}z", "w"]}
    with pytest.raises(ValueError, match=f"^Expected {fakes.line_of(path, 2)} to be a row of 2 values.*, but got 4.$"):
        read_csv(path, overflow="a")
    with pytest.raises(ValueError, match=f"^Expected {fakes.line_of(path, 2)} to be a row of 2 values.*, but got 4.$"):
        read_csv(path)


@pytest.mark.parametrize(
    ("content", "where", "message"),
    [
        (",\n1,2\n", ", line 1,", "to be a header with the names of the columns, but got nothing"),
        ("a,b\n1,2\n3\n", ", line 3,", "to be a row of 2 values, as the header has, but got 1"),
        ('a,b\n"1\n\n2",2\n\n3\n', ", line 6,", "to be a row of 2 values, as the header has, but got 1"),
        ("a,b\n1,2,3\n", ", line 2,", "to be a row of 2 values, as the header has, but got 3"),
        ("a,b,a\n", ", line 1,", "to be a header of different names, but got 'a' twice"),
        ("a,b, a\n", ", line 1,", "to be a header of different names, but got 'a' twice"),
        ("a,,c\n", ", line 1,", "to be a header with a name for every column, but got none for column 2"),
        ('a,b\n1,2\n3,"4\n5,6\n', ", line 3,", "to be a row with every quote closed, but got the end of the file"),
        ('a,b\n1,2\n3,"4\n' + "5,6\n" * 40_000, ", line 3,", "to be the start of a CSV row, but got"),
        ('a,"b\n1,2\n', ", line 1,", "to be a row with every quote closed, but got the end of the file"),
    ],
)
def test_broken_tables(tmp_path: Path, content: str, where: str, message: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(ValueError, match=f"^Expected {re.escape(str(path) + where)} {re.escape(message)}"):
        read_csv(path)


def test_a_header_alone_has_columns_without_rows(tmp_path: Path) -> None:
    table = read_csv(write(tmp_path, "a,b\n"))
    assert len(table) == 0
    assert table.columns == {"a": [], "b": []}


@pytest.mark.parametrize("line", [1, 5])
def test_a_byte_that_is_not_text_is_named_with_its_line(tmp_path: Path, line: int) -> None:
    path = write(tmp_path, b"a,b\n" * (line - 1) + b"caf\xe9,b\n" + b"\xff\n")
    message = f"^Expected {fakes.line_of(path, line)} to be utf-8 text, but got the byte 0xe9; save it as UTF-8"
    with pytest.raises(ValueError, match=rf"{message}\.$"):
        read_csv(path)
    with pytest.raises(ValueError, match=rf"{message}, or pass its encoding, such as encoding='latin-1'\.$"):
        read_csv(path, encoding="utf-8")
    with pytest.raises(ValueError, match=f"^Expected {fakes.line_of(path, line)} to be UTF-8 text, .* the byte 0xe9"):
        list(numbered_lines(path))


def test_another_encoding(tmp_path: Path) -> None:
    path = write(tmp_path, b"a,b\n1\x85,caf\xe9\n")
    assert read_csv(path, encoding="latin-1").columns["b"] == ["caf\xe9"]
    with pytest.raises(ValueError, match=r"^Expected encoding to be one that Python knows, .*, but got 'latin-99'\.$"):
        read_csv(path, encoding="latin-99")


def test_missing_files(tmp_path: Path) -> None:
    path = tmp_path / "absent.txt"
    message = f"^{path} does not exist."
    with pytest.raises(FileNotFoundError, match=f"{message} Get it.$"):
        next(numbered_lines(path, "Get it."))
    with pytest.raises(FileNotFoundError, match=f"{message}$"):
        read_csv(path)


def test_numbered_lines_pass_over_blanks_but_count_them(tmp_path: Path) -> None:
    path = write(tmp_path, b"\xef\xbb\xbf one \r\n\n\t\ntwo  words\r\nthree")
    assert list(numbered_lines(path)) == [(1, "one"), (4, "two  words"), (5, "three")]


def test_a_folder_is_found_by_its_content(tmp_path: Path) -> None:
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "list.txt").touch()
    assert find_folder(tmp_path, "two", "list.txt", "") == tmp_path / "two"
    assert find_folder(tmp_path / "two", "two", "list.txt", "") == tmp_path / "two"
    looked = f"Neither {tmp_path}/three/list.txt nor {tmp_path}/list.txt exists."
    with pytest.raises(FileNotFoundError, match=f"^{looked} Get it.$"):
        find_folder(tmp_path, "three", "list.txt", "Get it.")


@given(
    st.lists(
        st.lists(
            st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8), min_size=2, max_size=2
        ).filter(lambda row: any(map(str.strip, row))),
        max_size=6,
    )
)
def test_whatever_is_written_quoted_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]]
) -> None:
    quoted = "".join(",".join('"' + v.replace('"', '""') + '"' for v in row) + "\n" for row in [["a", "b"], *rows])
    table = read_csv(write(tmp_path_factory.mktemp("quoted"), quoted))
    assert [list(row) for row in zip(*table.columns.values(), strict=True)] == rows
