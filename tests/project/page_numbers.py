"""Write the numbers of README.md and docs/*.md from the records in results/.

    python tests/project/page_numbers.py   # or: make numbers

A number in a sentence names its source in a comment that no reader of the page sees:

    CRL gains <!--= gain("celeba", "CRL, class level", "DeepID2") -->+0.2 ± 0.2<!--/--> points.

A table stands between ``<!-- table: NAME -->`` and ``<!-- /table -->``. Its text is in ``docs/tables.txt``, with an expression in
braces for each number. Expressions call the functions below. ``tests/project/test_numbers.py`` fails when a page differs from
what this script writes, and when a page has an interval without a source.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from scipy.stats import t as student_t

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TABLES = ROOT / "docs" / "tables.txt"
RULES = ("argmax", "prior", "tuned")
VALUE = re.compile(r"<!--= (.+?) -->.*?<!--/-->")
TABLE = re.compile(r"<!-- table: (\S+) -->\n.*?<!-- /table -->", re.DOTALL)

Values = dict[int, float]


def main() -> None:
    for page in PAGES:
        text = page.read_text()
        if (new := written(text)) != text:
            page.write_text(new)
            print(page.relative_to(ROOT))


def written(text: str) -> str:
    """Return the text of a page with its tables and numbers as the records have them."""
    if at := re.search(r"^[\s\->*\d.]*<!--=.*", text, re.MULTILINE):
        raise ValueError(f"A comment at the start of a line ends the paragraph. Put a word before it: {at[0]!r}")
    text = TABLE.sub(lambda found: f"<!-- table: {found[1]} -->\n{table(found[1])}\n<!-- /table -->", text)
    return VALUE.sub(lambda found: f"<!--= {found[1]} -->{evaluate(found[1])}<!--/-->", text)


def table(name: str) -> str:
    sections = re.split(r"^\[(\S+)\]\n", TABLES.read_text(), flags=re.MULTILINE)
    return re.sub(r"\{(.+?)\}", lambda found: evaluate(found[1]), dict(zip(sections[1::2], sections[2::2]))[name].strip())


def evaluate(expression: str) -> str:
    try:
        return str(eval(expression, {function.__name__: function for function in VOCABULARY}))
    except Exception as error:
        raise ValueError(f"Expected {expression} to name a number in results/: {error}") from error


# Scores of experiments: percent of class-balanced accuracy on test, over seeds.


def score(experiment: str, row: str, column: str = "", rule: str = "preferred") -> str:
    """Return the mean over seeds with half of its 95 % interval."""
    return _text(list(_values(experiment, row, column, rule).values()))


def scores(experiment: str, row: str, column: str = "") -> str:
    """Return the scores by argmax, with the prior subtracted and with tuned offsets, as cells of a table."""
    return " | ".join(score(experiment, row, column, rule) for rule in RULES)


def mean(experiment: str, row: str, column: str = "", rule: str = "preferred") -> str:
    return f"{fmean(_values(experiment, row, column, rule).values()):.1f}"


def gain(experiment: str, row: str, over: str, column: str = "", rule: str = "preferred") -> str:
    """Return the difference paired by seed, with its sign; bold where its interval excludes 0."""
    return _text(_gains(experiment, row, over, column, rule), sign="+", bold=True)


def more(experiment: str, row: str, over: str, column: str = "", rule: str = "preferred") -> str:
    """Return a gain without a sign; the row must not be worse."""
    return _one_way(_gains(experiment, row, over, column, rule), "higher")


def less(experiment: str, row: str, over: str, column: str = "", rule: str = "preferred") -> str:
    """Return a loss without a sign; the row must not be better."""
    return _one_way([-value for value in _gains(experiment, row, over, column, rule)], "lower")


def mean_gain(experiment: str, row: str, over: str, column: str = "", rule: str = "preferred", label: str = "") -> str:
    return _signed(fmean(_gains(experiment, row, over, column, rule, label)))


def mean_gains(experiment: str, rows: Sequence[str], over: str, column: str = "", rule: str = "preferred") -> str:
    """Return the lowest and the highest mean gain of some rows."""
    means = [fmean(_gains(experiment, row, over, column, rule)) for row in rows]
    return f"{_signed(min(means))} to {_signed(max(means))}"


def intervals(experiment: str, rows: Sequence[str], over: str, column: str = "", rule: str = "preferred") -> str:
    """Return the narrowest and the widest half interval of the gains of some rows."""
    halves = [_half(_gains(experiment, row, over, column, rule)) for row in rows]
    return f"{min(halves):.1f} to {max(halves):.1f}"


def means(experiment: str, rows: Sequence[str], column: str = "", rule: str = "preferred") -> str:
    """Return the lowest and the highest mean score of some rows."""
    found = [fmean(_values(experiment, row, column, rule).values()) for row in rows]
    return f"{min(found):.1f} to {max(found):.1f}"


def between_rules(experiment: str, row: str, rule: str, other: str, column: str = "", digits: int = 0) -> str:
    """Return how many points one decision rule is above another."""
    ours, theirs = (_values(experiment, row, column, one) for one in (rule, other))
    return f"{fmean(ours.values()) - fmean(theirs.values()):.{digits}f}"


def validation(experiment: str, **settings: Any) -> str:
    """Return the mean score on validation of the candidates with these settings, under the rule it prefers."""
    record = _record(experiment)
    tried = [run for run in [*record["candidates"], *record["superseded"]] if "test" not in run]
    return f"{100 * fmean(run['liking'] for run in tried if settings.items() <= run['config'].items()):.1f}"


def row_validation(experiment: str, row: str, column: str = "") -> str:
    """Return the mean score of a row on validation, under the rule that validation prefers."""
    return f"{100 * fmean(run['liking'] for run in _runs(experiment, row, column).values()):.1f}"


def constant_seeds(experiment: str, row: str, labels: int) -> str:
    """Return how many seeds end with the same logits for every image, in all labels."""
    return str(sum(run["blind"] == labels for run in _runs(experiment, row, "").values()))


def times_as_long(experiment: str, row: str, than: str, column: str = "") -> str:
    """Return the shortest and the longest time of a run, over that of another row with the same seed."""
    ours, theirs = (_runs(experiment, one, column) for one in (row, than))
    ratios = [ours[seed]["seconds"] / theirs[seed]["seconds"] for seed in ours if seed in theirs]
    return f"{min(ratios):.1f} to {max(ratios):.1f}" if len(ratios) > 1 else f"{ratios[0]:.1f}"


# Measurements of benchmarks.


def ratio(benchmark: str, above: str, below: str, digits: int = 2) -> str:
    """Return one measured value over another; paths have slashes between their keys."""
    return f"{_value(benchmark, above) / _value(benchmark, below):.{digits}f}"


def loss_ratios(benchmark: str, candidate: str, level: str = "class") -> str:
    """Return the time of a candidate over ours on CelebA, X-Domain, CIFAR-100 and ImageNet-LT, in this order."""
    wanted = {"candidate": candidate, "level": level, "comparison": "relative"}
    rows = [row for row in _record(benchmark)["rows"] if wanted.items() <= row.items()]
    by_shape = {row["shape"].split(" ")[0]: row["ratio"] for row in rows}
    return ", ".join(_two_digits(by_shape[shape]) for shape in ("CelebA", "X-Domain", "CIFAR-100", "ImageNet-LT"))


def loss_ratio(benchmark: str, candidate: str, shape: str) -> str:
    rows = [row for row in _record(benchmark)["rows"] if row["candidate"] == candidate and row["level"] == "class"]
    return _two_digits(next(row["ratio"] for row in rows if row["shape"].startswith(shape)))


# Tables that `rectifier compare` wrote.


def compared(page: str, caption: str, *cells: str) -> str:
    """Return a cell of a Markdown table: of the first table below a caption, by its row and column."""
    text = (RESULTS / f"{page}.md").read_text().split(caption, 1)[1]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\|.*\|$", text, re.MULTILINE)]
    *row, column = cells
    at = lines[0].index(column)
    return next(line[at] for line in lines[2:] if line[: len(row)] == row)


VOCABULARY: list[Callable[..., str]] = [
    score, scores, mean, gain, more, less, mean_gain, mean_gains, intervals, means, between_rules, validation,
    row_validation, constant_seeds, times_as_long, ratio, loss_ratios, loss_ratio, compared,
]  # fmt: skip


# Records.


@cache
def _record(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


def _value(name: str, path: str) -> float:
    value = _record(name)
    for key in path.split("/"):
        value = value[int(key)] if isinstance(value, list) else value[key]
    return float(value)


def _runs(experiment: str, row: str, column: str) -> dict[int, Any]:
    """Return runs by seed. "superseded: ROW" names runs of settings that have been replaced."""
    old = row.startswith("superseded: ")
    wanted = (row.removeprefix("superseded: "), column)
    runs = _record(experiment)["superseded" if old else "runs"]
    found = [run for run in runs if (run.get("row"), run.get("column")) == wanted and "test" in run]
    by_seed = {run["seed"]: run for run in found}
    if not found or len(by_seed) < len(found):
        raise ValueError(f"{experiment} has {len(found)} runs of {len(by_seed)} seeds in {wanted}.")
    return by_seed


def _values(experiment: str, row: str, column: str, rule: str, label: str = "") -> Values:
    found = {}
    for seed, run in _runs(experiment, row, column).items():
        scored = run["test"][run["preferred_rule"] if rule == "preferred" else rule]
        found[seed] = 100 * (scored["labels"][label] if label else scored["class_balanced_accuracy"])
    return found


def _gains(experiment: str, row: str, over: str, column: str, rule: str, label: str = "") -> list[float]:
    one, other = (_runs(experiment, name, column) for name in (row, over))
    if any(one[seed]["data"]["fingerprint"] != other[seed]["data"]["fingerprint"] for seed in one if seed in other):
        raise ValueError(f"{row} and {over} are of different data.")
    ours, theirs = (_values(experiment, name, column, rule, label) for name in (row, over))
    return [ours[seed] - theirs[seed] for seed in ours if seed in theirs]


# Texts.


def _half(values: Sequence[float]) -> float:
    return float(student_t.ppf(0.975, len(values) - 1)) * stdev(values) / math.sqrt(len(values))


def _text(values: Sequence[float], sign: str = "", bold: bool = False) -> str:
    middle, half = fmean(values), _half(values)
    excludes_zero = bold and abs(middle) > half > 1e-7
    digits = _digits(abs(middle), half) if excludes_zero else 1
    text = f"{round(middle, digits) + 0.0:{sign}.{digits}f} ± {half:.{digits}f}"
    return f"**{text}**" if excludes_zero else text


def _digits(middle: float, half: float) -> int:
    """Return as many digits as show that an interval excludes 0."""
    return next((digits for digits in (1, 2) if round(middle, digits) > round(half, digits)), 3)


def _one_way(values: Sequence[float], way: str) -> str:
    if round(fmean(values), 1) < 0:
        raise ValueError(f"The text says {way}, but the records say the opposite.")
    return _text(values, bold=True)


def _signed(value: float) -> str:
    return f"{round(value, 1) + 0.0:+.1f}"


def _two_digits(value: float) -> str:
    return f"{value:.2f}" if value < 1 else f"{value:.1f}" if value < 10 else f"{value:.0f}"


if __name__ == "__main__":
    main()
