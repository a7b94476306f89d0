"""What is drawn is what the result holds, and nothing covers anything else."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from matplotlib.colors import to_rgb
from PIL import Image

from experiments import figures
from helpers.figures import GAIN_RULES, ends_of, names_in, points_aside, series_of
from helpers.results import made_result
from helpers.views import CURVE, SHOWN_RULES, assert_shows, assert_shows_gain, number, tables_of
from rectifier.evaluation.scoring import RULES
from rectifier.reproduce import Cell


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that were to be saved."""
    kept: list[Any] = []
    monkeypatch.setattr(figures, "save_figure", lambda figure, *_: kept.append(figure))
    return kept


def test_a_curve_goes_through_the_scores_and_the_gains(drawn: list[Any]) -> None:
    result = made_result(CURVE)
    figures.draw_curve(result, "eta", logarithmic=True)
    axis, gains = drawn[0].axes
    assert axis.get_xscale() == gains.get_xscale() == "log"
    assert axis.get_xlabel() == gains.get_xlabel() == "eta"
    for panel, ask in ((axis, result.score), (gains, result.gain)):
        assert set(series_of(panel)) == set(GAIN_RULES)
        for rule, one in series_of(panel).items():
            x, y = one.lines[0].get_data()
            assert list(x) == [0.001, 0.01, 0.5]
            found = [ask(result.experiment.cell(f"{value:g}"), rule) or {} for value in x]
            assert y == pytest.approx([100 * one["mean"] for one in found])
            halves = [(high - low) / 2 for low, high in ends_of(one)]
            assert halves == pytest.approx([100 * one["half_width"] for one in found])


def test_the_baseline_is_level_with_a_band_for_its_interval(drawn: list[Any]) -> None:
    result = made_result(CURVE)
    figures.draw_curve(result, "eta")
    axis, gains = drawn[0].axes
    bands = {band.get_facecolor()[:3]: band.get_bbox() for band in axis.patches}
    assert len(bands) == len(GAIN_RULES)
    for line in axis.get_lines():
        row, _, rule = line.get_label().partition(", ")
        if row == "CE":
            score = result.score(result.experiment.cell("CE"), rule)
            mean, half = 100 * (score["mean"] or 0), 100 * (score["half_width"] or 0)
            assert line.get_ydata() == pytest.approx([mean] * 2)
            band = bands.pop(to_rgb(line.get_color()))
            assert (band.y0, band.y1) == pytest.approx((mean - half, mean + half))
    assert not bands
    assert not gains.patches


@pytest.mark.parametrize("first", ["ce", "not the first in the order"])
def test_a_ranking_is_drawn_in_its_order(first: str, drawn: list[Any]) -> None:
    cells = [Cell("ce"), Cell("b", against="ce"), Cell("a", against="ce")]
    result = made_result(cells)
    order = cells if first == "ce" else [cells[2], cells[0], cells[1]]
    figures.draw_ranking(result, order)
    axis, *panels = drawn[0].axes
    assert [text.get_text() for text in axis.get_yticklabels()] == [cell.row for cell in order]
    assert axis.yaxis_inverted()
    (scores,) = axis.containers
    means, places = scores.lines[0].get_data()
    assert list(places) == [0, 1, 2]
    assert means == pytest.approx([100 * (result.score(cell, "preferred")["mean"] or 0) for cell in order])
    for panel, rule in zip(panels, GAIN_RULES, strict=True):
        assert rule in panel.get_xlabel()
        (points,) = panel.containers
        gains, places = points.lines[0].get_data()
        assert list(places) == [place for place, cell in enumerate(order) if cell.against]
        found = [result.gain(cell, rule) or {} for cell in order if cell.against]
        assert gains == pytest.approx([100 * one["mean"] for one in found])
        halves = [(high - low) / 2 for low, high in ends_of(points, along=0)]
        assert halves == pytest.approx([100 * one["half_width"] for one in found])


def test_large_gains_by_argmax_leave_the_scale_of_the_preferred_rule(drawn: list[Any]) -> None:
    cells = [Cell("ce"), Cell("a", against="ce")]
    kept, moved = made_result(cells), made_result(cells)
    for record in (*moved.records["a", ""].values(), *kept.records["a", ""].values()):
        record["preferred_rule"] = "prior"
    for record in moved.records["a", ""].values():
        record["test"]["argmax"]["class_balanced_accuracy"] += 5.0
    for result in (kept, moved):
        figures.draw_ranking(result, cells)
    before, after = (figure.axes for figure in drawn)
    assert [axis.get_xlim() for axis in before[:2]] == [axis.get_xlim() for axis in after[:2]]
    assert after[2].get_xlim()[1] > 400


