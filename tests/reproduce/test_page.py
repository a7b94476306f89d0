"""Pages of results: what they say of an experiment, and the list of all of them in the folder's README."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.pages import CELLS, page, shown
from helpers.results import made_result
from rectifier.reproduce import Cell, ExperimentResult
from rectifier.reproduce.page import BEGIN, END, update_list, write_page
from rectifier.reproduce.records import write_results


def bare(key: str, seconds: float | None) -> dict[str, Any]:
    return {"key": key, "config": {}, "seed": 0, "data": {}, "seconds": seconds}


def write(folder: Path, name: str, title: str, runs: int, **facts: str) -> None:
    write_results(
        folder / f"{name}.json",
        {"experiment": name, "title": title, **facts},
        {
            "runs": [bare(f"{name}{i}", 360.0) for i in range(runs)],
            "candidates": [bare("c", None)],
        },
    )


def readme(folder: Path) -> str:
    return (folder / "README.md").read_text(encoding="utf-8")


def listed(text: str) -> list[list[str]]:
    """Return the lines of the list between the marks: name, link, title, headline, runs, hours."""
    (between,) = re.findall(f"{BEGIN}\n(.*?)\n{END}", text, re.DOTALL)
    _, rule, *rows = between.splitlines()
    assert set(rule) <= set("|-: ")
    found = [re.fullmatch(r"\| \[(.+?)\]\((.+?)\) \| (.+) \| (.*) \| (\d+) \| (.+) \|", row) for row in rows]
    return [list(match.groups()) for match in found if match] if all(found) else []


@pytest.fixture
def results(tmp_path: Path) -> Path:
    write(tmp_path, "eta", "The weight η, 1:43 & so on", 16)
    write(tmp_path, "celeba", "CelebA, 40 attributes", 3, headline="CRL +1.0 ± 0.3")
    (tmp_path / "speed.json").write_text('{"hardware": "H200", "rows": []}')
    (tmp_path / "list.json").write_text("[1, 2]")
    return tmp_path


EXPECTED = [
    ["celeba", "celeba.md", "CelebA, 40 attributes", "CRL +1.0 ± 0.3", "4", "at least 0.30"],
    ["eta", "eta.md", "The weight η, 1:43 & so on", "", "17", "at least 1.60"],
]


def test_a_list_is_made_where_there_is_none(results: Path) -> None:
    update_list(results)
    assert readme(results).startswith("# ")
    assert listed(readme(results)) == EXPECTED


def test_what_stands_between_the_marks_is_replaced_and_nothing_else(results: Path) -> None:
    before, after = "# Ours\n\nWords, \\1 and \\g<0>.\n\n", "\n\n## Speed\n\n| a | b |\n|---|---|\n| 1 | 2 |"
    (results / "README.md").write_text(f"{before}{BEGIN}\n| old |\n{END}{after}", encoding="utf-8")
    update_list(results)
    text = readme(results)
    assert text.startswith(before + BEGIN)
    assert text.endswith(END + after)
    assert "old" not in text
    assert listed(text) == EXPECTED


def test_a_readme_without_marks_keeps_its_words_and_gets_a_list(results: Path) -> None:
    words = "# Ours\n\nWords.\n"
    (results / "README.md").write_text(words, encoding="utf-8")
    update_list(results)
    assert readme(results).startswith(words)
    assert listed(readme(results)) == EXPECTED


@pytest.mark.parametrize("text", [None, "# Ours\n", f"# Ours\n\n{BEGIN}{END}\nMore.\n"])
def test_a_second_call_changes_nothing(results: Path, text: str | None) -> None:
    if text is not None:
        (results / "README.md").write_text(text, encoding="utf-8")
    update_list(results)
    before = readme(results)
    update_list(results)
    assert readme(results) == before


def test_the_list_follows_the_results(results: Path) -> None:
    update_list(results)
    write(results, "celeba", "CelebA, 40 attributes", 30)
    (results / "eta.json").unlink()
    update_list(results)
    assert listed(readme(results)) == [["celeba", "celeba.md", "CelebA, 40 attributes", "", "31", "at least 3.00"]]


# The page of one experiment


def test_a_page_says_what_is_shown_and_where_it_comes_from(tmp_path: Path) -> None:
    text = page(shown(tmp_path))
    title, source, table, training, provenance = text.rstrip("\n").split("\n\n")
    assert training.startswith("Training settings (")
    assert training.endswith("): network net; epochs 3; lr 0.1; precision 32.")
    assert title == "# A title"
    assert source == "A source. About it."
    assert table == "The table."
    assert "`rectifier reproduce made`" in provenance
    assert "3 seeds" in provenance
    assert "an abacus" in provenance
    assert "torch 2.0" in provenance
    assert "commit fedcba9" in provenance
    assert "split 01234567" in provenance
    assert "took 0.03 hours. All" in provenance  # six runs of 36 seconds, two at a time
    assert "[made.json](made.json)" in provenance
    assert "generated data" not in text


def test_a_page_says_that_the_checkout_had_uncommitted_changes(tmp_path: Path) -> None:
    result = shown(tmp_path)
    for record, commit in zip(result.all_records, ["0123456789+", *["0123456789"] * 5], strict=True):
        record["commit"] = commit
    assert "commit 0123456, 0123456+;" in page(result)


def test_intervals_are_explained_where_there_are_any(tmp_path: Path) -> None:
    result = shown(tmp_path)
    assert "±" not in page(result)
    with_interval = replace(result.experiment, show=lambda _: "38.3 ± 1.9")
    text = page(replace(result, experiment=with_interval))
    assert "half of the 95 % interval" in text
    assert "paired by seed" in text
    alone = replace(with_interval, cells=[replace(cell, against=None) for cell in with_interval.cells])
    assert "paired by seed" not in page(replace(result, experiment=alone))


def test_a_page_names_the_cells_that_have_other_settings(tmp_path: Path) -> None:
    places = [(row, column) for column in ("small", "large") for row in ("ce", "crl", "lmle")]
    result = made_result([Cell(*place) for place in places], 2, folder=tmp_path)
    for (row, column), by_seed in result.records.items():
        for record in by_seed.values():
            record["config"] = {
                "epochs": 200 if column == "small" else 60,
                "lr": 0.2 if (row, column) == ("ce", "large") else 0.1,
                "size": "8x8" if row != "ce" else None,
                **({"method.eta": 0.5 if column == "small" else 0.1} if row == "crl" else {}),
            }
    text = "size 8x8 (crl / lmle); epochs 200 (small), 60 (large); lr 0.1, 0.2 (ce large); precision 32; "
    assert listed_settings(result) == f"{text}eta 0.5 (crl small), 0.1 (crl large)"


def listed_settings(result: ExperimentResult) -> str:
    (line,) = [line for line in page(result).splitlines() if line.startswith("Training settings (")]
    return line.partition("): ")[2].removesuffix(".")


def test_cells_that_are_too_many_to_be_named_are_counted(tmp_path: Path) -> None:
    result = made_result([Cell(str(number)) for number in range(16)], 1, folder=tmp_path)
    for (row, _), by_seed in result.records.items():
        by_seed[0]["config"] = {"lr": 0.2 if int(row) < 7 else 0.1, "epochs": 3}
    assert listed_settings(result) == "epochs 3; lr 0.1, 0.2 (7 of 16); precision 32"


def test_what_trains_nothing_is_left_out(tmp_path: Path) -> None:
    result = made_result([Cell("ce"), Cell("hog-knn")], 1, folder=tmp_path)
    for (row, _), by_seed in result.records.items():
        by_seed[0] |= {"config": {"lr": 0.1, "network": row}, "parameters": 0 if row == "hog-knn" else 7}
    assert listed_settings(result) == "network ce; lr 0.1; precision 32"


@pytest.mark.parametrize(("optimizer", "text"), [("sgd", "momentum 0.9; "), ("adamw", "")])
def test_momentum_is_that_of_sgd(optimizer: str, text: str, tmp_path: Path) -> None:
    result = made_result([Cell("ce")], 1, folder=tmp_path)
    result.records["ce", ""][0]["config"] = {"optimizer": optimizer, "momentum": 0.9}
    assert listed_settings(result) == f"optimizer {optimizer}; {text}precision 32"


def test_another_number_of_seeds_is_part_of_the_command(tmp_path: Path) -> None:
    assert "`rectifier reproduce made --seeds 4`" in page(shown(tmp_path, 4))


def test_the_quick_version_says_that_it_says_nothing(tmp_path: Path) -> None:
    text = page(shown(tmp_path, 2), quick=True)
    assert "`rectifier reproduce made --quick`" in text
    assert "`rectifier reproduce made --quick --seeds 3`" in page(shown(tmp_path, 3), quick=True)
    assert "generated data" in text


def test_a_page_lists_what_validation_chose(tmp_path: Path) -> None:
    result = shown(tmp_path)
    cells = [replace(c, choose={"eta": (0.1, 0.5), "kappa": (5, 25)} if c.row == "crl" else {}) for c in CELLS]
    experiment = replace(result.experiment, cells=cells, recipe={"lr": (0.01, 0.1)})
    chosen = {("all", "small"): {"lr": 0.1}, ("crl", ""): {"eta": 0.5, "kappa": 5}}
    text = page(replace(result, experiment=experiment, chosen=chosen))
    (line,) = [line for line in text.splitlines() if line.startswith("Chosen on validation")]
    assert "all small: lr 0.1 (the largest of 0.01, 0.1)" in line  # one beyond the edge may be better
    assert "crl: eta 0.5 (the largest of 0.1, 0.5), kappa 5 (the smallest of 5, 25)" in line
    assert "hours, without candidates. All" in text


def test_a_page_lists_all_machines_and_numbers_of_seeds(tmp_path: Path) -> None:
    result = shown(tmp_path)
    records = {where: dict(runs) for where, runs in result.records.items()}
    del records["crl", ""][2]
    records["ce", ""][0] = {**records["ce", ""][0], "hardware": "a slide rule", "commit": None}
    text = page(replace(result, records=records))
    assert "2 to 3 seeds" in text
    assert "a slide rule, an abacus" in text
    assert "unknown" in text


def test_one_seed_is_a_seed(tmp_path: Path) -> None:
    text = page(shown(tmp_path, 1))
    assert "1 seed." in text
    assert "±" not in text


def test_a_page_names_unknown_times_and_runs_with_constant_logits(tmp_path: Path) -> None:
    result = shown(tmp_path)
    records = {where: dict(runs) for where, runs in result.records.items()}
    records["ce", ""][0] = {**records["ce", ""][0], "seconds": None, "blind": 2}
    text = page(replace(result, records=records))
    assert "at least 0.03 hours" in text  # five runs of 18 seconds
    assert "**Runs with constant logits, included in all means: ce, seed 0 (2 labels).**" in text
    assert "constant logits" not in page(result)


def test_a_page_without_runs_has_its_command_and_what_was_found(tmp_path: Path) -> None:
    assert page(shown(tmp_path, 0)).endswith(
        "\n\nCommand: `rectifier reproduce made`. Measurements: [made.json](made.json).\n"
    )


def test_a_page_enters_the_list(tmp_path: Path) -> None:
    result = shown(tmp_path)
    (tmp_path / "made.json").write_text(
        json.dumps(
            {
                "experiment": "made",
                "title": "A title",
                "runs": [{"key": "a", "config": {}, "seed": 0, "data": {}, "seconds": 9.0}] * 2,
            }
        )
    )
    page(result)
    assert listed(readme(tmp_path)) == [["made", "made.md", "A title", "", "2", "0.01"]]


def test_a_page_counts_earlier_runs_scored_with_other_settings(tmp_path: Path) -> None:
    result = replace(made_result(CELLS), folder=tmp_path)
    config = {"method": "lmle", "network": "mlp"}
    scored, unscored = {"config": config, "test": {}}, {"config": {**config, "method": "ce"}}
    assert "Earlier runs scored on test" not in write_page(result, quick=False).read_text()
    assert (
        "Earlier runs scored on test" not in write_page(replace(result, superseded=[unscored]), quick=False).read_text()
    )
    text = write_page(replace(result, superseded=[scored, unscored, scored]), quick=False).read_text()
    assert "Earlier runs scored on test with settings that were replaced: lmle on mlp (2 runs); `superseded`" in text


def test_a_page_omits_settings_without_a_value(tmp_path: Path) -> None:
    result = shown(tmp_path)
    for record in result.all_records:
        record |= {"config": {"network": "net", "size": None, "flip": False, "padding": 4}, "precision": "32-true"}
    (line,) = [line for line in page(result).splitlines() if line.startswith("Training settings")]
    assert "network net; padding 4" in line
    assert "None" not in line
    assert "False" not in line
