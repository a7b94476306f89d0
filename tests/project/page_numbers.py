"""Write the numbers of README.md, docs/*.md and results/README.md from the records in results/.

    python tests/project/page_numbers.py   # or: make numbers

A number in a sentence names its source in a comment right after it, which no reader of the page sees:

    CRL gains +0.2 ± 0.2<!--= gain("celeba", "CRL, class level", "DeepID2") --> points.

A table stands between ``<!-- table: NAME -->`` and ``<!-- /table -->``. Its text is in ``docs/tables.txt``, with an
expression in braces for each number. Expressions call the functions below. ``test_numbers.py`` fails when a page
differs from what this script writes, and when a page has an interval without a source.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from rectifier.labels.imbalance import loss_weight, power_law_profile
from rectifier.methods import METHODS
from rectifier.networks.registry import NETWORKS
from rectifier.report.comparison import difference, estimate
from rectifier.report.comparison.statistics import Difference, Estimate
from rectifier.reproduce import load_experiment, views

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), RESULTS / "README.md"]
TABLES = ROOT / "docs" / "tables.txt"
RULES = ("argmax", "prior", "tuned")
SHAPES = ("CelebA", "X-Domain", "CIFAR-100", "ImageNet-LT")
NUMBER = r"\*{0,2}[+-]?\d[\d.]*(?: ± \d[\d.]*)?\*{0,2}"
VALUE = re.compile(rf"(?P<low>{NUMBER} to )?(?:{NUMBER}|\?)<!--= (?P<source>.+?) -->")  # ? in a new sentence
TABLE = re.compile(r"<!-- table: (\S+) -->\n.*?<!-- /table -->", re.DOTALL)

Values = dict[str, float | None]  # by seed


def main() -> None:
    for page in PAGES:
        page.write_text(written(page.read_text()))


def written(text: str) -> str:
    """Return the text of a page with its tables and numbers as the records have them."""
    text = TABLE.sub(lambda found: f"<!-- table: {found[1]} -->\n{table(found[1])}\n<!-- /table -->", text)
    return VALUE.sub(_with_value, text)


def _with_value(found: re.Match[str]) -> str:
    value = evaluate(found["source"])
    before = "" if " to " in value else found["low"] or ""  # "from 1 to 2" may be two numbers
    return f"{before}{value}<!--= {found['source']} -->"


def table(name: str) -> str:
    _, *sections = re.split(r"^\[(\S+)\]\n", TABLES.read_text(), flags=re.MULTILINE)
    text = dict(zip(sections[::2], sections[1::2], strict=True))[name]
    return re.sub(r"\{(.+?)\}", lambda found: evaluate(found[1]), text.strip())


def evaluate(expression: str) -> str:
    try:
        return str(eval(expression, {function.__name__: function for function in VOCABULARY}))
    except Exception as error:
        raise ValueError(f"Expected {expression} to name a number in results/: {error}") from error


# Scores of experiments: percent of class-balanced accuracy on test, over seeds.


def score(experiment: str, row: str, column: str = "", rule: str = "preferred") -> str:
    """Return the mean over seeds with half of its 95 % interval."""
    return views.spread(estimate(_values(experiment, row, column, rule)))


def scores(experiment: str, row: str, column: str = "") -> str:
    """Return the scores by argmax, with the prior subtracted and with tuned offsets, as cells of a table."""
    return " | ".join(score(experiment, row, column, rule) for rule in RULES)


def mean(experiment: str, row: str, column: str = "", rule: str = "preferred") -> str:
    return f"{_mean(_values(experiment, row, column, rule).values()):.1f}"


def seeds(experiment: str, row: str, column: str = "") -> str:
    return str(len(_runs(experiment, row, column)))


def gain(experiment: str, row: str, over: str, column: str = "", rule: str = "preferred") -> str:
    """Return the difference paired by seed, with its sign; bold where its interval excludes 0."""
    return views.gain_text(_gain(experiment, row, over, column, rule))


def more(experiment: str, row: str, over: str, column: str = "", rule: str = "preferred") -> str:
    """Return a gain without a sign; the row must not be worse."""
    found = _gain(experiment, row, over, column, rule)
    if round(_points(found), 1) < 0:
        raise ValueError("The text says higher, but the records say the opposite.")
    return views.spread(found)


def less(experiment: str, row: str, over: str, column: str = "", rule: str = "preferred") -> str:
    """Return a loss without a sign; the row must not be better."""
    return more(experiment, over, row, column, rule)


def mean_gain(experiment: str, row: str, over: str, column: str = "", rule: str = "preferred", label: str = "") -> str:
    return _signed(_points(_gain(experiment, row, over, column, rule, label)))


def mean_gains(experiment: str, rows: Sequence[str], over: str, column: str = "", rule: str = "preferred") -> str:
    """Return the lowest and the highest mean gain of some rows."""
    return _range([_points(found) for found in _gain_of_each(experiment, rows, over, column, rule)], _signed)


def intervals(experiment: str, rows: Sequence[str], over: str, column: str = "", rule: str = "preferred") -> str:
    """Return the narrowest and the widest half interval of the gains of some rows."""
    found = _gain_of_each(experiment, rows, over, column, rule)
    return _range([100 * (one["half_width"] or 0.0) for one in found])


def apart(experiment: str, rows: Sequence[str], column: str = "", rule: str = "preferred") -> str:
    """Return how many points the best and the worst of some rows are apart."""
    found = [_mean(_values(experiment, row, column, rule).values()) for row in rows]
    return f"{max(found) - min(found):.1f}"


def between_rules(experiment: str, row: str, rule: str, other: str, column: str = "", digits: int = 0) -> str:
    """Return how many points one decision rule is above another."""
    ours, theirs = (_values(experiment, row, column, one) for one in (rule, other))
    return f"{_mean(ours.values()) - _mean(theirs.values()):.{digits}f}"


def validation(experiment: str, **settings: Any) -> str:
    """Return the mean score on validation of the candidates with these settings, under the rule it prefers."""
    record = _record(experiment)
    tried = [run for run in [*record["candidates"], *record["superseded"]] if "test" not in run]
    return f"{_mean(run['liking'] for run in tried if settings.items() <= run['config'].items()):.1f}"


def row_validation(experiment: str, row: str, column: str = "") -> str:
    """Return the mean score of a row on validation, under the rule that validation prefers."""
    return f"{_mean(run['liking'] for run in _runs(experiment, row, column).values()):.1f}"


def validation_gap(experiment: str, row: str, below: str, column: str = "") -> str:
    """Return how many points one row is below another on validation."""
    ours, theirs = (_mean(run["liking"] for run in _runs(experiment, name, column).values()) for name in (row, below))
    return f"{theirs - ours:.1f}"


def constant_seeds(experiment: str, row: str, labels: int) -> str:
    """Return how many seeds end with the same logits for every image, in all labels."""
    return str(sum(run["blind"] == labels for run in _runs(experiment, row, "").values()))


def times_as_long(experiment: str, row: str, than: str, column: str = "", digits: int = 1) -> str:
    """Return the shortest and the longest time of a run, over that of another row with the same seed."""
    ours, theirs = (_runs(experiment, one, column) for one in (row, than))
    ratios = [ours[seed]["seconds"] / theirs[seed]["seconds"] for seed in ours if seed in theirs]
    return " to ".join(f"{ratio:.{digits}f}" for ratio in ([min(ratios), max(ratios)] if len(ratios) > 1 else ratios))


# What the paper reports, and what follows from its equations.


def paper(experiment: str, row: str, column: str = "") -> str:
    return views.paper_text(round(_paper(experiment, row, column), 1))


def paper_gain(experiment: str, row: str, over: str, column: str = "") -> str:
    return views.paper_gain_text(_paper(experiment, row, column) - _paper(experiment, over, column))


def weight_taken(eta: float) -> str:
    """Return the percentage that CRL takes from cross-entropy on CIFAR-100 imb(1)."""
    return f"{100 * float(loss_weight(power_law_profile(100, 500, 25), eta)):.0f}"


def weight_left(eta: float) -> str:
    return str(100 - int(weight_taken(eta)))


# Measurements of benchmarks.


def ratio(benchmark: str, above: str, below: str, digits: int = 2) -> str:
    """Return one measured value over another; paths have slashes between their keys."""
    return f"{_value(benchmark, above) / _value(benchmark, below):.{digits}f}"


def ratios(benchmark: str, *pairs: tuple[str, str], digits: int = 2) -> str:
    """Return several ratios with commas between them."""
    return ", ".join(ratio(benchmark, *pair, digits) for pair in pairs)


def measured(benchmark: str, *paths: str, digits: int = 0) -> str:
    """Return measured values with commas between them."""
    return ", ".join(f"{_value(benchmark, path):,.{digits}f}" for path in paths)


def method_steps(benchmark: str) -> str:
    """Return the rows of a table: the time of a step of each method over that of cross-entropy."""
    by_network = _record(benchmark)["steps"]
    times = {network: {name: one / own["ce"] for name, one in own.items()} for network, own in by_network.items()}
    deepid2, resnet32 = times["deepid2"], {name: f"{one:.2f}" for name, one in times["resnet32"].items()}
    methods = sorted(deepid2, key=lambda name: deepid2[name])
    return "\n".join(f"| `{name}` | {resnet32.get(name, '')} | {deepid2[name]:.2f} |" for name in methods)


def loss_ratios(benchmark: str, candidate: str, level: str = "class") -> str:
    """Return the time of a candidate over ours for the four shapes."""
    return ", ".join(_two_digits(one) for one in _losses(benchmark, candidate, level, "ratio"))


def loss_cells(benchmark: str, *candidates: str, level: str = "class", what: str = "ratio") -> str:
    """Return a measured value of one or more candidates for the four shapes, as cells of a table."""
    by_candidate = [_losses(benchmark, candidate, level, what) for candidate in candidates]
    return " | ".join(", ".join(map(_two_digits, values)) for values in zip(*by_candidate, strict=True))


def loss_range(benchmark: str, candidate: str) -> str:
    """Return the smallest and the largest ratio to ours, over all designs and the four shapes."""
    rows = [row for row in _record(benchmark)["rows"] if row["candidate"] == candidate]
    found = [row["ratio"] for row in rows if row["shape"].startswith(SHAPES)]
    return f"{min(found):.2f} to {max(found):.2f}"


def _losses(benchmark: str, candidate: str, level: str, what: str) -> list[float]:
    wanted = {"candidate": candidate, "level": level, "comparison": "relative"}
    rows = [row for row in _record(benchmark)["rows"] if wanted.items() <= row.items()]
    return [next(row[what] for row in rows if row["shape"].startswith(shape)) for shape in SHAPES]


def loss_ratio(benchmark: str, candidate: str, shape: str) -> str:
    rows = [row for row in _record(benchmark)["rows"] if row["candidate"] == candidate and row["level"] == "class"]
    return _two_digits(next(row["ratio"] for row in rows if row["shape"].startswith(shape)))


def head_gain(dataset: str, head: str, row: str) -> str:
    """Return the gain of a method on cached features over cross-entropy with the same head, paired by seed."""
    rows = _record("heads_cpu")["scores"][dataset][head]
    ours, theirs = ({seed: one["balanced"] for seed, one in rows[name].items()} for name in (row, "ce"))
    return views.gain_text(difference(ours, theirs))


def many_classes(benchmark: str) -> str:
    return " and ".join(f"{row['ratio']:.2f}" for row in _record(benchmark)["many_classes"])


# What there is to choose from.


def how_many(kind: str) -> str:
    return str(len({"methods": METHODS, "networks": NETWORKS}[kind]))


# Tables on pages of results/.


def cell(page: str, number: int, row: str, column: str) -> str:
    """Return a cell of the table with this number, from 0, on a page of results/."""
    tables = re.findall(r"(?:^\|.*\|\n)+", (RESULTS / f"{page}.md").read_text(), re.MULTILINE)
    heads, _, *rows = [[text.strip() for text in line.strip("|").split("|")] for line in tables[number].splitlines()]
    return next(texts[heads.index(column)] for texts in rows if texts[0] == row)


def cells(page: str, number: int, row: str) -> str:
    """Return the cells of a row under each decision rule."""
    return " | ".join(cell(page, number, row, rule) for rule in RULES)


VOCABULARY: list[Callable[..., str]] = [
    score, scores, mean, seeds, gain, more, less, mean_gain, mean_gains, intervals, apart, between_rules,
    validation, row_validation, validation_gap, constant_seeds, times_as_long, paper, paper_gain, weight_taken,
    weight_left, ratio, ratios, measured, method_steps, loss_ratios, loss_ratio, loss_cells, loss_range, how_many,
    many_classes, head_gain,
    cell, cells,
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


def _place(row: str, column: str) -> tuple[str, str]:
    """Return row and column of a name, which is ROW or ROW @ COLUMN."""
    name, _, other = row.partition(" @ ")
    return name, other or column


def _runs(experiment: str, row: str, column: str) -> dict[int, Any]:
    """Return the runs of a cell by seed. "superseded: ROW" means runs with settings that have been replaced."""
    name, column = _place(row.removeprefix("superseded: "), column)
    runs = _record(experiment)["superseded" if row.startswith("superseded: ") else "runs"]
    found = [run for run in runs if (run.get("row"), run.get("column")) == (name, column)]
    by_seed = {run["seed"]: run for run in found}
    if not found or len(by_seed) < len(found):
        raise ValueError(f"{experiment} has {len(found)} runs with {len(by_seed)} seeds in {name!r}, {column!r}.")
    return by_seed


def _values(experiment: str, row: str, column: str, rule: str, label: str = "") -> Values:
    found: Values = {}
    for seed, run in _runs(experiment, row, column).items():
        scored = run["test"][run["preferred_rule"] if rule == "preferred" else rule]
        found[str(seed)] = scored["labels"][label] if label else scored["class_balanced_accuracy"]
    return found


def _gain_of_each(experiment: str, rows: Sequence[str], over: str, column: str, rule: str) -> list[Difference]:
    """Return the gains of some rows. ``over`` may be " @ COLUMN": the same row in another column."""
    bases = [_place(row, column)[0] + over if over.startswith(" @ ") else over for row in rows]
    return [_gain(experiment, row, base, column, rule) for row, base in zip(rows, bases, strict=True)]


def _gain(experiment: str, row: str, over: str, column: str, rule: str, label: str = "") -> Difference:
    """Return the difference paired by seed. ``over`` is in the column of ``row``, unless it names its own."""
    column = _place(row, column)[1]
    one, other = (_runs(experiment, name, column) for name in (row, over))
    if any(one[seed]["data"]["fingerprint"] != other[seed]["data"]["fingerprint"] for seed in one if seed in other):
        raise ValueError(f"{row} and {over} are of different data.")
    ours, theirs = (_values(experiment, name, column, rule, label) for name in (row, over))
    return difference(ours, theirs)


def _paper(experiment: str, row: str, column: str) -> float:
    value = load_experiment(experiment, ROOT / "experiments").cell(row, column).paper_of()
    if value is None:
        raise ValueError(f"the paper has no {row!r}, {column!r}.")
    return value


# Texts.


def _mean(values: Iterable[float | None]) -> float:
    """Return the mean of fractions in percent."""
    return _points(estimate({str(position): value for position, value in enumerate(values)}))


def _points(found: Estimate) -> float:
    if found["mean"] is None:
        raise ValueError("no seed has a value.")
    return 100 * found["mean"]


def _range(values: Sequence[float], text: Callable[[float], str] = "{:.1f}".format) -> str:
    return f"{text(min(values))} to {text(max(values))}"


def _signed(value: float) -> str:
    return f"{round(value, 1) + 0.0:+.1f}"


def _two_digits(value: float) -> str:
    return f"{value:.2f}" if value < 1 else f"{value:.1f}" if value < 10 else f"{value:.0f}"


if __name__ == "__main__":
    main()
