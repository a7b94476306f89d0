"""Pretrained features: speed, time from table to scores, and accuracy against a ten-line script.

    python benchmarks/pretrained.py features [table] [accuracy] --data-root DIR [--work DIR] [--json FILE]

features: images per second at 224 px, from files (the plain way, and ours with an empty cache), and of the network
alone.

table: ``rectifier train --data table.csv --images images --out RUN`` with an empty cache, against ``ten_lines.py`` on
the same folder. Both are new processes and take turns.

accuracy: class-balanced accuracy on test of ``rectifier train`` with its defaults, and with ``tune=last``, against the
ten-line script: the same photographs and splits, one split for each seed, paired. ``--work`` keeps what is done, so
that a stopped benchmark resumes. After a change of the library, delete the runs there: WORK/DATASET/SEED/default and
tune=last.

Each part replaces its own numbers in the JSON file. Beside it is a Markdown file with all tables; ``show`` writes only
that. Photographs are those of the fashion data as they are, or of another size (``--photo-size 1200x900``), or
generated.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import measure
import torch
from feature_speed import empty_cache, from_files, network_alone
from paired import by_seed, percent
from photographs import DATASETS, Source, draw, generated, write_folder
from split_accuracy import VARIANTS, scores, scores_of_run
from ten_lines import Table

from rectifier.data.dataset import ImageData, ImageFiles, as_size
from rectifier.report.comparison import difference, estimate
from rectifier.training import quiet
from rectifier.training.run.folder import Run

JSON = Path(__file__).parents[1] / "results" / "pretrained_cpu.json"
TEN_LINES = Path(__file__).with_name("ten_lines.py")
COMPARED = ("fashion-2000", "fashion-6000", "celeba-2000", "celeba-6000", "cifar100-lt")
ALONE = 256  # images of the network alone
Found = dict[str, Any]


def photographs(given: argparse.Namespace, folder: Path) -> ImageData:
    """Write the photographs with their table to a folder, and return them."""
    height, width = as_size(given.photo_size) or (0, 0)
    if given.photos == "generated":
        data = generated(given.images, (width or 900, height or 1200), folder / "generated")
    else:
        data = draw(Source(given.photos, given.images), 0, given.data_root)
    write_folder(data, folder, (width, height) if given.photo_size and given.photos != "generated" else None)
    return replace(data, images=ImageFiles(folder / "images", data.ids))


def features(given: argparse.Namespace) -> Iterator[Found]:
    with tempfile.TemporaryDirectory() as folder:
        data = photographs(given, Path(folder))
        found: Found = {"photographs": about(given), "files": from_files(data, given.rounds)}
        yield found
        alone = data.select(range(min(ALONE, len(data))))
        yield {**found, "network": network_alone(alone, given.rounds, given.compile)}


def table(given: argparse.Namespace) -> Iterator[Found]:
    with tempfile.TemporaryDirectory() as folder:
        photographs(given, Path(folder))
        candidates: dict[str, Callable[[Path], Found]] = {"ten lines": ten_lines_process, "ours": train_process}
        taken: dict[str, list[Found]] = {name: [] for name in candidates}
        for turn in range(given.rounds):
            for name in sorted(candidates, reverse=bool(turn % 2)):
                taken[name].append(candidates[name](Path(folder)))
            seconds = {name: median(each["seconds"] for each in rounds) for name, rounds in taken.items()}
            yield {
                **{"photographs": about(given), "seconds": seconds, "ratio": seconds["ours"] / seconds["ten lines"]},
                "rounds": taken,
            }


def about(given: argparse.Namespace) -> str:
    return f"{given.images:,} images, {given.photos}" + (f", {given.photo_size}" if given.photo_size else "")


def ten_lines_process(folder: Path) -> Found:
    """Run the ten-line script in a new process: its seconds from start to end, and its score."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, TEN_LINES, folder], capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - start
    return {**json.loads(done.stdout.splitlines()[-1]), "seconds": seconds}


def train_process(folder: Path) -> Found:
    """Run ``rectifier train`` in a new process with an empty cache: its seconds from start to end, and its scores."""
    path, images = folder / "table.csv", folder / "images"
    with empty_cache() as cache, tempfile.TemporaryDirectory() as runs:
        out = Path(runs) / "run"
        command = [sys.executable, "-m", "rectifier", "train", "--data", path, "--images", images, "--out", out]
        start = time.perf_counter()
        subprocess.run(command, capture_output=True, check=True, env={**os.environ, "RECTIFIER_CACHE": cache})
        seconds = time.perf_counter() - start
        read, run = Table.read(path), Run.open(out)
        return {**scores_of_run(run, read, run.space.names), "seconds": seconds}


