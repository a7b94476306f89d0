"""What is drawn is what the outcome holds, and nothing covers anything else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from test_outcome import RATIOS, made_outcome
from test_views import CURVE, METHODS, SHOWN_RULES

from rectifier.evaluation import RULES
from rectifier.reproduce import Cell, figures


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that were to be saved."""
    kept: list[Any] = []
    monkeypatch.setattr(figures, "save_figure", lambda figure, *_: kept.append(figure))
    return kept


def bars_of(axis: Any) -> list[Any]:
    (bars,) = [container for container in axis.containers if hasattr(container, "patches")]
    return list(bars.patches)


def test_every_method_has_a_panel_with_bars_as_high_as_its_gains(drawn: list[Any]) -> None:
    outcome = made_outcome(METHODS, 3, gains={"CRL": 0.2})
    assert figures.draw_gains(outcome, ["CRL", "Ours", "not measured"])
    panels = drawn[0].axes
    assert [axis.get_title(loc="left") for axis in panels] == ["CRL: gain over DeepID2", "Ours: gain over DeepID2"]
    for cell, axis in zip(METHODS[2:], panels, strict=True):
        gains = [outcome.gain(cell, "argmax", label) for label in outcome.ratios()]
        heights = [bar.get_height() for bar in bars_of(axis)]
        assert heights == pytest.approx([100 * gain["mean"] for gain in gains if gain and gain["mean"] is not None])
        assert [bar.get_x() + bar.get_width() / 2 for bar in bars_of(axis)] == pytest.approx(range(len(gains)))


def test_panels_of_gains_share_the_labels_and_not_the_scale(drawn: list[Any]) -> None:
    assert figures.draw_gains(made_outcome(METHODS, 3, gains={"CRL": 0.4}), ["LMLE", "CRL"])
    upper, lowest = drawn[0].axes
    labels = [text.get_text() for text in lowest.get_xticklabels()]
    assert labels == ["hair 1:2", "beard 1:6", "hat 1:30", "bald 1:43"]
    assert not any(text.get_visible() and text.get_text() for text in upper.get_xticklabels())
    assert upper.get_xlim() == lowest.get_xlim()
    assert upper.get_ylim() != lowest.get_ylim()


def test_the_papers_gains_are_in_the_panel_of_their_method_and_named_once(drawn: list[Any]) -> None:
    outcome = made_outcome(METHODS)
    assert figures.draw_gains(outcome, ["Ours", "LMLE", "CRL"])
    panels = dict(zip(("LMLE", "CRL", "Ours"), drawn[0].axes, strict=True))
    marks = {
        row: {
            place: gain for line in axis.get_lines() if line.get_label() == "paper" for place, gain in line.get_xydata()
        }
        for row, axis in panels.items()
    }
    assert marks == {"LMLE": {0: 0.0, 1: 0.0, 2: 9.0, 3: -3.0}, "CRL": {0: 5.0, 2: 9.0}, "Ours": {}}
    legends = [axis.get_legend() for axis in panels.values() if axis.get_legend()]
    assert [text.get_text() for legend in legends for text in legend.get_texts()] == ["paper"]


def test_without_gains_of_the_paper_there_is_no_legend(drawn: list[Any]) -> None:
    assert figures.draw_gains(made_outcome(METHODS), ["Ours"])
    (axis,) = drawn[0].axes
    assert axis.get_legend() is None


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


def lines_of(axis: Any) -> dict[str, tuple[list[float], list[float]]]:
    """Return the points of every line with a name."""
    found = {}
    for container in axis.containers:  # a line with bars of its intervals
        found[container.get_label()] = tuple(list(values) for values in container.lines[0].get_data())
    for line in axis.get_lines():
        if not line.get_label().startswith("_"):
            found[line.get_label()] = tuple(list(values) for values in line.get_data())
    return found


def test_a_curve_goes_through_the_scores_and_the_baseline_is_level(drawn: list[Any]) -> None:
    outcome = made_outcome(CURVE)
    figures.draw_curve(outcome, "eta", logarithmic=True)
    axis, gains = drawn[0].axes
    assert axis.get_xscale() == gains.get_xscale() == "log"
    for rule in ("argmax", "preferred"):
        x, y = lines_of(gains)[rule]
        found = [outcome.gain(outcome.experiment.cell(f"{value:g}"), rule) for value in x]
        assert y == pytest.approx([100 * one["mean"] for one in found if one and one["mean"] is not None])
    assert axis.get_xlabel() == "eta"
    lines = lines_of(axis)
    for rule in RULES:
        x, y = lines[rule]
        assert x == [0.001, 0.01, 0.5]
        means = [outcome.score(outcome.experiment.cell(f"{value:g}"), rule)["mean"] for value in x]
        assert y == pytest.approx([100 * mean for mean in means if mean is not None])
        level = outcome.score(outcome.experiment.cell("CE"), rule)["mean"]
        assert level is not None
        assert lines[f"CE, {rule}"][1] == pytest.approx([100 * level] * 2)