def test_a_ranking_shows_where_the_first_cell_stands(drawn: list[Any]) -> None:
    cells = [Cell("ce"), Cell("b", against="ce"), Cell("a", against="ce")]
    result = made_result(cells)
    figures.draw_ranking(result, cells[::-1])
    axis = drawn[0].axes[0]
    score = result.score(cells[0], "preferred")
    mean, half = 100 * (score["mean"] or 0), 100 * (score["half_width"] or 0)
    (line,) = [line for line in axis.get_lines() if line.get_label().startswith("ce")]
    assert line.get_xdata() == pytest.approx([mean] * 2)
    (band,) = axis.patches
    assert (band.get_bbox().x0, band.get_bbox().x1) == pytest.approx((mean - half, mean + half))


def test_a_ranking_without_the_first_cell_has_no_line_for_it(drawn: list[Any], tmp_path: Path) -> None:
    cells = [Cell("ce"), Cell("b", against="ce")]
    figures.draw_ranking(made_result(cells, {("ce", ""): (), ("b", ""): (0,)}), cells[1:])
    drawn[0].savefig(tmp_path / "ranking.png")
    axis, *panels = drawn[0].axes
    assert not axis.patches
    assert axis.get_legend() is None
    assert not any(one.containers for one in panels)


COLUMNS = [
    Cell(row, column, against=(row, "CE") if column == "CRL" else None)
    for column in ("CE", "CRL")
    for row in ("0.2", "1", "0.01")
]


def test_both_panels_of_a_curve_have_the_same_rules(drawn: list[Any]) -> None:
    figures.draw_curve(made_result(COLUMNS), "gamma")
    scores, gains = (set(series_of(axis)) for axis in drawn[0].axes)
    assert scores == {f"{column} {rule}" for column in ("CE", "CRL") for rule in GAIN_RULES}
    assert gains == {f"CRL {rule}" for rule in GAIN_RULES}


def test_a_rule_has_one_colour_in_all_panels_and_a_column_one_style(drawn: list[Any]) -> None:
    figures.draw_curve(made_result(COLUMNS), "gamma")
    figures.draw_ranking(made_result(COLUMNS), COLUMNS)
    curve, ranking = (figure.axes for figure in drawn)
    lines = [(name, one.lines[0]) for axis in curve for name, one in series_of(axis).items()]
    colours = {rule: {line.get_color() for name, line in lines if name.endswith(rule)} for rule in GAIN_RULES}
    for rule, axis in zip(GAIN_RULES, ranking[1:], strict=True):
        colours[rule] |= {one.lines[0].get_color() for one in axis.containers}
    assert all(len(found) == 1 for found in colours.values())
    assert len(set.union(*colours.values())) == len(GAIN_RULES)
    for column in ("CE", "CRL"):
        looks = {(line.get_linestyle(), line.get_marker()) for name, line in lines if name.startswith(column)}
        assert len(looks) == 1


@pytest.mark.parametrize("logarithmic", [False, True])
@pytest.mark.parametrize("columns", [1, 2, 5])
def test_lines_at_the_same_place_are_side_by_side_and_seen_to_be_of_it(
    columns: int, logarithmic: bool, drawn: list[Any]
) -> None:
    cells = [Cell(row, f"column {number}") for number in range(columns) for row in ("0.2", "1", "0.01")]
    figures.draw_curve(made_result(cells), "x", logarithmic)
    axis = drawn[0].axes[0]
    drawn[0].draw_without_rendering()  # lays it out
    shifts = []
    for container in axis.containers:
        line, caps, (intervals,) = container.lines
        shifts.append(points_aside(axis, line))
        assert all(part.get_transform() == line.get_transform() for part in (*caps, intervals))
        places = line.get_transform().transform(line.get_xydata())[:, 0]
        assert all(axis.bbox.x0 < place < axis.bbox.x1 for place in places)
    assert len(shifts) == 2 * columns
    assert sum(shifts) == pytest.approx(0, abs=0.01)
    # An interval is 0.9 points thick, and a marker 4 wide.
    assert all(0.8 < right - left < 3 for left, right in pairwise(sorted(shifts)))
    assert max(shifts) <= 4


