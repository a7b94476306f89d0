"""What a page shows is what the result holds: tables read back, figures looked into."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from helpers.results import made_result
from helpers.views import PAPER, SHOWN_RULES, assert_shows, assert_shows_gain, number, tables_of
from rectifier.report.comparison import difference
from rectifier.reproduce import Cell, ExperimentResult, views

# Tables of cells


GRID = [
    Cell("bln(1)", "small", paper=38.6),
    Cell("imb(1)", "small", paper=34.7),
    Cell("imb(1) + CRL", "small", paper=36.7, against="imb(1)"),
    Cell("imb(1)", "large"),
    Cell("imb(1) + CRL", "large", paper=45.25, against="imb(1)"),
    Cell("bln(1)", "HOG", paper=7.0),
]


@pytest.mark.parametrize("luck", range(5))
def test_a_table_holds_every_score_and_gain_under_every_rule(luck: int) -> None:
    result = made_result(GRID, 3, gains={"imb(1) + CRL": 0.1 * luck}, luck=luck)
    tables = tables_of(views.table()(result))
    assert len(tables) == len(SHOWN_RULES)
    for rule, table in zip(SHOWN_RULES, tables, strict=True):
        assert [line[0] for line in table.lines] == ["bln(1)", "imb(1)", "imb(1) + CRL", "imb(1) + CRL, gain"]
        for cell in GRID:
            assert_shows(table.at(cell.row, cell.column), result.score(cell, rule))
            if cell.against is not None:
                assert_shows_gain(table.at(f"{cell.row}, gain", cell.column), result, cell, rule)
        for row, column in (("imb(1)", "HOG"), ("imb(1) + CRL", "HOG"), ("imb(1) + CRL, gain", "HOG")):
            assert table.at(row, column) == ""
        assert table.at("bln(1)", "large") == ""


@pytest.mark.parametrize(
    ("mean", "half", "text"),
    [
        (0.021, 0.013, "**+2.1 ± 1.3**"),
        (-0.00256, 0.00251, "**-0.26 ± 0.25**"),
        (0.002166, 0.002161, "**+0.217 ± 0.216**"),
        (0.02, 0.0, "**+2.0 ± 0.0**"),
    ],
)
def test_an_interval_that_excludes_0_has_enough_digits_to_show_it(mean: float, half: float, text: str) -> None:
    assert views.gain_text({"mean": mean, "half_width": half, "excludes_zero": True}) == text
    plain = views.gain_text({"mean": mean, "half_width": half, "excludes_zero": False})
    assert plain == f"{100 * mean:+.1f} ± {100 * half:.1f}"


def test_what_validation_did_not_choose_has_no_control() -> None:
    cells = [
        Cell("ce", "net"),
        Cell("crl", "net", against="ce", choose={"eta": (0.1, 0.5)}),
        Cell("less", "net", control_of="crl", control_when={"eta": 0.5}),
    ]
    result = made_result(cells, 3)
    assert result.controls(cells[1]) == [], "nothing is chosen"
    one, other = (replace(result, chosen={("crl", "net"): {"eta": eta}}) for eta in (0.5, 0.1))
    assert one.controls(cells[1]) == [cells[2]]
    assert other.controls(cells[1]) == []
    for result, lines in ((one, 1), (other, 0)):
        for table in tables_of(views.table()(result)):
            assert [line[0] for line in table.lines].count('crl, over "less"') == lines


@pytest.mark.parametrize("luck", range(5))
def test_a_table_holds_what_a_cell_has_more_than_its_control(luck: int) -> None:
    controls = [
        Cell("imb(1), less", "small", against="imb(1)", control_of="imb(1) + CRL"),
        Cell("imb(1), less", "large", against="imb(1)", control_of="imb(1)"),
    ]
    result = made_result([*GRID, *controls], 3, gains={"imb(1) + CRL": 0.1 * luck}, luck=luck)
    for rule, table in zip(SHOWN_RULES, tables_of(views.table()(result)), strict=True):
        for control, other in zip(controls, ("large", "small"), strict=True):
            whole, column = str(control.control_of), control.column
            ours, without = (result.values(result.experiment.cell(row, column), rule) for row in (whole, control.row))
            row = f'{whole}, over "{control.row}"'
            assert_shows(table.at(row, column), difference(ours, without))
            assert (table.at(row, other), table.at(row, "HOG")) == ("", "")
            rows = [line[0] for line in table.lines]
            assert rows.index(whole) < rows.index(row) <= rows.index(whole) + 2, "below the row that it controls"


def test_gains_are_bold_where_their_interval_excludes_0_and_only_there() -> None:
    seen = set()
    for luck in range(12):
        result = made_result(GRID, 3, gains={"imb(1) + CRL": 0.12}, luck=luck)
        for rule, table in zip(SHOWN_RULES, tables_of(views.table()(result)), strict=True):
            for column in ("small", "large"):
                gain = result.gain(result.experiment.cell("imb(1) + CRL", column), rule)
                assert gain is not None
                is_bold = number(table.at("imb(1) + CRL, gain", column)).bold
                assert gain["mean"] is not None
                assert gain["half_width"] is not None
                assert is_bold == (abs(gain["mean"]) > gain["half_width"])
                seen.add(is_bold)
            assert not any("**" in text for line in table.lines if not line[0].endswith("gain") for text in line)
    assert seen == {True, False}


def test_the_papers_numbers_are_next_to_ours_under_argmax() -> None:
    argmax, *others = tables_of(views.table()(made_result(GRID)))
    for cell in GRID:
        text = argmax.at(cell.row, f"{cell.column} paper")
        assert text == "" if cell.paper is None else float(text) == cell.paper
    assert argmax.at("imb(1) + CRL, gain", "small paper") == "+2.0"
    assert argmax.at("imb(1) + CRL, gain", "large paper") == ""  # the paper lacks the base
    assert argmax.at("imb(1)", "HOG paper") == ""
    assert not any("paper" in head for table in others for head in table.heads)


def test_the_reference_may_have_another_name_and_columns_no_name() -> None:
    cells = [Cell("ce", paper=38.3), Cell("crl", against="ce")]
    first, *_ = tables_of(views.table(reference="published")(made_result(cells)))
    assert first.heads == ["class-balanced accuracy, %", "ours", "published"]
    assert first.at("ce", "published") == "38.3"
    assert first.at("crl", "published") == ""


def test_one_seed_is_shown_without_an_interval_and_never_bold() -> None:
    result = made_result(GRID, 1, gains={"imb(1) + CRL": 0.4})
    for table in tables_of(views.table()(result)):
        shown = number(table.at("imb(1) + CRL, gain", "small"))
        assert (shown.half, shown.bold) == (None, False)


def test_what_is_not_trained_is_left_empty() -> None:
    argmax, *_ = tables_of(views.table()(made_result(GRID, 0)))
    assert argmax.at("imb(1)", "small") == argmax.at("imb(1) + CRL, gain", "small") == ""
    assert argmax.at("imb(1)", "small paper") == "34.7"


# Texts


@pytest.mark.parametrize(
    ("mean", "half", "excludes", "signed", "text"),
    [
        (0.5, None, None, False, "50.0"),
        (0.5, 0.0123, None, False, "50.0 ± 1.2"),
        (0.031, 0.01, True, True, "**+3.1 ± 1.0**"),
        (-0.031, 0.04, False, True, "-3.1 ± 4.0"),
        (0.0, None, False, True, "+0.0"),
        (None, None, None, False, ""),
        (None, None, False, True, ""),
    ],
)
def test_a_mean_as_text(mean: float | None, half: float | None, excludes: bool | None, signed: bool, text: str) -> None:
    found = {"mean": mean, "half_width": half, **({} if excludes is None else {"excludes_zero": excludes})}
    assert views.spread(found, signed) == text


def test_what_rounds_to_nothing_is_no_loss() -> None:
    assert views.spread({"mean": -0.0004, "half_width": 0.001, "excludes_zero": False}, signed=True) == "+0.0 ± 0.1"


def test_what_the_paper_has_not_is_empty() -> None:
    assert views.paper_text(None) == ""
    assert (views.paper_text(73.53), views.paper_text(81.0)) == ("73.53", "81")
    assert Cell("a").paper_of() is None
    assert Cell("a", paper=50.0).paper_of() == 50.0
    assert Cell("a", paper=50.0).paper_of("hat") is None  # one number is of all labels
    assert Cell("a", paper=PAPER).paper_of("hat") == 90.0
    assert Cell("a", paper={"hat": 90.0}).paper_of() is None


# What is chosen on validation


def liked(result: ExperimentResult, likings: Mapping[tuple[str, str], float]) -> ExperimentResult:
    """Let validation like cells as much as this, with every seed."""
    records = {
        where: {seed: {**record, "liking": likings[where]} for seed, record in by_seed.items()}
        for where, by_seed in result.records.items()
    }
    return replace(result, records=records)


CHOICE = [Cell("ce", "one"), Cell("a", "one", against="ce"), Cell("b", "one", against="ce"), Cell("ce", "two")]


def test_the_headline_is_the_gain_of_the_cell_with_the_best_validation_score() -> None:
    likings = {("ce", "one"): 0.4, ("a", "one"): 0.5, ("b", "one"): 0.6, ("ce", "two"): 0.7}
    result = liked(made_result(CHOICE), likings)
    column, _, text = views.summary_line(result).partition(": ")
    row, _, rest = text.partition(" ")
    gain, _, base = rest.partition(" over ")
    assert (column, row, base) == ("one", "b", "ce")  # and nothing of a column without any gain
    assert_shows_gain(gain, result, CHOICE[2], "preferred")
    assert views.summary_line(liked(result, {**likings, ("a", "one"): 0.8})).startswith("one: a ")
    assert views.summary_line(liked(result, {**likings, ("ce", "one"): 0.9})) == "one: ce, the baseline"


@pytest.mark.parametrize("seeds", [0, 3])
def test_the_headline_tells_the_gain_over_a_control(seeds: int) -> None:
    control = Cell("less", "one", against="ce", control_of="b")
    wanted = {(cell.row, cell.column): range(3) for cell in CHOICE} | {("less", "one"): range(seeds)}
    likings = {("ce", "one"): 0.4, ("a", "one"): 0.5, ("b", "one"): 0.6, ("less", "one"): 0.5, ("ce", "two"): 0.7}
    result = liked(made_result([*CHOICE, control], wanted), likings)
    text = views.summary_line(result)
    if seeds:
        gain = text.removesuffix(' over "less"').split(", ")[1]
        assert_shows(gain, result.gain_over(CHOICE[2], control, "preferred"))
    else:
        assert "less" not in text
    assert "less" not in views.summary_line(liked(result, {**likings, ("a", "one"): 0.8}))


def test_columns_have_their_headlines_side_by_side() -> None:
    result = made_result([cell for column in "xy" for cell in (Cell("ce", column), Cell("crl", column, against="ce"))])
    assert [part.split(":")[0] for part in views.summary_line(result).split("; ")] == ["x", "y"]
    assert views.summary_line(made_result([Cell("ce"), Cell("crl", against="ce")])).startswith("crl ")
    assert views.summary_line(made_result([Cell("ce"), Cell("crl", against="ce")], 0)) == ""


def test_there_is_no_headline_over_unlike_data() -> None:
    ce, crl = Cell("ce"), Cell("crl", against="ce")
    assert views.summary_line(made_result([ce, crl])) != ""
    balanced = replace(ce, settings={"data": "cifar100:bln=1"})
    assert views.summary_line(made_result([balanced, crl])) == ""
