"""Records: what is kept of a run in ``results/NAME.json`` when its folder is deleted.

A record holds the config and the seed, what the run was made of (split, hardware, commit, seconds), and the scores of
validation and test under every decision rule. A recorded run need not be trained again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rectifier._base import check
from rectifier._base.files import read_json, write_bytes
from rectifier.evaluation.rows import preferred_rule
from rectifier.evaluation.scoring import RULES
from rectifier.reproduce.experiment import BALANCED, GROUPS
from rectifier.training.config import Config
from rectifier.training.finish import blind_labels
from rectifier.training.run.folder import Run
from rectifier.training.run.results import rows

if TYPE_CHECKING:
    from pandas import DataFrame

Record = dict[str, Any]
_DIGITS = 5

RECORDED_METRICS = (BALANCED, "accuracy", "top5_class_balanced_accuracy", "macro_f1", "nll")
"""The metrics over all labels that a record keeps; names and order belong to the format of ``NAME.json``."""

VERSION = 1
"""Version of the package's defaults. Raise it when a default changes: recorded runs were trained with the old one."""

LISTS = ("runs", "candidates", "superseded")
"""Lists in an experiment's file: runs of its cells, runs that validation chose from, and earlier runs.

A superseded record with the key ``replaced``, which holds a reason, is shown and never used.
"""


def key_of(config: Config) -> str:
    """Return a short name of a config and its seed that is the same on every machine."""
    version = {"version": VERSION} if VERSION > 1 else {}
    text = json.dumps({**config.identity(), "seed": config.seed, **version}, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def record_of(run: Run) -> Record:
    """Return the record of a finished run."""
    scored = rows(run)
    return {
        **_made(run),
        "blind": len(blind_labels(run.predictions("validation"))),
        "preferred_rule": preferred_rule(scored),
        "liking": validation_score(run),
        **_scores(scored),
    }


def validation_score(run: Run) -> float | None:
    """Return a run's validation score under its preferred rule; tuned offsets are scored on held-out folds."""
    return _rounded(run.rules["validation"][run.rules["preferred"]])


def diverged_record(run: Run, reason: str) -> Record:
    """Return the record of a run that diverged, with the lowest validation score."""
    return {**_made(run), "diverged": reason, "liking": 0.0}


def placed(record: Record, row: str, column: str) -> Record:
    """Return a record with the cell that it belongs to."""
    return {"row": row, "column": column} | {key: one for key, one in record.items() if key not in ("row", "column")}


def _made(run: Run) -> Record:
    """Return what a run was made of."""
    config, data, made = run.config, run.data, run.environment
    sessions = made["sessions"]
    return {
        "key": key_of(run.asked),
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
        "seconds": _own_seconds(sessions),
        "together": max(session.get("together", 1) for session in sessions),
    }


def _own_seconds(sessions: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the training time of a run over all its sessions; runs that share a device share the time.

    None where a session was killed before its time was saved.
    """
    if not all("seconds" in session for session in sessions):
        return None
    return round(float(sum(session["seconds"] / session.get("together", 1) for session in sessions)), 2)


def ratio_of(classes: Mapping[str, int]) -> float | None:
    """Return the imbalance ratio: the size of the largest class over that of the smallest one that occurs."""
    present = [n for n in classes.values() if n]
    return round(max(present) / min(present), 2) if present else None


def _scores(scored: DataFrame) -> dict[str, dict[str, Any]]:
    """Return the scores of both parts under every rule."""
    found: dict[tuple[str, str, str], dict[str | None, float | None]] = {}
    for part, rule, label, name, metric, value in scored.itertuples(index=False, name=None):
        if name is None:  # not the score of one class
            found.setdefault((part, rule, metric), {})[label] = _rounded(value)

    def scores(part: str, rule: str) -> dict[str, Any]:
        overall = {metric: found.get((part, rule, metric), {}).get(None) for metric in RECORDED_METRICS}
        labels = {label: value for label, value in found[part, rule, BALANCED].items() if label is not None}
        groups = found.get((part, rule, GROUPS), {})
        return {**overall, "labels": labels if len(labels) > 1 else {}, GROUPS: groups}

    return {part: {rule: scores(part, rule) for rule in RULES} for part in ("validation", "test")}


def _rounded(value: float | None) -> float | None:
    return None if value is None or value != value else round(value, _DIGITS)  # NaN differs from itself


def read_results(path: Path) -> dict[str, Any]:
    """Return the content of an experiment's file, or nothing where it is another JSON file."""
    content = read_json(path)
    if not isinstance(content, dict) or "experiment" not in content:
        return {}
    lists = {part: content.get(part, []) for part in LISTS}
    damaged = [part for part, listed in lists.items() if not (isinstance(listed, list) and all(map(is_record, listed)))]
    kinds = {"found": dict, "measured": list, "measured_apart": list}
    damaged += [part for part, kind in kinds.items() if not isinstance(content.get(part) or kind(), kind)]
    if damaged:
        wanted = "the results of an experiment, as rectifier reproduce writes them"
        check.fail(str(path), wanted, f"damaged {' and '.join(damaged)}: restore it, or move it elsewhere")
    return {**content, **lists}


def is_record(one: Any) -> bool:
    """Return whether this can be the record of a run."""
    kinds = {"key": str, "config": dict, "seed": int, "data": dict}
    return isinstance(one, dict) and all(isinstance(one.get(name), kind) for name, kind in kinds.items())


def read_records(folder: Path, own: Path | None = None, *, quick: bool = False) -> dict[str, Record]:
    """Return the records of all experiments in a folder by key, because experiments share runs.

    Records in the file ``own`` take precedence. Results of small versions (``quick``) have a folder of their own.
    """
    found: dict[str, Record] = {}
    for path in sorted(folder.glob("*.json"), key=lambda path: (path == own, path)):
        content = read_results(path)
        if content and content.get("quick", False) != quick:
            kinds = ("real data", "small versions on generated data")
            got = f"{folder}, where {path.name} is of {kinds[not quick]}"
            check.fail("results", f"a folder for {kinds[quick]} only", got)
        for one in (one for part in LISTS for one in content.get(part, ()) if "replaced" not in one):
            if "test" in one or "test" not in found.get(one["key"], ()):  # a scored record is worth more
                found[one["key"]] = one
    return found


def write_results(path: Path, facts: Mapping[str, Any], lists: Mapping[str, Iterable[Record]]) -> None:
    """Write the results of an experiment, one line for each run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    head = "{\n" + ",\n".join(f' "{name}": {_text(value)}' for name, value in facts.items())
    lines = {name: ",\n  ".join(map(_on_one_line, records)) for name, records in lists.items()}
    bodies = [f' "{name}": [\n  {text}\n ]' for name, text in lines.items()]
    write_bytes(path, (",\n".join([head, *bodies]) + "\n}\n").encode(), durable=True)


def _text(value: Any, depth: int = 1) -> str:
    """Return JSON with one line for each entry of an object, and each list on one line."""
    if not isinstance(value, dict) or not value:
        return _on_one_line(value)
    inner = ",\n".join(f"{' ' * (depth + 1)}{json.dumps(str(k))}: {_text(v, depth + 1)}" for k, v in value.items())
    return f"{{\n{inner}\n{' ' * depth}}}"


def _on_one_line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
