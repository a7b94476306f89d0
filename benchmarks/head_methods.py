"""Methods on cached features: every method with every head on every data set, paired with cross-entropy.

    python benchmarks/head_methods.py --data-root DIR [--seeds 10] [--datasets ...] [--methods ...] [--heads ...]

Features are the last and the penultimate layer of EfficientNet-Lite0 at 224 px. A seed draws the sample, the split (the
training images, for CIFAR-100) and the first weights. All heads of one shape on one split train in one call. Validation
chooses the weight decay, for every method from the same values, under the rule that test is decided by: the log prior
is taken off the logits of methods that do not correct for class frequencies themselves, and the others use argmax.

cRT retrains the classifier of a trained network on class-balanced samples. With frozen features, a head without a layer
of its own has nothing else to train first: its cRT is a new head, trained on class-balanced samples for ten epochs. It
has no row with other heads. LDAM has a cosine classifier also behind a hidden layer and branches, and no linear head.
CRL at the instance level compares features that it trains, so it needs a hidden layer or branches. Ridge regression
and discriminant analysis are linear heads in closed form.

Scores go to the JSON file after every call, and a second run computes only what it lacks. The Markdown file beside it
has the tables.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import measure
import numpy as np
import torch
from paired import by_seed, percent
from photographs import DATASETS, draw
from torch import Tensor

from rectifier.data import cached_features
from rectifier.data.dataset import ImageData
from rectifier.evaluation.metrics.balanced import balanced_mean, count_correct
from rectifier.evaluation.metrics.score import FEW
from rectifier.evaluation.rules.prior import prior_offsets
from rectifier.methods import find_method
from rectifier.networks.pretrained import Extractor, extractor, load_backbone
from rectifier.report.comparison import difference, estimate
from rectifier.training.heads import FeatureTable, HeadSpec, discriminant_head, ridge_head, train_heads

JSON = Path(__file__).parents[1] / "results" / "heads_cpu.json"
COMPARED = ("fashion-2000", "celeba-2000", "cifar100-lt")
DECAYS = (0.03, 0.3)
EPOCHS, RETRAINED, RATE = 15, 10, 2e-3


@dataclass(frozen=True)
class Row:
    """A method with options. ``fresh`` stands for the second stage of a method, which only a new head can take."""

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    epochs: int | None = None
    fresh: bool = False


DESIGNS = tuple(f"crl-{level}-{kind}" for level in ("class", "instance") for kind in ("absolute", "distribution"))
CRL = ("crl", "crl-class-absolute", "crl-class-distribution", "crl-instance-relative", *DESIGNS[2:])
PLAIN = ("ce", "logit-adjustment", "balanced-softmax", *CRL, "crl+logit-adjustment", "focal", "ldam", "class-balanced")
ROWS = {
    **{name: Row(name) for name in (*PLAIN, "over-sampling", "class-balanced-sampling")},
    "crl, eta 0.5": Row("crl", {"eta": 0.5}),
    "crl-instance-relative, eta 0.5": Row("crl-instance-relative", {"eta": 0.5}),
    "crl+logit-adjustment, eta 0.5": Row("crl+logit-adjustment", {"eta": 0.5}),
    "crt": Row("class-balanced-sampling", epochs=RETRAINED, fresh=True),
}
CLOSED = {"ridge": ridge_head, "discriminant": discriminant_head}
HEADS: dict[str, dict[str, Any]] = {
    "linear": {},
    "cosine": {"classifier": "cosine"},
    "hidden layer of 128": {"hidden": 128},
    "branches of 16": {"branch": 16},
}
Scores = dict[str, float | None]
Found = dict[str, dict[str, dict[str, dict[str, Scores]]]]
"""By data set, head, row and seed."""


class Parts(NamedTuple):
    """The features of one split."""

    train: FeatureTable
    validation: FeatureTable
    test: FeatureTable


def tables(data: ImageData, compute: Extractor) -> Parts:
    """Return the features of all parts, from the cache where it has them."""
    with_features = cached_features(data, compute)
    parts = (with_features.part(name) for name in Parts._fields)
    return Parts(*(FeatureTable(gathered(part), part.targets, part.space) for part in parts))


def gathered(part: ImageData) -> Tensor:
    images: Any = part.images
    return torch.from_numpy(images.gather(np.arange(len(part))))


def rows_of(head: str, wanted: Sequence[str]) -> list[str]:
    """Return the wanted rows that this head can have."""
    return [name for name in wanted if name in ROWS and can_have(head, ROWS[name])]


def can_have(head: str, row: Row) -> bool:
    has_layers = bool({"hidden", "branch"} & {*HEADS[head]})
    if row.fresh:
        return not has_layers
    if "instance" in row.method:
        return has_layers
    return head != "linear" or find_method(row.method).classifier is None


def spec_of(row: Row, head: str, seed: int, decay: float, epochs: int) -> HeadSpec:
    shape = {**HEADS[head]}
    if classifier := find_method(row.method).classifier:
        shape["classifier"] = classifier
    last = epochs if row.epochs is None else row.epochs
    return HeadSpec(row.method, row.options, seed=seed, lr=RATE, weight_decay=decay, epochs=last, **shape)


def trained(parts: Parts, head: str, names: Sequence[str], seed: int, epochs: int) -> Iterator[tuple[str, Scores]]:
    """Yield the scores of the rows of one head, trained together."""
    pairs = [(name, decay) for name in names for decay in DECAYS]
    prior = prior_offsets(parts.train.counts())
    corrected = {name: None if find_method(ROWS[name].method).moves_threshold else prior for name in names}
    specs = [spec_of(ROWS[name], head, seed, decay, epochs) for name, decay in pairs]
    heads = train_heads(parts.train, specs, validation=parts.validation, offsets=[corrected[n] for n, _ in pairs])
    for name in names:
        own = [(each, decay) for each, (other, decay) in zip(heads, pairs, strict=True) if other == name]
        best, decay = max(own, key=lambda pair: -1.0 if pair[0].score is None else pair[0].score)
        logits = best.logits(parts.test.x)
        fair = logits if corrected[name] is None else logits + prior
        yield name, {**scored(fair, parts), "argmax": scored(logits, parts)["balanced"], "decay": decay}


def closed_form(parts: Parts, names: Sequence[str]) -> Iterator[tuple[str, Scores]]:
    """Yield the scores of the heads without training. They are balanced themselves."""
    for name in names:
        options = {"validation": parts.validation} if name == "ridge" else {}
        yield name, scored(CLOSED[name](parts.train, **options).logits(parts.test.x), parts)


def scored(logits: Tensor, parts: Parts) -> Scores:
    """Return class-balanced accuracy on test, and the mean recall of the classes with few training samples."""
    sizes = parts.test.space.sizes
    correct, total = count_correct(logits, parts.test.targets, sizes)
    few = (torch.cat(parts.train.counts()) < FEW) & (total > 0)
    recall = float((correct[few] / total[few]).mean()) if bool(few.any()) else None
    return {"balanced": float(balanced_mean(correct, total, sizes)), "few": recall}


def lacking(found: Found, dataset: str, head: str, names: Sequence[str], seed: int) -> list[str]:
    """Return the rows whose scores on a split are not known."""
    known = found.get(dataset, {}).get(head, {})
    return [name for name in names if str(seed) not in known.get(name, {})]


def as_markdown(found: Found, facts: Mapping[str, Any]) -> str:
    """Return a table for each data set: percent with 95 % intervals, and differences to cross-entropy in points."""
    lines = [
        "# Methods on cached features",
        "",
        "Class-balanced accuracy on test in percent (higher is better), and the difference to cross-entropy with the"
        " same head in points, paired by seed, with 95 % intervals. A difference that excludes 0 is bold.",
    ]
    for dataset, heads in found.items():
        few = any(s["few"] is not None for s in heads.get("linear", {}).get("ce", {}).values())
        for key in ("balanced", *(["few"] if few and dataset.startswith("cifar") else [])):
            title = "" if key == "balanced" else f": recall of the classes with fewer than {FEW} training images"
            seeds = max(len(own) for rows in heads.values() for own in rows.values())
            lines += ["", f"## {dataset}{title}, {seeds} seeds", "", "| method | " + " | ".join(heads) + " |"]
            lines.append("|---|" + "---:|" * len(heads))
            names = [name for name in (*ROWS, *CLOSED) if any(name in rows for rows in heads.values())]
            lines += [
                f"| {name} | " + " | ".join(cell(rows, name, key) for rows in heads.values()) + " |" for name in names
            ]
    return "\n".join([*lines, "", f"{facts['hardware']}, commit {facts['commit']}: `{facts['command']}`", ""])


def cell(rows: Mapping[str, Mapping[str, Scores]], name: str, key: str) -> str:
    """Return ``70.1 ± 0.4 (+0.3 ± 0.2)``, or nothing where a head has no such row."""
    if name not in rows:
        return ""
    values, base = by_seed(rows[name], key), by_seed(rows.get("ce", {}), key)
    text = percent(estimate(values))
    if name == "ce" or not {*values} & {*base}:
        return text
    gain = difference(values, base)
    return f"{text} ({'**' * gain['excludes_zero']}{percent(gain, '+')}{'**' * gain['excludes_zero']})"


def measured(given: Any, found: Found) -> Iterator[None]:
    """Fill ``found`` with what it lacks, seed by seed, and stop after each call for a record."""
    backbone = load_backbone("efficientnet-lite0").with_penultimate()
    compute = extractor(backbone, backbone.layers)
    for seed in range(given.seeds):
        for dataset in given.datasets:
            todo = {head: lacking(found, dataset, head, rows_of(head, given.methods), seed) for head in given.heads}
            wanted = [name for name in CLOSED if name in given.methods and "linear" in given.heads]
            plain = lacking(found, dataset, "linear", wanted, seed)
            if not plain and not any(todo.values()):
                continue
            parts = tables(draw(DATASETS[dataset], seed, given.data_root), compute)
            for head, names in todo.items():
                closed = plain if head == "linear" else []
                if not names and not closed:
                    continue
                start = time.perf_counter()
                results = {**dict(trained(parts, head, names, seed, given.epochs)), **dict(closed_form(parts, closed))}
                for name, own in results.items():
                    found.setdefault(dataset, {}).setdefault(head, {}).setdefault(name, {})[str(seed)] = own
                print(f"{dataset}, seed {seed}, {head}: {time.perf_counter() - start:.0f} s", flush=True)
                yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=JSON, help="every number; what is there is not measured again")
    parser.add_argument("--data-root", type=Path, help="folder of the named data sets")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--datasets", nargs="+", choices=tuple(DATASETS), default=COMPARED)
    parser.add_argument("--methods", nargs="+", choices=(*ROWS, *CLOSED), default=(*ROWS, *CLOSED))
    parser.add_argument("--heads", nargs="+", choices=tuple(HEADS), default=tuple(HEADS))
    given = parser.parse_args()
    known = json.loads(given.json.read_text()) if given.json.exists() else {}
    if known and known["epochs"] != given.epochs:
        parser.error(f"{given.json} has heads of {known['epochs']} epochs; give another --json")
    facts = {**measure.facts(False), "command": shlex.join(["python", *sys.argv]), "epochs": given.epochs}
    found: Found = known.get("scores", {})
    for _ in measured(given, found):  # a run that is cut off leaves what it has measured
        measure.save(given.json, facts, {"scores": found})
        given.json.with_suffix(".md").write_text(as_markdown(found, facts))
    print(as_markdown(found, facts))


if __name__ == "__main__":
    main()
