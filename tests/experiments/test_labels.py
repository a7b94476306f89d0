"""Methods side by side on data with several labels: tables read back, figures looked into."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from experiments import labels
from experiments.labels import by_label
from helpers.figures import GAIN_RULES, ends_of, names_in, points_aside, series_of
from helpers.results import RATIOS, made_result
from helpers.views import METHODS, SHOWN_RULES, Table, assert_shows, group_cell, tables_of
from rectifier.reproduce import Cell, ExperimentResult

CE, CRL = Cell("CE", settings={"method": "ce"}), Cell("CRL", settings={"method": "crl"}, against="CE")


# Tables of labels


GROUPS = {"even": (0, 5.5), "uneven": (5.5, 43), "rare": (43, 1e9), "beyond": (1e9, 1e12)}
MEMBERS = {"even": ["hair"], "uneven": ["beard", "hat"], "rare": ["bald"]}  # 1.5; 5.5 and 30; 43


def labels_page(
    folder: Path, groups: Mapping[str, tuple[float, float]] | None = GROUPS
) -> tuple[ExperimentResult, list[Table]]:
    result = made_result(METHODS, 3, folder=folder, gains={"CRL": 0.1})
    return result, tables_of(by_label(groups)(result))


def test_the_means_of_all_methods_stand_under_each_rule(tmp_path: Path) -> None:
    result, (means, *_) = labels_page(tmp_path)
    for cell in METHODS:
        for rule in SHOWN_RULES:
            assert_shows(means.at(cell.row, rule), result.score(cell, rule))
    assert [means.at(cell.row, "paper") for cell in METHODS] == ["81", "84", "87", ""]


def test_groups_hold_exactly_the_labels_of_their_range(tmp_path: Path) -> None:
    result, (_, gains, _) = labels_page(tmp_path)
    counts = {head.partition(" (")[0]: int(re.findall(r"\((\d+) ", head)[0]) for head in gains.heads if "(" in head}
    expected = {group: len(labels) for group, labels in MEMBERS.items()}  # a group without labels is left out
    assert counts == {"all": len(RATIOS), **expected}
    for cell in METHODS[1:]:
        for rule in SHOWN_RULES:
            for group, own in MEMBERS.items():
                ours, _ = group_cell(gains, cell.row, rule, group)
                assert_shows(ours, result.gain_of(cell, rule, own))
    assert "DeepID2" not in {line[0] for line in gains.lines}


def test_the_papers_gain_of_a_group_stands_where_it_has_all_labels_of_it(tmp_path: Path) -> None:
    _, (_, gains, _) = labels_page(tmp_path)
    papers = {row: [group_cell(gains, row, "argmax", group)[1] for group in MEMBERS] for row in ("LMLE", "CRL", "Ours")}
    assert papers == {"LMLE": ["+0.0", "+4.5", "-3.0"], "CRL": ["+5.0", "", ""], "Ours": ["", "", ""]}
    for rule in SHOWN_RULES[1:]:
        assert {group_cell(gains, row, rule, group)[1] for row in papers for group in MEMBERS} == {""}


def test_without_groups_labels_are_halved_by_imbalance(tmp_path: Path) -> None:
    result = made_result(METHODS[:2], folder=tmp_path, ratios={**RATIOS, "chin": 20.0})
    _, gains, _ = tables_of(by_label()(result))
    halves = {"less imbalanced": ["hair", "beard"], "more imbalanced": ["chin", "hat", "bald"]}
    for half, own in halves.items():
        assert f"{half} ({len(own)} labels)" in gains.heads
        ours, _ = group_cell(gains, "LMLE", "tuned", half)
        assert_shows(ours, result.gain_of(METHODS[1], "tuned", own))


def test_there_may_be_many_groups(tmp_path: Path) -> None:
    ratios = {f"label {i}": float(i) for i in range(1, 13)}
    result = made_result([Cell("ce"), Cell("crl", against="ce")], folder=tmp_path, ratios=ratios)
    _, gains, _ = tables_of(by_label({f"1:{i}": (i, i + 1) for i in range(1, 13)})(result))
    assert len(gains.heads) == 2 + 2 * 13


def test_one_label_is_a_label_and_not_labels(tmp_path: Path) -> None:
    _, (_, gains, _) = labels_page(tmp_path)
    assert "even (1 label)" in gains.heads
    assert "uneven (2 labels)" in gains.heads


def test_label_by_label_the_paper_stands_in_brackets(tmp_path: Path) -> None:
    result, (_, _, by_label) = labels_page(tmp_path)
    assert [line[0] for line in by_label.lines] == ["hair", "beard", "hat", "bald"]
    assert [float(line[1]) for line in by_label.lines] == [round(RATIOS[line[0]]) for line in by_label.lines]
    for cell in METHODS:
        for label in RATIOS:
            found = re.fullmatch(r"(\d+\.\d)(?: \((\d+)\))?", by_label.at(label, cell.row))
            assert found
            mean = result.score(cell, "argmax", label)["mean"]
            assert mean is not None
            assert float(found[1]) == pytest.approx(100 * mean, abs=0.0501)
            known = cell.paper.get(label) if isinstance(cell.paper, dict) else None
            assert found[2] == (None if known is None else f"{known:g}")


def test_data_with_a_single_label_has_no_figure_of_labels(tmp_path: Path) -> None:
    result = made_result([Cell("ce"), Cell("crl", against="ce")], folder=tmp_path, ratios={"class": 20.0})
    page = by_label()(result)
    (means, *_) = tables_of(page)
    assert_shows(means.at("crl", "argmax"), result.score(result.experiment.cell("crl"), "argmax"))
    assert "![" not in page
    assert not list(tmp_path.iterdir())


def test_of_all_labels_the_papers_gain_may_be_that_of_its_means(tmp_path: Path) -> None:
    cells = [replace(CE, paper=73.5), replace(CRL, paper={"mean": 80.0, "hat": 90.0})]
    _, gains, _ = tables_of(by_label()(made_result(cells, folder=tmp_path)))
    papers = [group_cell(gains, "CRL", "argmax", group)[1] for group in ("all", "less imbalanced", "more imbalanced")]
    assert papers == ["+6.5", "", ""]


def test_the_gains_of_the_paper_are_drawn(tmp_path: Path) -> None:
    def picture(paper: float) -> bytes:
        cells = [replace(CE, paper={"hat": 50.0}), replace(CRL, paper={"hat": paper})]
        by_label()(made_result(cells, folder=tmp_path, ratios={"hat": 30.0, "hair": 1.5}))
        with Image.open(tmp_path / "made.png") as image:
            return image.tobytes()

    assert picture(50.0) == picture(50.0)
    assert picture(50.0) != picture(52.0)


# Gains of labels, drawn


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that were to be saved."""
    kept: list[Any] = []
    monkeypatch.setattr(labels, "save_figure", lambda figure, *_: kept.append(figure))
    return kept


