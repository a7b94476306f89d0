"""The pages of results: one for each experiment, and a list of all of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from rectifier._base import check
from rectifier._base import files as atomic
from rectifier.reproduce.experiment import Where, place_name
from rectifier.reproduce.record_store import OTHER_DATA, RETRAINED
from rectifier.reproduce.records import Record, read_results
from rectifier.reproduce.result import ExperimentResult

BEGIN, END = "<!-- experiments: begin -->", "<!-- experiments: end -->"


def write_page(result: ExperimentResult, quick: bool, experiments: Path | None = None) -> Path:
    """Write the page of an experiment as Markdown, and update the list of all experiments.

    ``experiments`` is the folder of the experiment, if it is not the default.
    """
    result.folder.mkdir(parents=True, exist_ok=True)
    experiment = result.experiment
    command = f"rectifier reproduce {result.name}{' --quick' * quick}{_seeds_option(result, quick)}"
    command += f" --experiments {experiments}" if experiments else ""
    parts = [f"# {experiment.title}", f"{experiment.source}. {experiment.about}"]
    if quick:
        parts.append(
            "**This is a small version on generated data with one small network. It shows that the experiment runs, and"
            " nothing else.**"
        )
    measured = experiment.measure is None or result.found
    shown = experiment.show(result).strip() if measured else "Nothing is measured yet."
    parts.append(shown)
    parts += [experiment.finding] if experiment.finding and result.records and not quick else []
    parts += [*_remarks(result), *_choices(result), *_looks_before(result), *_training(result)]
    parts.append(_provenance(result, command, shown))
    path = result.folder / f"{result.name}.md"
    atomic.write_bytes(path, ("\n\n".join(parts) + "\n").encode())
    update_list(result.folder)
    return path


def _seeds_option(result: ExperimentResult, quick: bool) -> str:
    """Return the option for the recorded number of seeds, if the experiment asks for another number."""
    by_cell = Counter((row, column) for row, column, _ in result.diverged)
    by_cell.update({where: len(by_seed) for where, by_seed in result.records.items()})
    there = max(by_cell.values(), default=0)
    return f" --seeds {there}" if there not in (0, result.experiment.seeds_of(quick)) else ""


_INTERVALS = " ± is half of the 95 % interval over seeds: it covers new seeds, not new images."
_DIFFERENCES = " Differences are paired by seed and bold if their interval excludes 0: one in twenty does by chance."


def _training(result: ExperimentResult) -> list[str]:
    """Describe the training settings: the value of most cells, and which cells have another."""
    firsts = {where: next(iter(by_seed.values())) for where, by_seed in result.records.items() if by_seed}
    trained = {where: _settings(record) for where, record in firsts.items() if record["parameters"]}
    names = dict.fromkeys(name for one in trained.values() for name in one)
    settings = [_setting(name, {where: one.get(name) for where, one in trained.items()}) for name in names]
    if not any(settings):
        return []
    brackets = "brackets name the rows or columns with a value; a value without brackets holds for all others"
    return [f"Training settings ({brackets}): {'; '.join(filter(None, settings))}."]


def _settings(record: Record) -> dict[str, Any]:
    """Return the training settings that a page lists."""
    config = record["config"]
    listed = {name: config.get(name) for name in _LISTED}
    listed |= {name: words for name, words in _BY_DEFAULT.items() if name in config and config[name] is None}
    if listed["optimizer"] != "sgd":
        listed["momentum"] = None
    return {**listed, "precision": record["precision"], **{k: v for k, v in config.items() if k.startswith("method.")}}


def _setting(name: str, values: Mapping[Where, Any]) -> str:
    """List a setting's values: that of most cells, if every cell has one, then others with their cells.

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
    texts = [*most, *(f"{value} ({' / '.join(names)})" for value, names in others.items())]
    return f"{name.removeprefix('method.')} {', '.join(texts)}" if texts else ""


def _places(some: Sequence[Where], every: Collection[Where]) -> list[str]:
    """Name cells; a row or column that is complete has one name."""
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
_LISTED = (
    *("data", "size", "network", "network.dropout", "epochs", "batch_size"),
    *("optimizer", "lr", "momentum", "weight_decay", "schedule", "warmup", "padding", "flip", "select"),
)
_BY_DEFAULT = {"padding": "an eighth of a side", "flip": "where labels allow it"}


