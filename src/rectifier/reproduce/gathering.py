"""The pages of results: one for each experiment, and a table of all of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rectifier import atomic, check
from rectifier.reproduce.experiment import place_name
from rectifier.reproduce.outcome import Outcome
from rectifier.reproduce.records import Record
from rectifier.runs.atomic import read_json

BEGIN, END = "<!-- experiments: begin -->", "<!-- experiments: end -->"


def write_page(outcome: Outcome, quick: bool) -> Path:
    """Write what an experiment gave as Markdown, and enter it into the folder's list."""
    outcome.folder.mkdir(parents=True, exist_ok=True)
    experiment = outcome.experiment
    command = f"rectifier reproduce {outcome.name}" + (" --quick" if quick else _seeds_option(outcome))
    parts = [f"# {experiment.title}", f"{experiment.source}. {experiment.about}"]
    if quick:
        parts.append(
            "**A small version on generated data, with one small network in the place of all: it shows that the"
            " experiment runs, and says nothing else.**"
        )
    measured = experiment.measure is None or outcome.found
    parts.append(experiment.show(outcome).strip() if measured else "Nothing is measured yet.")
    parts += [*_remarks(outcome), *_choices(outcome), *_looks_before(outcome), *_training(outcome)]
    parts.append(_provenance(outcome, command))
    path = outcome.folder / f"{outcome.name}.md"
    atomic.write_bytes(path, ("\n\n".join(parts) + "\n").encode())
    gather(outcome.folder)
    return path


def _seeds_option(outcome: Outcome) -> str:
    """Return the option that gives as many seeds as there are, where the experiment asks for another number."""
    there = max(map(len, outcome.records.values()), default=0)
    return f" --seeds {there}" if there not in (0, outcome.experiment.seeds) else ""


_INTERVALS = (
    "± is half of the 95 % interval over them, and speaks of new seeds, not of other images; differences are paired by"
    " seed, and bold where their interval excludes 0, as one in twenty does by chance alone"
)


def _training(outcome: Outcome) -> list[str]:
    """Say how all runs were trained, as far as they were trained alike."""
    configs = [record["config"] for record in outcome.all_records]
    if not configs:
        return []
    alike = {key: value for key, value in configs[0].items() if all(one.get(key) == value for one in configs)}
    told = [f"{key} {alike[key]}" for key in _TOLD if alike.get(key) not in (None, {}, False)]
    told.append(f"precision {_listed(sorted({record['precision'] for record in outcome.all_records}))}")
    told += [f"{key.partition('.')[2]} {value}" for key, value in alike.items() if key.startswith("method.")]
    return [f"All runs: {_listed(told)}."]


_TOLD = (
    *("data", "size", "network", "network.dropout", "epochs", "batch_size"),
    *("optimizer", "lr", "momentum", "weight_decay", "schedule", "warmup", "padding", "flip", "select"),
)


def _remarks(outcome: Outcome) -> list[str]:
    """Name the runs that diverged, and those whose networks have stopped looking at their images, for some labels.

    And count those that have come since the last measurement beside scores, which needs all runs.
    """
    blind = [
        f"{place_name(where)}, seed {seed} ({check.amount(record['blind'], 'label')})"
        for where, by_seed in outcome.records.items()
        for seed, record in by_seed.items()
        if record.get("blind")
    ]
    diverged = [f"{place_name(where)}, seed {seed}" for *where, seed in outcome.diverged]
    keys = {record["key"] for record in outcome.all_records} if outcome.found else set()
    unmeasured = len(keys.difference(outcome.measured_in))
    told = {
        "Logits that are the same for every image": blind,  # they are in the means
        "Diverged, and in no mean": diverged,
        "Runs that are in the scores alone, and not in what is measured beside them": (
            [str(unmeasured)] if unmeasured else []
        ),
    }
    return [f"**{words}: {'; '.join(runs)}.**" for words, runs in told.items() if runs]


def _choices(outcome: Outcome) -> list[str]:
    if not outcome.chosen:
        return []
    told = []
    for where, chosen in outcome.chosen.items():
        grid = outcome.grid(where)
        texts = [f"{key} {value} (of {_listed([str(one) for one in grid[key]])})" for key, value in chosen.items()]
        told.append(f"{place_name(where)}: {', '.join(texts)}")
    return [f"Chosen on validation, by runs of other seeds: {'; '.join(told)}."]


def _looks_before(outcome: Outcome) -> list[str]:
    """Say which runs were scored on test with settings that have been replaced since: test has been seen then."""
    scored = [one["config"] for one in outcome.superseded if "test" in one]
    if not scored:
        return []
    runs = Counter(f"{one['method']} on {one['network']}" for one in scored)
    told = _listed([f"{name} ({check.amount(number, 'run')})" for name, number in runs.items()])
    return [f"Scored on test before, with settings that have been replaced: {told}, `superseded` in the file."]


def _provenance(outcome: Outcome, command: str) -> str:
    """Say where the numbers come from: command, seeds, hardware, commit."""
    records = outcome.all_records
    if not records:
        return f"`{command}`; what was found: [{outcome.name}.json]({outcome.name}.json)."
    seeds = {len(by_seed) for by_seed in outcome.records.values()}
    how_many = check.amount(min(seeds), "seed") if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)} seeds"
    intervals = "" if max(seeds) == 1 else f", {_INTERVALS}"
    commits = _listed(sorted({(record["commit"] or "unknown")[:7] for record in records}))
    return (
        f"`{command}`; {how_many}{intervals};"
        f" {_listed(sorted({record['hardware'] for record in records}))},"
        f" torch {_listed(sorted({record['versions']['torch'] for record in records}))}, commit {commits};"
        f" split {_listed(sorted({record['data']['split_hash'][:8] for record in records}))};"
        f" {_hours(records)} hours of training. Every run: [{outcome.name}.json]({outcome.name}.json)."
    )


def _hours(records: Sequence[Record]) -> str:
    """Return the time of all trainings; one that was killed did not note its own."""
    times = [record["seconds"] for record in records]
    return f"{'at least ' * (None in times)}{sum(time or 0 for time in times) / 3600:.2f}"


def _listed(values: Sequence[str]) -> str:
    return ", ".join(values)


def gather(folder: Path) -> None:
    """Enter every experiment of a folder into the list of its README, between two marks."""
    rows = [
        "| experiment | what it shows | best on validation of what is compared, and its gain on test | runs | hours |",
        "|---|---|---|---:|---:|",
    ]
    for path in sorted(folder.glob("*.json")):
        content = read_json(path)
        if isinstance(content, dict) and "experiment" in content:
            name = content["experiment"]
            gained = content.get("headline", "")
            runs = [*content["runs"], *content.get("candidates", [])]
            rows.append(f"| [{name}]({name}.md) | {content['title']} | {gained} | {len(runs)} | {_hours(runs)} |")
    listed = "\n".join([BEGIN, *rows, END])
    readme = folder / "README.md"
    text = readme.read_text(encoding="utf-8") if readme.is_file() else f"# Results\n\n{BEGIN}{END}\n"
    if BEGIN in text and END not in text:
        check.fail(str(readme), f"with {END} behind {BEGIN}", "the first mark alone")
    if BEGIN not in text:
        text += f"\n## Experiments\n\n{BEGIN}{END}\n"
    changed = re.sub(f"{BEGIN}.*?{END}", lambda _: listed, text, flags=re.DOTALL)
    atomic.write_bytes(readme, changed.encode())
