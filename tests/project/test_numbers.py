"""Numbers in README.md, docs/ and results/README.md are those of the records."""

from __future__ import annotations

import re

import pytest

from project.page_numbers import PAGES, TABLE, TABLES, VALUE, cell, gain, score, written
from rectifier.reproduce.page import BEGIN, END

GENERATED = re.compile(f"{BEGIN}.*?{END}", re.DOTALL)  # the list of experiments, which rectifier reproduce writes


def test_pages_have_the_numbers_of_the_records() -> None:
    for page in PAGES:
        text = page.read_text()
        for now, then in zip(written(text).splitlines(), text.splitlines(), strict=False):
            assert now == then, f"{page.name} differs from results/: run make numbers"
        assert written(text) == text, page.name


def test_every_interval_has_a_source() -> None:
    for page in [*PAGES, TABLES]:
        rest = VALUE.sub("", TABLE.sub("", GENERATED.sub("", page.read_text())))
        assert not re.findall(r".*\d\s*±\s*\d.*", rest), f"{page.name}: name the source of these numbers"


def test_every_table_is_on_a_page() -> None:
    shown = {name for page in PAGES for name in TABLE.findall(page.read_text())}
    assert shown == set(re.findall(r"^\[(\S+)\]$", TABLES.read_text(), re.MULTILINE))


def test_every_source_follows_a_number() -> None:
    for page in PAGES:
        text = page.read_text()
        assert text.count("<!--=") == len(VALUE.findall(text)), page.name


@pytest.mark.parametrize(("number", "rule"), [(0, "argmax"), (1, "prior"), (2, "tuned"), (3, "preferred")])
def test_scores_and_gains_equal_those_on_the_page_of_the_experiment(number: int, rule: str) -> None:
    name = "cifar100-chosen"
    for column in ("CifarNet", "ResNet32"):
        assert score(name, "CRL", column, rule) == cell(name, number, "CRL", column)
        assert gain(name, "CRL", "CE", column, rule) == cell(name, number, "CRL, gain", column)


def test_a_wrong_number_is_replaced_and_its_sentence_is_kept() -> None:
    source = '<!--= gain("celeba", "CRL, class level", "DeepID2") -->'
    assert written(f"from 1 to 9.9 ± 9.9{source}, 2") == f"from 1 to +0.2 ± 0.2{source}, 2"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ('score("celeba", "CLR")', "has 0 runs"),
        ('score("celebb", "CRL, class level")', "No such file"),
        ('less("cifar100-chosen", "logit adjustment", "CRL", "ResNet32", "argmax")', "the opposite"),
    ],
)
def test_a_source_without_a_record_is_an_error(source: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        written(f"?<!--= {source} -->")
