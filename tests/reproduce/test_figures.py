"""What is drawn is what the outcome holds, and nothing covers anything else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb

from helpers.outcomes import RATIOS, made_outcome
from helpers.views import CURVE, METHODS
from rectifier.reproduce import Cell, figures, neighbourhoods


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that were to be saved."""
    kept: list[Any] = []
    monkeypatch.setattr(figures, "save_figure", lambda figure, *_: kept.append(figure))
    return kept


GAIN_RULES = ("preferred", "argmax")


def series_of(axis: Any) -> dict[str, Any]:
    """Return what is drawn with intervals, by its name."""
    return {one.get_label(): one for one in axis.containers}


def ends_of(container: Any, along: int = 1) -> list[tuple[float, float]]:
    """Return where each interval begins and ends."""
    (intervals,) = container.lines[2]
    return [(float(ends[0][along]), float(ends[1][along])) for ends in intervals.get_segments()]


def points_aside(axis: Any, part: Any) -> float:
    """Return how far something stands from its values, in points, which has to be as much at every place."""
    moved = part.get_transform().transform((1.0, 1.0)) - axis.transData.transform((1.0, 1.0))
    assert moved[1] == pytest.approx(0)
    return float(moved[0] * 72 / axis.figure.dpi)


def test_every_method_has_a_panel_with_its_gains_under_both_rules(drawn: list[Any]) -> None:
    outcome = made_outcome(METHODS, 3, gains={"CRL": 0.2})
    assert figures.draw_gains(outcome, ["CRL", "Ours", "not measured"])
    panels = drawn[0].axes
    titles = [axis.get_title(loc="left").split(",")[0] for axis in panels]
    assert titles == ["CRL: gain over DeepID2", "Ours: gain over DeepID2"]
    for cell, axis in zip(METHODS[2:], panels, strict=True):
        assert list(series_of(axis)) == list(GAIN_RULES)
        for rule, one in series_of(axis).items():
            gains = [outcome.gain(cell, rule, label) or {} for label in outcome.ratios()]
            places, means = one.lines[0].get_data()
            assert list(places) == list(range(len(gains)))
            assert means == pytest.approx([100 * gain["mean"] for gain in gains])
            halves = [(high - low) / 2 for low, high in ends_of(one)]
            assert halves == pytest.approx([100 * gain["half_width"] for gain in gains])


def test_gains_of_a_label_stand_side_by_side_and_close_to_it(drawn: list[Any]) -> None:
    assert figures.draw_gains(made_outcome(METHODS, 3), ["CRL"])
    drawn[0].draw_without_rendering()
    (axis,) = drawn[0].axes
    preferred, argmax = (points_aside(axis, series_of(axis)[rule].lines[0]) for rule in GAIN_RULES)
    assert preferred == pytest.approx(-argmax)
    assert 2 < argmax < 3


def test_a_label_without_gains_leaves_a_gap(drawn: list[Any]) -> None:
    outcome = made_outcome(METHODS, 3)
    for record in outcome.records["CRL", ""].values():
        for scores in record["test"].values():
            del scores["labels"]["hat"]
    assert figures.draw_gains(outcome, ["CRL"])
    (axis,) = drawn[0].axes
    hat = list(outcome.ratios()).index("hat")
    for one in axis.containers:
        assert list(one.lines[0].get_xdata()) == [place for place in range(4) if place != hat]


def test_methods_that_gain_alike_share_a_scale_and_one_that_does_not_says_so(drawn: list[Any]) -> None:
    assert figures.draw_gains(made_outcome(METHODS, 3, gains={"LMLE": 2.0}), ["LMLE", "CRL", "Ours"])
    large, *alike = drawn[0].axes
    labels = [text.get_text() for text in alike[-1].get_xticklabels()]
    assert labels == ["hair 1:2", "beard 1:6", "hat 1:30", "bald 1:43"]
    assert not any(text.get_visible() and text.get_text() for text in large.get_xticklabels())
    assert len({axis.get_xlim() for axis in (large, *alike)}) == 1
    assert len({axis.get_ylim() for axis in alike}) == 1
    assert large.get_ylim()[1] > 2 * alike[0].get_ylim()[1]
    remarks = ["of its own" in axis.get_title(loc="left") for axis in (large, *alike)]
    assert remarks == [True, False, False]
    for axis in alike:  # what they share is enough for each of them
        low, high = axis.get_ylim()
        assert all(low < mean < high for one in axis.containers for mean in one.lines[0].get_ydata())