def test_a_ranking_is_drawn_in_its_order(drawn: list[Any]) -> None:
    cells = [Cell("ce"), Cell("b", against="ce"), Cell("a", against="ce")]
    outcome = made_outcome(cells)
    figures.draw_ranking(outcome, cells)
    axis, beside = drawn[0].axes
    assert [text.get_text() for text in axis.get_yticklabels()] == ["ce", "b", "a"]
    assert axis.yaxis_inverted()
    for rule in ("argmax", "preferred"):
        means, places = lines_of(axis)[rule]
        assert places == sorted(places)
        assert means == pytest.approx([100 * (outcome.score(cell, rule)["mean"] or 0) for cell in cells])
        gains, places = lines_of(beside)[rule]
        assert [round(place) for place in places] == [1, 2]
        found = [outcome.gain(cell, rule) for cell in cells[1:]]
        assert gains == pytest.approx([100 * (one["mean"] or 0) for one in found if one])


def test_every_column_has_a_line_under_every_rule(drawn: list[Any]) -> None:
    cells = [Cell(row, column) for column in ("CE", "CRL") for row in ("0.2", "1")]
    figures.draw_curve(made_outcome(cells), "gamma")
    assert set(lines_of(drawn[0].axes[0])) == {f"{column} {rule}" for column in ("CE", "CRL") for rule in RULES}


def test_a_rule_has_one_colour_in_both_panels_and_a_column_one_style(drawn: list[Any]) -> None:
    cells = [Cell(row, column) for column in ("CE", "CRL") for row in ("0.2", "1")]
    figures.draw_curve(
        made_outcome([*cells[:2], *(replace(cell, against=(cell.row, "CE")) for cell in cells[2:])]), "x"
    )
    left, right = ({one.get_label(): one.lines[0] for one in axis.containers} for axis in drawn[0].axes)
    assert set(right) == {"CRL argmax", "CRL preferred"}
    lines = {**left, "CRL preferred": right["CRL preferred"]}
    assert right["CRL argmax"].get_color() == left["CRL argmax"].get_color()
    colours = {rule: {line.get_color() for name, line in lines.items() if name.endswith(rule)} for rule in SHOWN_RULES}
    assert len(set.union(*colours.values())) == len(SHOWN_RULES)
    assert all(len(found) == 1 for found in colours.values())
    for column in ("CE", "CRL"):
        looks = {(line.get_linestyle(), line.get_marker()) for name, line in lines.items() if name.startswith(column)}
        assert len(looks) == 1


@pytest.mark.parametrize("logarithmic", [False, True])
def test_lines_at_the_same_place_are_drawn_side_by_side(logarithmic: bool, drawn: list[Any]) -> None:
    cells = [Cell(row, column) for column in ("CE", "CRL") for row in ("0.2", "1", "0.01")]
    figures.draw_curve(made_outcome(cells), "x", logarithmic)
    axis = drawn[0].axes[0]
    drawn[0].draw_without_rendering()  # lays it out
    shifts = []
    for container in axis.containers:
        line, caps, (intervals,) = container.lines
        places = line.get_transform().transform(line.get_xydata())[:, 0]
        true_places = axis.transData.transform(line.get_xydata())[:, 0]
        (shift,) = {round(float(moved), 3) for moved in places - true_places}  # the same at every place
        shifts.append(shift)
        assert all(part.get_transform() == line.get_transform() for part in (*caps, intervals))
        assert all(axis.bbox.x0 < place < axis.bbox.x1 for place in places)
    assert sum(shifts) == pytest.approx(0, abs=0.01)
    caps_width = 2 * 2 * drawn[0].dpi / 72  # 2 points to either side
    assert all(right - left > caps_width for left, right in pairwise(sorted(shifts)))


def test_the_legend_of_a_curve_goes_by_rules(drawn: list[Any]) -> None:
    figures.draw_curve(made_outcome(CURVE), "eta")
    names = [text.get_text() for text in drawn[0].axes[0].get_legend().get_texts()]
    assert names == [name for rule in RULES for name in (f"CE, {rule}", rule)]
    assert [text.get_text() for text in drawn[0].axes[0].get_xticklabels()] == ["0.5", "0.001", "0.01"]


@pytest.mark.parametrize("logarithmic", [False, True])
def test_a_curve_without_a_single_run_is_empty(logarithmic: bool, drawn: list[Any], tmp_path: Path) -> None:
    figures.draw_curve(made_outcome(CURVE, 0), "eta", logarithmic)
    drawn[0].savefig(tmp_path / "empty.png")
    assert all(axis.get_legend() is None and not axis.containers for axis in drawn[0].axes)


def test_names_with_dollars_are_drawn_as_they_are(tmp_path: Path) -> None:
    cells = [replace(cell, row=f"{cell.row} $x_{{$") for cell in METHODS[1:2]]
    base = replace(METHODS[0], row="DeepID2")
    assert figures.draw_gains(made_outcome([base, *cells], folder=tmp_path), [cell.row for cell in cells])
    assert (tmp_path / "made.png").is_file()
