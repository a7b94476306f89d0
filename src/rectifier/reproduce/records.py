"""Records: what remains of a run when its folder is gone, in ``results/NAME.json``.

A record says what was asked for (config, seed), what it was made of (split, hardware, commit, seconds) and what came
out (the scores of validation and test under every decision rule). What is recorded need not be trained again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rectifier._base import check
from rectifier.evaluation.scoring import RULES
from rectifier.training.config import Config
from rectifier.training.finish import blind_labels
from rectifier.training.run.atomic import read_json, write_bytes
from rectifier.training.run.folder import Run

Record = dict[str, Any]
_METRICS = ("class_balanced_accuracy", "accuracy", "top5_class_balanced_accuracy", "macro_f1", "nll")
_DIGITS = 5
_KINDS = ("real data", "the small versions on generated data")


VERSION = 1
"""Of what settings that nobody gave stand for. Whoever changes a default raises it: recorded runs had another."""


def key_of(config: Config) -> str:
    """Return a name for a config and its seed that is the same everywhere."""
    version = {"version": VERSION} if VERSION > 1 else {}
    told = json.dumps({**config.identity(), "seed": config.seed, **version}, sort_keys=True, default=str)
    return hashlib.sha256(told.encode()).hexdigest()[:12]


LISTS = ("runs", "candidates", "superseded")
"""Of an experiment's file: what its cells have, what validation chose from, and what stood there before.

A superseded record that is ``replaced``, with the reason, is of a run that was trained anew: it is told of, and counts
for nothing.
"""


def record_of(run: Run) -> Record:
    """Return what is worth keeping of a finished run."""
    metrics = run.metrics
    return {
        **_made(run),
        "blind": len(blind_labels(run.predictions("validation"))),
        "preferred_rule": metrics["preferred_rule"],
        "liking": validation_score(run),
        **{part: {rule: _scores(metrics[part]["rules"][rule]) for rule in RULES} for part in ("validation", "test")},
    }


def validation_score(run: Run) -> float | None:
    """Return what validation thinks of a run under the rule it prefers: of offsets, by samples not tuned on."""
    return _rounded(run.rules["validation"][run.rules["preferred"]])


def diverged_record(run: Run, reason: str) -> Record:
    """Return what is worth keeping of a run that diverged: validation likes nothing about it."""
    return {**_made(run), "diverged": reason, "liking": 0.0}


def placed(record: Record, row: str, column: str) -> Record:
    """Return a record with the cell that it belongs to."""
    return {"row": row, "column": column} | {key: one for key, one in record.items() if key not in ("row", "column")}


def _made(run: Run) -> Record:
    """Return what a run was made of."""
    config, data, made = run.config, run.data, run.environment
    sessions = made["sessions"]
    return {
        "key": key_of(config),
        "config": config.identity(),
        "seed": config.seed,
        "data": {
            **{name: data[name] for name in ("name", "fingerprint", "split_hash", "samples")},
            "ratios": {label: ratio_of(classes) for label, classes in data["counts"]["train"].items()},
        },
        "parameters": made["decided"]["parameters"],
        "precision": made["decided"]["precision"],
        "hardware": ", ".join(made["gpus"]) if made["decided"]["device"].startswith("cuda") else made["processor"],
        "versions": {"python": made["python"], "torch": made["packages"].get("torch")},
        "commit": sessions[-1]["commit"],
        "seconds": own_seconds(sessions),
        "together": max(session.get("together", 1) for session in sessions),
    }


def own_seconds(sessions: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the time of a run over all stretches of work, its share of those that it had others beside it in.

    None: a stretch was killed before its time was noted.
    """
    if not all("seconds" in session for session in sessions):
        return None
    return round(float(sum(session["seconds"] / session.get("together", 1) for session in sessions)), 2)


def ratio_of(classes: Mapping[str, int]) -> float | None:
    """Return how many times as frequent the most frequent class is as the rarest that occurs."""
    present = [n for n in classes.values() if n]
    return round(max(present) / min(present), 2) if present else None


def _scores(found: Mapping[str, Any]) -> dict[str, Any]:
    labels = {name: _rounded(one["class_balanced_accuracy"]) for name, one in found["labels"].items()}
    scores = {name: _rounded(found.get(name)) for name in _METRICS}
    groups = {name: _rounded(value) for name, value in found.get("group_top5", {}).items()}
    return {**scores, "labels": labels if len(labels) > 1 else {}, "group_top5": groups}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)


def read_results(path: Path) -> dict[str, Any]:
    """Return the content of an experiment's file; of another JSON file, nothing."""
    content = read_json(path)
    if not isinstance(content, dict) or "experiment" not in content:
        return {}
    lists = {part: content.get(part, []) for part in LISTS}
    damaged = [part for part, listed in lists.items() if not (isinstance(listed, list) and all(map(is_record, listed)))]
    kinds = {"found": dict, "measured": list, "measured_apart": list}
    damaged += [part for part, kind in kinds.items() if not isinstance(content.get(part) or kind(), kind)]
    if damaged:
        wanted = "the results of an experiment, as rectifier reproduce writes them"
        check.fail(str(path), wanted, f"damaged {' and '.join(damaged)}: restore it, or put it elsewhere")
    return {**content, **lists}


def is_record(one: Any) -> bool:
    """Say whether this can be the record of a run."""
    kinds = {"key": str, "config": dict, "seed": int, "data": dict}
    return isinstance(one, dict) and all(isinstance(one.get(name), kind) for name, kind in kinds.items())


def read_records(folder: Path, own: Path | None = None, *, quick: bool = False) -> dict[str, Record]:
    """Return the records of all results in a folder, by key: experiments share runs. Those of ``own`` prevail.

    Results of generated data (``quick``) and of real data do not lie in one folder.
    """
    found: dict[str, Record] = {}
    for path in sorted(folder.glob("*.json"), key=lambda path: (path == own, path)):
        content = read_results(path)
        if content and content.get("quick", False) != quick:
            wanted, there = _KINDS[quick], _KINDS[not quick]
            check.fail("--results", f"a folder for {wanted} alone", f"{folder}, whose {path.name} is of {there}")
        for one in (one for part in LISTS for one in content.get(part, ()) if "replaced" not in one):
            if "test" in one or "test" not in found.get(one["key"], ()):  # what is scored says more
                found[one["key"]] = one
    return found


def write_results(path: Path, facts: Mapping[str, Any], lists: Mapping[str, Iterable[Record]]) -> None:
    """Write the results of an experiment, a line for each run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    head = "{\n" + ",\n".join(f' "{name}": {_text(value)}' for name, value in facts.items())
    bodies = [f' "{name}": [\n  {_lines(records)}\n ]' for name, records in lists.items()]
    write_bytes(path, (",\n".join([head, *bodies]) + "\n}\n").encode())


def _text(value: Any, depth: int = 1) -> str:
    """Return JSON with a line for each entry of an object; lists are long, and stay on one."""
    if not isinstance(value, dict) or not value:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    inner = ",\n".join(f"{' ' * (depth + 1)}{json.dumps(str(k))}: {_text(v, depth + 1)}" for k, v in value.items())
    return f"{{\n{inner}\n{' ' * depth}}}"


def _lines(records: Iterable[Record]) -> str:
    return ",\n  ".join(json.dumps(one, ensure_ascii=False, allow_nan=False) for one in records)