def test_every_method_has_a_panel_with_its_gains_under_both_rules(drawn: list[Any]) -> None:
    result = made_result(METHODS, 3, gains={"CRL": 0.2})
    assert labels.draw_gains(result, ["CRL", "Ours", "not measured"])
    panels = drawn[0].axes
    titles = [axis.get_title(loc="left").split(",")[0] for axis in panels]
    assert titles == ["CRL: gain over DeepID2", "Ours: gain over DeepID2"]
    for cell, axis in zip(METHODS[2:], panels, strict=True):
        assert list(series_of(axis)) == list(GAIN_RULES)
        for rule, one in series_of(axis).items():
            gains = [result.gain(cell, rule, label) or {} for label in result.ratios()]
            places, means = one.lines[0].get_data()
            assert list(places) == list(range(len(gains)))
            assert means == pytest.approx([100 * gain["mean"] for gain in gains])
            halves = [(high - low) / 2 for low, high in ends_of(one)]
            assert halves == pytest.approx([100 * gain["half_width"] for gain in gains])


def test_gains_of_a_label_stand_side_by_side_and_close_to_it(drawn: list[Any]) -> None:
    assert labels.draw_gains(made_result(METHODS, 3), ["CRL"])
    drawn[0].draw_without_rendering()
    (axis,) = drawn[0].axes
    preferred, argmax = (points_aside(axis, series_of(axis)[rule].lines[0]) for rule in GAIN_RULES)
    assert preferred == pytest.approx(-argmax)
    assert 2 < argmax < 3