def spread_out(outcome: Any, row: str, label: str, by: float) -> None:
    """Widen the interval of one label's scores, and leave their mean."""
    for sign, record in zip((-1, 0, 1), outcome.records[row, ""].values(), strict=True):
        for scores in record["test"].values():
            scores["labels"][label] += sign * by


def test_one_wide_interval_does_not_set_the_scale_and_is_seen_to_go_on(drawn: list[Any]) -> None:
    ratios = {f"label {number}": 1.0 + number for number in range(12)}
    kept, widened = (made_outcome(METHODS, 3, ratios=ratios) for _ in range(2))
    spread_out(widened, "Ours", "label 3", by=5.0)
    for outcome in (kept, widened):
        assert figures.draw_gains(outcome, ["Ours"])
    (before,), (after,) = (figure.axes for figure in drawn)
    height, wider = (high - low for low, high in (before.get_ylim(), after.get_ylim()))
    low, high = ends_of(series_of(after)["argmax"])[3]
    assert high - low > 10 * height
    assert wider < 4 * height
    arrows = {line.get_marker(): list(line.get_xdata()) for line in after.get_lines() if line.get_marker() in "v^"}
    assert arrows == {"v": [3], "^": [3]}
    assert not any(line.get_marker() in ("v", "^") for line in before.get_lines())
    for line in after.get_lines():
        if line.get_marker() in "v^":
            assert points_aside(after, line) in {points_aside(after, one.lines[0]) for one in after.containers}


@pytest.mark.parametrize("far", [-9.0, 9.0])
def test_no_mean_is_cut_off_however_far_from_the_others(far: float, drawn: list[Any]) -> None:
    outcome = made_outcome(METHODS, 3)
    for record in outcome.records["Ours", ""].values():
        for scores in record["test"].values():
            scores["labels"]["hat"] += far
    assert figures.draw_gains(outcome, ["Ours"])
    (axis,) = drawn[0].axes
    means = [mean for one in axis.containers for mean in one.lines[0].get_ydata()]
    assert max(map(abs, means)) > 800
    assert axis.get_ylim()[0] < min(means) < max(means) < axis.get_ylim()[1]


def test_gains_of_a_single_seed_are_drawn_without_intervals(drawn: list[Any], tmp_path: Path) -> None:
    assert figures.draw_gains(made_outcome(METHODS, 1), ["LMLE", "CRL", "Ours"])
    drawn[0].savefig(tmp_path / "one.png")
    assert all(low == high for axis in drawn[0].axes for one in axis.containers for low, high in ends_of(one))


def names_in(legend: Any) -> list[str]:
    return [text.get_text() for text in legend.get_texts()]


def test_the_papers_gains_are_in_the_panel_of_their_method_and_named_once(drawn: list[Any]) -> None:
    outcome = made_outcome(METHODS)
    assert figures.draw_gains(outcome, ["Ours", "LMLE", "CRL"])
    panels = dict(zip(("LMLE", "CRL", "Ours"), drawn[0].axes, strict=True))
    marks = {
        row: {
            place: gain
            for line in axis.get_lines()
            if line.get_label() == "paper, argmax"
            for place, gain in line.get_xydata()
        }
        for row, axis in panels.items()
    }
    assert marks == {"LMLE": {0: 0.0, 1: 0.0, 2: 9.0, 3: -3.0}, "CRL": {0: 5.0, 2: 9.0}, "Ours": {}}
    (legend,) = drawn[0].legends
    assert names_in(legend) == [*GAIN_RULES, "paper, argmax"]
    assert all(axis.get_legend() is None for axis in panels.values())