def test_the_legend_of_a_curve_goes_by_rules(drawn: list[Any]) -> None:
    figures.draw_curve(made_result(CURVE), "eta")
    scores, gains = drawn[0].axes
    assert names_in(scores.get_legend()) == [name for rule in GAIN_RULES for name in (f"CE, {rule}", rule)]
    assert names_in(gains.get_legend()) == list(GAIN_RULES)
    assert [text.get_text() for text in scores.get_xticklabels()] == ["0.5", "0.001", "0.01"]


@pytest.mark.parametrize("logarithmic", [False, True])
def test_a_curve_without_a_single_run_is_empty(logarithmic: bool, drawn: list[Any], tmp_path: Path) -> None:
    figures.draw_curve(made_result(CURVE, 0), "eta", logarithmic)
    drawn[0].savefig(tmp_path / "empty.png")
    assert all(axis.get_legend() is None and not axis.containers for axis in drawn[0].axes)
    assert all(not axis.patches for axis in drawn[0].axes)


def test_a_curve_of_single_runs_with_gaps(drawn: list[Any], tmp_path: Path) -> None:
    seeds = {(cell.row, ""): (0,) if cell.row in ("CE", "0.01") else () for cell in CURVE}
    figures.draw_curve(made_result(CURVE, seeds), "eta", logarithmic=True)
    drawn[0].savefig(tmp_path / "gaps.png")
    for axis in drawn[0].axes:
        assert all(list(one.lines[0].get_xdata()) == [0.01] for one in axis.containers)
        assert len(axis.containers) == len(GAIN_RULES)


# Curves


def test_a_curve_is_drawn_and_written_out(tmp_path: Path) -> None:
    result = made_result(CURVE, folder=tmp_path, gains={"0.5": 0.2})
    page = figures.curve("eta", "A remark.", logarithmic=True)(result)
    (table,) = tables_of(page)
    assert table.heads[0] == "eta"
    for cell in CURVE:
        for rule in RULES:
            assert_shows(table.at(cell.row, rule), result.score(cell, rule))
            assert_shows_gain(table.at(cell.row, f"{rule}, gain"), result, cell, rule)
    assert [table.at(cell.row, "paper") for cell in CURVE] == ["73.53", "", "75", ""]
    assert page.endswith("A remark.")
    assert "](made.png)" in page
    with Image.open(tmp_path / "made.png") as picture:
        assert min(picture.size) > 300


# The order of validation


def test_a_ranking_follows_validation_and_shows_test(tmp_path: Path) -> None:
    cells = [Cell("ce"), *(Cell(f"try {i}", against="ce") for i in range(6)), Cell("not trained", against="ce")]
    seeds = {(cell.row, ""): range(0 if cell.row == "not trained" else 3) for cell in cells}
    result = made_result(cells, seeds, folder=tmp_path)
    (table,) = tables_of(figures.ranking()(result))
    likings = [number(table.at(line[0], "validation")).mean for line in table.lines]
    assert likings == sorted(likings, reverse=True)
    assert {line[0] for line in table.lines} == {cell.row for cell in cells[:-1]}
    for cell in cells[:-1]:
        for rule in SHOWN_RULES:
            assert_shows(table.at(cell.row, rule), result.score(cell, rule))
        for head, rule in (("gain by argmax", "argmax"), ("gain, preferred", "preferred")):
            assert_shows_gain(table.at(cell.row, head), result, cell, rule)


# Of which nothing is trained yet


def test_a_ranking_of_which_nothing_is_trained_yet(tmp_path: Path) -> None:
    cells = [Cell("ce"), Cell("a", against="ce")]
    assert "Nothing" in figures.ranking()(
        made_result(cells, {(cell.row, ""): range(0) for cell in cells}, folder=tmp_path)
    )


def test_a_curve_of_which_nothing_is_trained_yet(tmp_path: Path) -> None:
    page = figures.curve("eta")(made_result(CURVE, 0, folder=tmp_path))
    (table,) = tables_of(page)
    assert table.at("0.01", "argmax") == ""
    assert all((tmp_path / name).is_file() for name in re.findall(r"!\[.*?\]\((.*?)\)", page))