def _remarks(result: ExperimentResult) -> list[str]:
    """Name runs with constant logits and diverged runs; count runs whose measurements may not match their scores."""
    blind = [
        f"{place_name(where)}, seed {seed} ({check.amount(record['blind'], 'label')})"
        for where, by_seed in result.records.items()
        for seed, record in by_seed.items()
        if record.get("blind")
    ]
    diverged = [f"{place_name(where)}, seed {seed}" for *where, seed in result.diverged]
    keys = {record["key"] for record in result.all_records} if result.found else set()
    unmeasured, apart = len(keys.difference(result.measured_in)), len(keys.intersection(result.measured_apart))
    remarks = {
        "Runs with constant logits, included in all means": blind,
        "Diverged runs, excluded from all means": diverged,
        "Runs in the scores but not in the measurements": [str(unmeasured)] if unmeasured else [],
        "Measured in a second training that may differ from the scored one": (
            [f"{apart} of {len(keys)} runs"] if apart else []
        ),
    }
    return [f"**{words}: {'; '.join(runs)}.**" for words, runs in remarks.items() if runs]


def _choices(result: ExperimentResult) -> list[str]:
    if not result.chosen:
        return []
    choices = []
    for where, chosen in result.chosen.items():
        grid = result.grid(where)
        texts = [f"{key} {value} ({_tried(grid[key], value)})" for key, value in chosen.items()]
        choices.append(f"{place_name(where)}: {', '.join(texts)}")
    return [f"Chosen on validation, with other seeds than those scored: {'; '.join(choices)}."]


def _tried(values: Sequence[Any], chosen: Any) -> str:
    """List the values that one was chosen from, and say whether it is at the edge: one beyond may be better.

    >>> _tried([0.1, 0.5, 1.0], 1.0)
    'the largest of 0.1, 0.5, 1.0'
    """
    listed = f"of {', '.join([str(one) for one in values])}"
    if len(values) < 2 or not all(check.is_real(one) for one in values):
        return listed
    edges = {min(values): "the smallest ", max(values): "the largest "}
    return f"{edges.get(chosen, '')}{listed}"


def _looks_before(result: ExperimentResult) -> list[str]:
    """List earlier runs that were scored on test, and why they no longer count: the test data has been seen."""
    reasons = {
        None: "with settings that were replaced",
        RETRAINED: "and retrained since",
        OTHER_DATA: "on data that has changed since",
    }
    scored = [one for one in result.superseded if "test" in one]
    sentences = []
    for reason, words in reasons.items():
        configs = [one["config"] for one in scored if one.get("replaced") == reason]
        runs = Counter(f"{one['method']} on {one['network']}" for one in configs)
        named = ", ".join([f"{name} ({check.amount(number, 'run')})" for name, number in runs.items()])
        sentences += [f"Earlier runs scored on test {words}: {named}; `superseded` in the JSON file."] if runs else []
    return sentences


def _provenance(result: ExperimentResult, command: str, shown: str) -> str:
    """Return where the numbers come from: command, seeds, hardware, commit."""
    records = result.all_records
    if not records:
        return f"Command: `{command}`. Measurements: [{result.name}.json]({result.name}.json)."
    seeds = {len(by_seed) for by_seed in result.records.values()}
    how_many = check.amount(min(seeds), "seed") if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)} seeds"
    intervals = _INTERVALS if "±" in shown else ""
    if intervals and any(cell.against for cell in result.experiment.cells):
        intervals += _DIFFERENCES
    killed = sum(record.get("seconds") is None for record in records)
    untimed = f" ({check.amount(killed, 'run')} resumed after a kill; time unknown)" if killed else ""
    commits = ", ".join(sorted({_short(record["commit"] or "unknown") for record in records}))
    return (
        f"Command: `{command}`. {how_many}.{intervals}"
        f" Hardware: {', '.join(sorted({record['hardware'] for record in records}))};"
        f" torch {', '.join(sorted({record['versions']['torch'] for record in records}))}, commit {commits};"
        f" split {', '.join(sorted({record['data']['split_hash'][:8] for record in records}))}."
        f" Training took {_hours(records)} hours{', without candidates' if result.chosen else ''}{untimed}."
        f" All runs: [{result.name}.json]({result.name}.json)."
    )


def _short(commit: str) -> str:
    """Return the start of a commit, with its mark ``+`` for uncommitted changes."""
    return commit[:7] + "+" * commit.endswith("+")


def _hours(records: Sequence[Record]) -> str:
    """Return the time of all trainings in hours; that of killed runs is unknown."""
    times = [record.get("seconds") for record in records]
    return f"{'at least ' * (None in times)}{sum(time or 0 for time in times) / 3600:.2f}"


def update_list(folder: Path) -> None:
    """List every experiment of a folder in its README, between two marks."""
    rows = [
        "| experiment | what it shows | best on validation, and its gain on test in points | runs | training hours |",
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
        raise ValueError(f"Expected {BEGIN} before {END} in {readme}.")
    if BEGIN not in text:
        text += f"\n## Experiments\n\n{BEGIN}{END}\n"
    changed = re.sub(f"{BEGIN}.*?{END}", lambda _: listed, text, flags=re.DOTALL)
    atomic.write_bytes(readme, changed.encode())