def test_without_gains_of_the_paper_they_are_not_named(drawn: list[Any]) -> None:
    assert figures.draw_gains(made_outcome(METHODS), ["Ours"])
    (legend,) = drawn[0].legends
    assert names_in(legend) == list(GAIN_RULES)


@pytest.mark.parametrize(
    ("cells", "ratios"),
    [(METHODS[:1], RATIOS), (METHODS, {"class": 20.0}), ([], RATIOS)],
    ids=["no gains", "one label", "no cells"],
)
def test_without_gains_of_labels_nothing_is_drawn(
    drawn: list[Any], cells: Sequence[Cell], ratios: dict[str, float | None]
) -> None:
    assert not figures.draw_gains(made_outcome(cells, ratios=ratios), [cell.row for cell in METHODS])
    assert drawn == []


def test_a_curve_goes_through_the_scores_and_the_gains(drawn: list[Any]) -> None:
    outcome = made_outcome(CURVE)
    figures.draw_curve(outcome, "eta", logarithmic=True)
    axis, gains = drawn[0].axes
    assert axis.get_xscale() == gains.get_xscale() == "log"
    assert axis.get_xlabel() == gains.get_xlabel() == "eta"
    for panel, ask in ((axis, outcome.score), (gains, outcome.gain)):
        assert set(series_of(panel)) == set(GAIN_RULES)
        for rule, one in series_of(panel).items():
            x, y = one.lines[0].get_data()
            assert list(x) == [0.001, 0.01, 0.5]
            found = [ask(outcome.experiment.cell(f"{value:g}"), rule) or {} for value in x]
            assert y == pytest.approx([100 * one["mean"] for one in found])
            halves = [(high - low) / 2 for low, high in ends_of(one)]
            assert halves == pytest.approx([100 * one["half_width"] for one in found])


def test_the_baseline_is_level_with_a_band_for_its_interval(drawn: list[Any]) -> None:
    outcome = made_outcome(CURVE)
    figures.draw_curve(outcome, "eta")
    axis, gains = drawn[0].axes
    bands = {band.get_facecolor()[:3]: band.get_bbox() for band in axis.patches}
    assert len(bands) == len(GAIN_RULES)
    for line in axis.get_lines():
        row, _, rule = line.get_label().partition(", ")
        if row == "CE":
            score = outcome.score(outcome.experiment.cell("CE"), rule)
            mean, half = 100 * (score["mean"] or 0), 100 * (score["half_width"] or 0)
            assert line.get_ydata() == pytest.approx([mean] * 2)
            band = bands.pop(to_rgb(line.get_color()))
            assert (band.y0, band.y1) == pytest.approx((mean - half, mean + half))
    assert not bands
    assert not gains.patches


@pytest.mark.parametrize("first", ["ce", "not the first in the order"])
def test_a_ranking_is_drawn_in_its_order(first: str, drawn: list[Any]) -> None:
    cells = [Cell("ce"), Cell("b", against="ce"), Cell("a", against="ce")]
    outcome = made_outcome(cells)
    order = cells if first == "ce" else [cells[2], cells[0], cells[1]]
    figures.draw_ranking(outcome, order)
    axis, *beside = drawn[0].axes
    assert [text.get_text() for text in axis.get_yticklabels()] == [cell.row for cell in order]
    assert axis.yaxis_inverted()
    (scores,) = axis.containers
    means, places = scores.lines[0].get_data()
    assert list(places) == [0, 1, 2]
    assert means == pytest.approx([100 * (outcome.score(cell, "preferred")["mean"] or 0) for cell in order])
    for panel, rule in zip(beside, GAIN_RULES, strict=True):
        assert rule in panel.get_xlabel()
        (points,) = panel.containers
        gains, places = points.lines[0].get_data()
        assert list(places) == [place for place, cell in enumerate(order) if cell.against]
        found = [outcome.gain(cell, rule) or {} for cell in order if cell.against]
        assert gains == pytest.approx([100 * one["mean"] for one in found])
        halves = [(high - low) / 2 for low, high in ends_of(points, along=0)]
        assert halves == pytest.approx([100 * one["half_width"] for one in found])