def test_a_label_without_gains_leaves_a_gap(drawn: list[Any]) -> None:
    result = made_result(METHODS, 3)
    for record in result.records["CRL", ""].values():
        for scores in record["test"].values():
            del scores["labels"]["hat"]
    assert labels.draw_gains(result, ["CRL"])
    (axis,) = drawn[0].axes
    hat = list(result.ratios()).index("hat")
    for one in axis.containers:
        assert list(one.lines[0].get_xdata()) == [place for place in range(4) if place != hat]


def test_methods_that_gain_alike_share_a_scale_and_one_that_does_not_says_so(drawn: list[Any]) -> None:
    assert labels.draw_gains(made_result(METHODS, 3, gains={"LMLE": 2.0}), ["LMLE", "CRL", "Ours"])
    large, *alike = drawn[0].axes
    names = [text.get_text() for text in alike[-1].get_xticklabels()]
    assert names == ["hair 1:2", "beard 1:6", "hat 1:30", "bald 1:43"]
    assert not any(text.get_visible() and text.get_text() for text in large.get_xticklabels())
    assert len({axis.get_xlim() for axis in (large, *alike)}) == 1
    assert len({axis.get_ylim() for axis in alike}) == 1
    assert large.get_ylim()[1] > 2 * alike[0].get_ylim()[1]
    remarks = ["of its own" in axis.get_title(loc="left") for axis in (large, *alike)]
    assert remarks == [True, False, False]
    for axis in alike:  # what they share is enough for each of them
        low, high = axis.get_ylim()
        assert all(low < mean < high for one in axis.containers for mean in one.lines[0].get_ydata())


def spread_out(result: Any, row: str, label: str, by: float) -> None:
    """Widen the interval of one label's scores, and leave their mean."""
    for sign, record in zip((-1, 0, 1), result.records[row, ""].values(), strict=True):
        for scores in record["test"].values():
            scores["labels"][label] += sign * by


def test_one_wide_interval_does_not_set_the_scale_and_is_cut_visibly(drawn: list[Any]) -> None:
    ratios = {f"label {number}": 1.0 + number for number in range(12)}
    kept, widened = (made_result(METHODS, 3, ratios=ratios) for _ in range(2))
    spread_out(widened, "Ours", "label 3", by=5.0)
    for result in (kept, widened):
        assert labels.draw_gains(result, ["Ours"])
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
    result = made_result(METHODS, 3)
    for record in result.records["Ours", ""].values():
        for scores in record["test"].values():
            scores["labels"]["hat"] += far
    assert labels.draw_gains(result, ["Ours"])
    (axis,) = drawn[0].axes
    means = [mean for one in axis.containers for mean in one.lines[0].get_ydata()]
    assert max(map(abs, means)) > 800
    assert axis.get_ylim()[0] < min(means) < max(means) < axis.get_ylim()[1]


def test_gains_of_a_single_seed_are_drawn_without_intervals(drawn: list[Any], tmp_path: Path) -> None:
    assert labels.draw_gains(made_result(METHODS, 1), ["LMLE", "CRL", "Ours"])
    drawn[0].savefig(tmp_path / "one.png")
    assert all(low == high for axis in drawn[0].axes for one in axis.containers for low, high in ends_of(one))


def test_the_papers_gains_are_in_the_panel_of_their_method_and_named_once(drawn: list[Any]) -> None:
    result = made_result(METHODS)
    assert labels.draw_gains(result, ["Ours", "LMLE", "CRL"])
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
    assert labels.draw_gains(made_result(METHODS), ["Ours"])
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
    assert not labels.draw_gains(made_result(cells, ratios=ratios), [cell.row for cell in METHODS])
    assert drawn == []


def test_names_with_dollars_are_drawn_as_they_are(tmp_path: Path) -> None:
    cells = [replace(cell, row=f"{cell.row} $x_{{$") for cell in METHODS[1:2]]
    base = replace(METHODS[0], row="DeepID2")
    assert labels.draw_gains(made_result([base, *cells], folder=tmp_path), [cell.row for cell in cells])
    assert (tmp_path / "made.png").is_file()