def accuracy(given: argparse.Namespace) -> Iterator[Found]:
    """Yield the scores so far after each training, by data set, candidate and seed."""
    os.environ["RECTIFIER_CACHE"] = str(given.work / "cache")
    settings = dict(pair.split("=", 1) for pair in given.set)
    found: Found = {"settings": settings, "scores": {}}
    for seed in range(given.seeds):
        for name in given.datasets:
            own = found["scores"].setdefault(name, {})
            each = scores(name, seed, given.work, given.data_root, variants=given.variants, settings=settings)
            for candidate, result in each:
                own.setdefault(candidate, {})[str(seed)] = result
                print(name, seed, candidate, json.dumps(result), flush=True)
                yield found


PARTS: dict[str, Callable[[argparse.Namespace], Iterator[Found]]] = {
    "features": features,
    "table": table,
    "accuracy": accuracy,
}


def merged(path: Path, part: str, found: Found) -> None:
    """Write what a part has found so far into the JSON file, beside the other parts, and the tables of all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    known = json.loads(path.read_text()) if path.exists() else {}
    measure.save(path, known, {part: found})
    path.with_suffix(".md").write_text(as_markdown({**known, part: found}))


# Markdown


def as_markdown(found: Found) -> str:
    """Return the tables of all parts, each with its hardware, commit and command."""
    lines = {"features": _features_lines, "table": _table_lines, "accuracy": _accuracy_lines}
    texts = [
        "\n".join([*lines[part](own), "", f"{own['hardware']}, commit {own['commit']}: `{own['command']}`"])
        for part, own in found.items()
    ]
    return "\n\n".join(["# Pretrained features", *texts]) + "\n"


def _features_lines(own: Found) -> list[str]:
    files = own["files"]
    lines = [f"## Features at 224 px, {own['photographs']}", "", "| | images/s | ratio to plain |", "|---|---:|---:|"]
    plain = files["images/s"]["plain"]
    lines += [f"| from files, {name} | {n:.0f} | {n / plain:.1f} |" for name, n in files["images/s"].items()]
    if "network" in own:
        speeds = own["network"]["images/s"]
        lines += [f"| network alone, {name} | {n:.0f} | {n / speeds['torch']:.1f} |" for name, n in speeds.items()]
    return lines


def _table_lines(own: Found) -> list[str]:
    lines = [f"## From table to scores, {own['photographs']}", "", "| | seconds | class-balanced accuracy |"]
    score = {name: median(each["score"] for each in rounds) for name, rounds in own["rounds"].items()}
    rows = [f"| {name} | {s:.1f} | {100 * score[name]:.1f} |" for name, s in own["seconds"].items()]
    return [*lines, "|---|---:|---:|", *rows, f"| ratio | {own['ratio']:.2f} | |"]


def _accuracy_lines(own: Found) -> list[str]:
    """Return the percent of every candidate, and the differences to the script in points with 95 % intervals."""
    lines = ["## Class-balanced accuracy (%, higher is better)", "", "| | splits | mean | to ten lines |"]
    lines.append("|---|---:|---:|---:|")
    for name, candidates in own["scores"].items():
        base = by_seed(candidates["ten lines"], "score")
        lines.append(f"| {name}, ten lines | {len(base)} | {percent(estimate(base))} | |")
        for candidate, rule in ((c, r) for c in candidates if c != "ten lines" for r in ("score", "argmax")):
            values = by_seed(candidates[candidate], rule)
            label = candidate if rule == "score" else f"{candidate}, argmax"
            gain = percent(difference(values, base), "+")
            lines.append(f"| {name}, {label} | {len(values)} | {percent(estimate(values))} | {gain} |")
    return lines


def main() -> None:
    parser = measure.parser(__doc__, rounds=3, devices=("cpu",))
    parser.set_defaults(json=JSON)
    parser.add_argument("parts", nargs="+", choices=(*PARTS, "show"))
    parser.add_argument("--data-root", type=Path, help="folder of the named data sets")
    parser.add_argument("--images", type=int, default=2000, help="photographs of features and table")
    parser.add_argument("--photos", choices=("fashion", "celeba", "generated"), default="fashion")
    parser.add_argument("--photo-size", help="HEIGHTxWIDTH of the photographs; the default is as they are")
    parser.add_argument("--compile", action="store_true", help="also measure torch.compile")
    parser.add_argument("--work", type=Path, help="folder that keeps what accuracy has done")
    parser.add_argument("--seeds", type=int, default=5, help="splits of accuracy")
    parser.add_argument("--datasets", nargs="+", choices=tuple(DATASETS), default=COMPARED)
    parser.add_argument("--variants", nargs="+", choices=tuple(VARIANTS), default=tuple(VARIANTS))
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="settings of the runs of accuracy")
    given = measure.arguments(parser)
    if "accuracy" in given.parts and given.work is None:
        parser.error("accuracy needs --work, a folder")
    with quiet():
        for part in given.parts:
            if part != "show":
                facts = measure.facts(part == "accuracy" and torch.cuda.is_available())
                facts = {**facts, "rounds": given.rounds, "command": shlex.join(["python", *sys.argv])}
                for found in PARTS[part](given):  # a run that is cut off leaves what it has measured
                    merged(given.json, part, {**facts, **found})
    text = as_markdown(json.loads(given.json.read_text()))
    given.json.with_suffix(".md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