def test_large_gains_by_argmax_leave_the_scale_of_the_preferred_rule(drawn: list[Any]) -> None:
    cells = [Cell("ce"), Cell("a", against="ce")]
    kept, moved = made_outcome(cells), made_outcome(cells)
    for record in (*moved.records["a", ""].values(), *kept.records["a", ""].values()):
        record["preferred_rule"] = "prior"
    for record in moved.records["a", ""].values():
        record["test"]["argmax"]["class_balanced_accuracy"] += 5.0
    for outcome in (kept, moved):
        figures.draw_ranking(outcome, cells)
    before, after = (figure.axes for figure in drawn)
    assert [axis.get_xlim() for axis in before[:2]] == [axis.get_xlim() for axis in after[:2]]
    assert after[2].get_xlim()[1] > 400


def test_a_ranking_shows_where_the_first_cell_stands(drawn: list[Any]) -> None:
    cells = [Cell("ce"), Cell("b", against="ce"), Cell("a", against="ce")]
    outcome = made_outcome(cells)
    figures.draw_ranking(outcome, cells[::-1])
    axis = drawn[0].axes[0]
    score = outcome.score(cells[0], "preferred")
    mean, half = 100 * (score["mean"] or 0), 100 * (score["half_width"] or 0)
    (line,) = [line for line in axis.get_lines() if line.get_label().startswith("ce")]
    assert line.get_xdata() == pytest.approx([mean] * 2)
    (band,) = axis.patches
    assert (band.get_bbox().x0, band.get_bbox().x1) == pytest.approx((mean - half, mean + half))


def test_a_ranking_without_the_first_cell_has_no_line_for_it(drawn: list[Any], tmp_path: Path) -> None:
    cells = [Cell("ce"), Cell("b", against="ce")]
    figures.draw_ranking(made_outcome(cells, {("ce", ""): (), ("b", ""): (0,)}), cells[1:])
    drawn[0].savefig(tmp_path / "ranking.png")
    axis, *beside = drawn[0].axes
    assert not axis.patches
    assert axis.get_legend() is None
    assert not any(one.containers for one in beside)


COLUMNS = [
    Cell(row, column, against=(row, "CE") if column == "CRL" else None)
    for column in ("CE", "CRL")
    for row in ("0.2", "1", "0.01")
]


def test_both_panels_of_a_curve_have_the_same_rules(drawn: list[Any]) -> None:
    figures.draw_curve(made_outcome(COLUMNS), "gamma")
    scores, gains = (set(series_of(axis)) for axis in drawn[0].axes)
    assert scores == {f"{column} {rule}" for column in ("CE", "CRL") for rule in GAIN_RULES}
    assert gains == {f"CRL {rule}" for rule in GAIN_RULES}


def test_a_rule_has_one_colour_in_all_panels_and_a_column_one_style(drawn: list[Any]) -> None:
    figures.draw_curve(made_outcome(COLUMNS), "gamma")
    figures.draw_ranking(made_outcome(COLUMNS), COLUMNS)
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
    figures.draw_curve(made_outcome(cells), "x", logarithmic)
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
    figures.draw_curve(made_outcome(CURVE), "eta")
    scores, gains = drawn[0].axes
    assert names_in(scores.get_legend()) == [name for rule in GAIN_RULES for name in (f"CE, {rule}", rule)]
    assert names_in(gains.get_legend()) == list(GAIN_RULES)
    assert [text.get_text() for text in scores.get_xticklabels()] == ["0.5", "0.001", "0.01"]


