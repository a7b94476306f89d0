"""What README.md, docs/ and CONTRIBUTING.md name exists: commands, options, files, names in files."""

from __future__ import annotations

import re
import shlex
from inspect import signature
from pkgutil import resolve_name

from typer.main import get_command

from project.page_numbers import PAGES, ROOT
from rectifier.cli.app import app
from rectifier.data.sources import SOURCES
from rectifier.data.table import read_table
from rectifier.methods import METHODS

VERBS = get_command(app).commands  # type: ignore[attr-defined]


def commands(text: str) -> list[list[str]]:
    """Return the words of each ``rectifier`` command in shell blocks and in inline code, after ``rectifier``."""
    blocks = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    lines = [line.strip() for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    lines += [code.replace("\n", " ") for code in re.findall(r"`([^`]+)`", prose)]
    found = [re.search(r"^rectifier +(.*)|\$\(which rectifier\) +(.*)", line) for line in lines]
    return [shlex.split(one[1] or one[2], comments=True) for one in found if one]


def unknown(words: list[str]) -> str | None:
    """Return the verb or the option of a command that does not exist."""
    verb, *rest = words
    if verb not in VERBS:
        return None if verb in ("VERB", "--version") else verb
    options = {name for parameter in VERBS[verb].params for name in parameter.opts}
    return next((word for word in rest if word.startswith("--") and word.partition("=")[0] not in options), None)


def test_every_command_on_the_pages_exists() -> None:
    for page in PAGES:
        for words in commands(page.read_text()):
            assert unknown(words) is None, f"{page.name}: rectifier {' '.join(words)}"


def test_a_command_that_does_not_exist_is_found() -> None:
    text = "Use `rectifier tain --data x`.\n\n```bash\nrectifier train --dta x  # a comment\nls\n```\n"
    assert [unknown(words) for words in commands(text)] == ["--dta", "tain"]


def test_the_pages_show_every_verb() -> None:
    shown = {words[0] for page in PAGES for words in commands(page.read_text())}
    assert set(VERBS) <= shown, set(VERBS) - shown


def rows(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the tables below a heading of a page in docs/, without their first lines."""
    text = (ROOT / "docs" / page).read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return [line.strip("| ").split(" | ") for line in re.findall(r"^\| `.*", text, re.MULTILINE)]


def code(cell: str) -> list[str]:
    return re.findall(r"`([\w-]+)", cell)


def test_the_methods_page_names_every_option() -> None:
    shown: set[str] = set()
    for first, second in rows("methods.md", "Options"):
        own = {option for name in code(first) for option in METHODS[name].options}
        assert own == set(code(second)) - set(METHODS), first
        shown |= own
    assert all(set(method.options) <= shown for method in METHODS.values())


def test_the_data_page_names_the_options_of_every_reader() -> None:
    shown = {name: code(options) for names, *_, options in rows("data.md", "Benchmarks") for name in code(names)}
    assert set(shown) == set(SOURCES)
    for name, source in SOURCES.items():
        own = set(signature(source.read).parameters) - {"root"}
        assert own <= set(shown[name]), name
    table = {option for first, *_ in rows("data.md", "Your own images") for option in code(first)}
    assert table == set(signature(read_table).parameters) - {"path", "images"}


def test_names_of_the_package_exist() -> None:
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        for name in re.findall(r"`(rectifier(?:\.\w+)+)", page.read_text()):
            resolve_name(name)


def absent_names(text: str) -> list[str]:
    """Return each NAME of "`NAME` in `path`" that does not occur in that file, with its path."""
    named = re.findall(r"`(\w+)` in `((?:src|tests|docs|benchmarks|experiments)/[\w./]*\.\w+)`", text)
    return [f"{name} in {path}" for name, path in named if not re.search(rf"\b{name}\b", (ROOT / path).read_text())]


def test_files_named_for_contributors_exist_and_hold_what_the_page_says() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = re.findall(r"`((?:src|tests|docs|benchmarks|experiments|results)/[\w./]*)`", text)
    assert named
    for path in named:
        assert (ROOT / path).exists(), path
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        assert not absent_names(page.read_text()), page.name


def test_a_name_that_is_not_in_its_file_is_found() -> None:
    text = "`METRICS` in `src/rectifier/evaluation/metrics/catalogue.py`, `METRICS` in `tests/project/rooms.py`"
    assert absent_names(text) == ["METRICS in tests/project/rooms.py"]
