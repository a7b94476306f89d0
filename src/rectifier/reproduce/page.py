"""The pages of results: one for each experiment, and a table of all of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from rectifier._base import check
from rectifier._base import files as atomic
from rectifier.reproduce.experiment import Where, place_name
from rectifier.reproduce.records import Record, read_results
from rectifier.reproduce.result import ExperimentResult
from rectifier.reproduce.store import OTHER_DATA, TRAINED_ANEW

BEGIN, END = "<!-- experiments: begin -->", "<!-- experiments: end -->"


def write_page(result: ExperimentResult, quick: bool, experiments: Path | None = None) -> Path:
    """Write what an experiment gave as Markdown, and enter it into the folder's list.

    ``experiments`` is the folder of the experiment, where it has to be named.
    """
    result.folder.mkdir(parents=True, exist_ok=True)
    experiment = result.experiment
    command = f"rectifier reproduce {result.name}{' --quick' * quick}{_seeds_option(result, quick)}"
    command += f" --experiments {experiments}" if experiments else ""
    parts = [f"# {experiment.title}", f"{experiment.source}. {experiment.about}"]
    if quick:
        parts.append(
            "**A small version on generated data, with one small network in the place of all: it shows that the"
            " experiment runs, and says nothing else.**"
        )
    measured = experiment.measure is None or result.found
    shown = experiment.show(result).strip() if measured else "Nothing is measured yet."
    parts.append(shown)
    parts += [experiment.finding] if experiment.finding and result.records and not quick else []
    parts += [*_remarks(result), *_choices(result), *_looks_before(result), *_training(result)]
    parts.append(_provenance(result, command, shown))
    path = result.folder / f"{result.name}.md"
    atomic.write_bytes(path, ("\n\n".join(parts) + "\n").encode())
    gather(result.folder)
    return path


def _seeds_option(result: ExperimentResult, quick: bool) -> str:
    """Return the option that gives as many seeds as there are, where the experiment asks for another number."""
    by_cell = Counter((row, column) for row, column, _ in result.diverged)
    by_cell.update({where: len(by_seed) for where, by_seed in result.records.items()})
    there = max(by_cell.values(), default=0)
    return f" --seeds {there}" if there not in (0, result.experiment.seeds_of(quick)) else ""


_INTERVALS = "± is half of the 95 % interval over them, and speaks of new seeds, not of other images"
_DIFFERENCES = (
    "differences are paired by seed, and bold where their interval excludes 0, as one in twenty does by chance alone"
)


def _training(result: ExperimentResult) -> list[str]:
    """Say how runs were trained: what most have, and who has anything else."""
    firsts = {where: next(iter(by_seed.values())) for where, by_seed in result.records.items() if by_seed}
    trained = {where: _settings(record) for where, record in firsts.items() if record["parameters"]}
    names = dict.fromkeys(name for one in trained.values() for name in one)
    told = [_setting(name, {where: one.get(name) for where, one in trained.items()}) for name in names]
    if not any(told):
        return []
    brackets = "brackets name the rows or columns that have a value; one without brackets is that of all others"
    return [f"How runs were trained ({brackets}): {'; '.join(filter(None, told))}."]


def _settings(record: Record) -> dict[str, Any]:
    """Return what a page tells of how a run was trained."""
    config = record["config"]
    told = {name: config.get(name) for name in _TOLD}
    told |= {name: words for name, words in _BY_DEFAULT.items() if name in config and config[name] is None}
    if told["optimizer"] != "sgd":
        told["momentum"] = None
    return {**told, "precision": record["precision"], **{k: v for k, v in config.items() if k.startswith("method.")}}


def _setting(name: str, values: Mapping[Where, Any]) -> str:
    """Name a setting's values: that of most cells if all have one, then others with their cells.

    >>> _setting("lr", {("ce", "a"): 0.1, ("crl", "a"): 0.1, ("ce", "b"): 0.2, ("crl", "b"): 0.2, ("lmle", "a"): 0.1})
    'lr 0.1, 0.2 (b)'
    >>> _setting("method.eta", {("ce", "a"): None, ("crl", "a"): 0.5, ("crl", "b"): 0.5})
    'eta 0.5 (crl)'
    """
    cells: dict[str, list[Where]] = {}
    for where, value in values.items():
        is_set = value is not None and value is not False and value != {}
        cells.setdefault(str(value) if is_set else "", []).append(where)
    most = [value for value, those in cells.items() if "" not in cells and 2 * len(those) > len(values)]
    others = {value: _places(those, values) for value, those in cells.items() if value not in ("", *most)}
    told = [*most, *(f"{value} ({' / '.join(names)})" for value, names in others.items())]
    return f"{name.removeprefix('method.')} {_listed(told)}" if told else ""


def _places(some: Sequence[Where], every: Collection[Where]) -> list[str]:
    """Name cells, and columns and rows that are all among them by one name."""
    names, rest = [], list(some)
    for part in (1, 0):
        for name in dict.fromkeys(where[part] for where in some):
            line = [where for where in every if where[part] == name]
            if name and len(line) > 1 and all(where in rest for where in line):
                names.append(name)
                rest = [where for where in rest if where not in line]
    one_column = len({column for _, column in every}) == 1
    names += [row if one_column and row else place_name((row, column)) for row, column in rest]
    return names if len(names) <= _MOST_NAMES else [f"{len(some)} of {len(every)}"]


_MOST_NAMES = 6
_TOLD = (
    *("data", "size", "network", "network.dropout", "epochs", "batch_size"),
    *("optimizer", "lr", "momentum", "weight_decay", "schedule", "warmup", "padding", "flip", "select"),
)
_BY_DEFAULT = {"padding": "an eighth of a side", "flip": "where labels bear it"}


def _remarks(result: ExperimentResult) -> list[str]:
    """Name the runs that diverged, and those whose networks have stopped looking at their images, for some labels.

    And count those that have come since the last measurement beside scores, which needs all runs, and those of which
    another training was measured than the one that is scored.
    """
    blind = [
        f"{place_name(where)}, seed {seed} ({check.amount(record['blind'], 'label')})"
        for where, by_seed in result.records.items()
        for seed, record in by_seed.items()
        if record.get("blind")
    ]
    diverged = [f"{place_name(where)}, seed {seed}" for *where, seed in result.diverged]
    keys = {record["key"] for record in result.all_records} if result.found else set()
    unmeasured, apart = len(keys.difference(result.measured_in)), len(keys.intersection(result.measured_apart))
    told = {
        "Logits that are the same for every image": blind,  # they are in the means
        "Diverged, and in no mean": diverged,
        "Runs that are in the scores alone, and not in what is measured beside them": (
            [str(unmeasured)] if unmeasured else []
        ),
        "Measured beside scores in a second training, which is not, or not known to be, the one that is scored": (
            [f"{apart} of {len(keys)} runs"] if apart else []
        ),
    }
    return [f"**{words}: {'; '.join(runs)}.**" for words, runs in told.items() if runs]


def _choices(result: ExperimentResult) -> list[str]:
    if not result.chosen:
        return []
    told = []
    for where, chosen in result.chosen.items():
        grid = result.grid(where)
        texts = [f"{key} {value} ({_tried(grid[key], value)})" for key, value in chosen.items()]
        told.append(f"{place_name(where)}: {', '.join(texts)}")
    return [f"Chosen on validation, by runs of other seeds: {'; '.join(told)}."]


def _tried(values: Sequence[Any], chosen: Any) -> str:
    """Say what a value was chosen from, and whether it lies at the edge of that: one beyond it may be better.

    >>> _tried([0.1, 0.5, 1.0], 1.0)
    'the largest of 0.1, 0.5, 1.0'
    """
    listed = f"of {_listed([str(one) for one in values])}"
    if len(values) < 2 or not all(check.is_real(one) for one in values):
        return listed
    edges = {min(values): "the smallest ", max(values): "the largest "}
    return f"{edges.get(chosen, '')}{listed}"


def _looks_before(result: ExperimentResult) -> list[str]:
    """Say which runs were scored on test before, and why they count no longer: test has been seen then."""
    reasons = {
        None: "with settings that have been replaced",
        TRAINED_ANEW: "and trained anew since",
        OTHER_DATA: "of other data than what was here when they were trained anew",
    }
    scored = [one for one in result.superseded if "test" in one]
    told = []
    for reason, words in reasons.items():
        configs = [one["config"] for one in scored if one.get("replaced") == reason]
        runs = Counter(f"{one['method']} on {one['network']}" for one in configs)
        named = _listed([f"{name} ({check.amount(number, 'run')})" for name, number in runs.items()])
        told += [f"Scored on test before, {words}: {named}, `superseded` in the file."] if runs else []
    return told


def _provenance(result: ExperimentResult, command: str, shown: str) -> str:
    """Say where the numbers come from: command, seeds, hardware, commit."""
    records = result.all_records
    if not records:
        return f"`{command}`; what was found: [{result.name}.json]({result.name}.json)."
    seeds = {len(by_seed) for by_seed in result.records.values()}
    how_many = check.amount(min(seeds), "seed") if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)} seeds"
    intervals = f", {_INTERVALS}" if "±" in shown else ""
    if intervals and any(cell.against for cell in result.experiment.cells):
        intervals += f"; {_DIFFERENCES}"
    commits = _listed(sorted({_short(record["commit"] or "unknown") for record in records}))
    return (
        f"`{command}`; {how_many}{intervals};"
        f" {_listed(sorted({record['hardware'] for record in records}))},"
        f" torch {_listed(sorted({record['versions']['torch'] for record in records}))}, commit {commits};"
        f" split {_listed(sorted({record['data']['split_hash'][:8] for record in records}))};"
        f" {_hours(records)} hours of training{', without that of other choices' if result.chosen else ''}"
        f"{_untimed(records)}."
        f" Every run: [{result.name}.json]({result.name}.json)."
    )


def _short(commit: str) -> str:
    """Return the beginning of a commit, and the mark that its checkout had been changed."""
    return commit[:7] + "+" * commit.endswith("+")


def _hours(records: Sequence[Record]) -> str:
    """Return the time of all trainings; one that was killed did not note its own."""
    times = [record.get("seconds") for record in records]
    return f"{'at least ' * (None in times)}{sum(time or 0 for time in times) / 3600:.2f}"


def _untimed(records: Sequence[Record]) -> str:
    number = sum(record.get("seconds") is None for record in records)
    return f" ({check.amount(number, 'run')} went on after a kill, with times that are not known)" if number else ""


def _listed(values: Sequence[str]) -> str:
    return ", ".join(values)


def gather(folder: Path) -> None:
    """Enter every experiment of a folder into the list of its README, between two marks."""
    rows = [
        "| experiment | what it shows | best on validation of what is compared, and its gain on test | runs | hours |",
        "|---|---|---|---:|---:|",
    ]
    for path in sorted(folder.glob("*.json")):
        if content := read_results(path):
            name, title, gained = content["experiment"], content.get("title", ""), content.get("headline", "")
            runs = [*content["runs"], *content["candidates"]]
            rows.append(f"| [{name}]({name}.md) | {title} | {gained} | {len(runs)} | {_hours(runs)} |")
    listed = "\n".join([BEGIN, *rows, END])
    readme = folder / "README.md"
    text = readme.read_text(encoding="utf-8") if readme.is_file() else f"# Results\n\n{BEGIN}{END}\n"
    if BEGIN in text and END not in text.partition(BEGIN)[2]:
        check.fail(str(readme), f"with {END} behind {BEGIN}", "the first mark alone, or behind the other")
    if BEGIN not in text:
        text += f"\n## Experiments\n\n{BEGIN}{END}\n"
    changed = re.sub(f"{BEGIN}.*?{END}", lambda _: listed, text, flags=re.DOTALL)
    atomic.write_bytes(readme, changed.encode())