@pytest.mark.parametrize("logarithmic", [False, True])
def test_a_curve_without_a_single_run_is_empty(logarithmic: bool, drawn: list[Any], tmp_path: Path) -> None:
    figures.draw_curve(made_outcome(CURVE, 0), "eta", logarithmic)
    drawn[0].savefig(tmp_path / "empty.png")
    assert all(axis.get_legend() is None and not axis.containers for axis in drawn[0].axes)
    assert all(not axis.patches for axis in drawn[0].axes)


def test_a_curve_of_single_runs_with_gaps(drawn: list[Any], tmp_path: Path) -> None:
    seeds = {(cell.row, ""): (0,) if cell.row in ("CE", "0.01") else () for cell in CURVE}
    figures.draw_curve(made_outcome(CURVE, seeds), "eta", logarithmic=True)
    drawn[0].savefig(tmp_path / "gaps.png")
    for axis in drawn[0].axes:
        assert all(list(one.lines[0].get_xdata()) == [0.01] for one in axis.containers)
        assert len(axis.containers) == len(GAIN_RULES)


def test_names_with_dollars_are_drawn_as_they_are(tmp_path: Path) -> None:
    cells = [replace(cell, row=f"{cell.row} $x_{{$") for cell in METHODS[1:2]]
    base = replace(METHODS[0], row="DeepID2")
    assert figures.draw_gains(made_outcome([base, *cells], folder=tmp_path), [cell.row for cell in cells])
    assert (tmp_path / "made.png").is_file()


# Maps of features


MAPS = {
    "classes": {role: {"name": f"a_{role}", "images": 5} for role in ("Maj-1", "Maj-2", "Min-1")},
    "rows": {row: {"overwhelmed": {"0": 0.25}, "silhouette": {"0": 0.5}} for row in ("even", "uneven")},
    "maps": {
        row: {role: {"x": [number, 2.0], "y": [number, 1.0]} for number, role in enumerate(("Maj-1", "Maj-2", "Min-1"))}
        for row in ("even", "uneven")
    },
}

# What people without one kind of cones see of linear red, green and blue (Machado, Oliveira and Fernandes 2009).
VISIONS = {
    "all cones": np.eye(3),
    "no red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "no blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def lab_of(linear: Any) -> Any:
    """Return CIE's L*, a* and b* of linear red, green and blue."""
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = np.array(to_xyz) @ np.clip(linear, 0, 1) / [0.9505, 1.0, 1.089]
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def distance(one: str, other: str, vision: str) -> float:
    """Return how different two colours look; two blues that were hard to tell apart had 25."""
    values = [np.array(to_rgb(colour)) for colour in (one, other)]
    linear = [np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4) for value in values]
    first, second = (lab_of(np.array(VISIONS[vision]) @ value) for value in linear)
    return float(np.linalg.norm(first - second))


@pytest.fixture
def maps(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The figure of some maps."""
    kept: list[Any] = []
    monkeypatch.setattr(neighbourhoods, "save_figure", lambda figure, *_: kept.append(figure))
    neighbourhoods.draw_maps(MAPS, Path("maps.png"))
    return kept[0]


@pytest.mark.parametrize("vision", VISIONS)
def test_classes_and_rules_are_told_apart_by_people_of_any_colour_vision(vision: str, maps: Any) -> None:
    classes = [to_hex(points.get_facecolor()[0]) for points in maps.axes[0].collections]
    assert len(classes) == 3
    assert min(distance(one, other, vision) for one, other in combinations(classes, 2)) > 40
    assert distance(*figures._RULE_COLOURS.values(), vision) > 40


def test_classes_of_a_map_have_markers_of_their_own(maps: Any) -> None:
    for axis in maps.axes:
        outlines = [points.get_paths()[0].vertices.tolist() for points in axis.collections]
        assert all(one != other for one, other in combinations(outlines, 2))
        assert [points.get_offsets().tolist() for points in axis.collections] == [
            [[number, number], [2.0, 1.0]] for number in range(3)
        ]


def test_maps_say_of_which_seed_they_are(maps: Any) -> None:
    assert "first seed" in maps.get_suptitle()
