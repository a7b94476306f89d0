"""Neighbourhoods in feature space: rare samples among frequent ones, and maps of both in two dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from rectifier._base import check
from rectifier.labels import columns
from rectifier.report.layout import COLOURS, INK, plain, save_figure
from rectifier.training.engine.devices import make_fabric
from rectifier.training.engine.outputs import predict
from rectifier.training.job import RunSpec, engine_options, open_jobs
from rectifier.training.predict import load_network
from rectifier.training.run.folder import Run

NEIGHBOURS = 10
ROLES = ("Maj-1", "Maj-2", "Min-1")
"""The paper's names of the classes that are drawn: the two most frequent and the rarest."""

_PERPLEXITY = 30.0  # scikit-learn's default, if there are enough samples
# Two light colours that differ for any colour vision, and a dark one for the rare class.
_STYLES = (("o", COLOURS[4]), ("s", COLOURS[5]), ("^", INK))


def compare_neighbourhoods(
    runs: Mapping[str, Sequence[Run]], imbalanced: str, data_root: str | None = None
) -> dict[str, Any]:
    """Measure how far test images of rare classes are among frequent ones in feature space, as values for JSON.

    The training images of the runs called ``imbalanced`` decide which classes are rare; of equally rare classes the
    last is taken. First three classes are compared (``ROLES``), then the rarest third with the most frequent third of
    all classes. Maps show each row's first run.
    """
    classes = _Classes.of(runs[imbalanced][0])
    return {
        "neighbours": classes.neighbours,
        "third": len(classes.rare),
        "classes": classes.described,
        "rows": {row: _measures(own, classes, data_root) for row, own in runs.items()},
        "maps": {row: _map(own[0], classes, data_root) for row, own in runs.items()},
    }


@dataclass(frozen=True)
class _Classes:
    """The classes that are compared, by their numbers."""

    drawn: tuple[int, ...]  # in the order of ROLES
    rare: tuple[int, ...]
    frequent: tuple[int, ...]
    neighbours: int
    described: dict[str, dict[str, Any]]

    @classmethod
    def of(cls, run: Run) -> _Classes:
        counts, names = run.train_counts[0], run.space.classes[0]
        order = counts.argsort(descending=True, stable=True).tolist()
        if len(order) < len(ROLES):
            check.fail("data", f"of at least {len(ROLES)} classes", len(order))
        drawn, third = (order[0], order[1], order[-1]), len(order) // 3
        rarest = int((run.predictions("test").targets[:, 0] == drawn[-1]).sum())
        return cls(
            drawn,
            rare=tuple(order[-third:]),
            frequent=tuple(order[:third]),
            neighbours=min(NEIGHBOURS, max(1, rarest - 1)),  # at most as many as the rarest class has
            described={r: {"name": names[c], "images": int(counts[c])} for r, c in zip(ROLES, drawn, strict=True)},
        )


def _measures(runs: Sequence[Run], classes: _Classes, data_root: str | None) -> dict[str, dict[str, float]]:
    """Return each measure of every run, by seed."""
    values: dict[str, dict[str, float]] = {}
    for run in runs:
        features, targets = features_of(run, data_root)
        few, own = _of_classes(features, targets, classes.drawn)
        minority = own == classes.drawn[-1]
        rare, frequent = (torch.isin(targets, torch.tensor(some)) for some in (classes.rare, classes.frequent))
        measured = {
            "overwhelmed": overwhelmed_share(few, minority, ~minority, classes.neighbours),
            "silhouette": mean_silhouette(few, own, classes.drawn[-1]),
            "overwhelmed_of_all": overwhelmed_share(features, rare, frequent, classes.neighbours),
        }
        for name, value in measured.items():
            values.setdefault(name, {})[str(run.config.seed)] = round(value, 5)
    return values


def _map(run: Run, classes: _Classes, data_root: str | None) -> dict[str, dict[str, list[float]]]:
    """Return the positions of the drawn samples by role."""
    few, own = _of_classes(*features_of(run, data_root), classes.drawn)
    places = plane(few)
    by_role = {role: places[own == c].T.tolist() for role, c in zip(ROLES, classes.drawn, strict=True)}
    return {role: {"x": _short(x), "y": _short(y)} for role, (x, y) in by_role.items()}


def _of_classes(features: Tensor, targets: Tensor, classes: Sequence[int]) -> tuple[Tensor, Tensor]:
    inside = torch.isin(targets, torch.tensor(classes))
    return features[inside], targets[inside]


def _short(values: Sequence[float]) -> list[float]:
    return [round(value, 2) for value in values]


def features_of(run: Run, data_root: str | None = None) -> tuple[Tensor, Tensor]:
    """Return features ``(N, D)`` and targets ``(N,)`` of a run's test images, of the first label.

    If features were not saved, the network computes them again, with images from ``data_root`` if given.
    """
    saved = run.predictions("test")
    features = _recomputed(run, data_root) if saved.features is None else saved.features
    return columns.of_label(features, 0), saved.targets[:, 0]


def _recomputed(run: Run, data_root: str | None) -> Tensor:
    config = replace(run.config, data_root=data_root or run.config.data_root, devices=1, nodes=1)
    fabric = make_fabric(engine_options(config), alone=True)
    [job] = open_jobs([RunSpec(str(run.path), config, run.path)])
    _, features = predict(fabric, load_network(run).to(fabric.device), job.held_out(fabric, "test"))
    return cast(Tensor, features)


def overwhelmed_share(
    features: Tensor, minority: Tensor, majority: Tensor, k: int = NEIGHBOURS, *, chunk: int = 512
) -> float:
    """Return the share of minority samples more than half of whose k nearest other samples are majority samples.

    Args:
        features: ``(N, D)``, compared by Euclidean distance. Of equally distant samples the first is nearer.
        minority: mask ``(N,)``.
        majority: mask ``(N,)``; samples of neither mask are neighbours, too, and count for neither.
        k: number of neighbours.
        chunk: number of samples whose distances to all others are in memory at once.

    >>> features, minority = torch.tensor([[0.0], [1.0], [9.0], [10.0], [11.0]]), torch.tensor([1, 1, 0, 0, 1]).bool()
    >>> round(overwhelmed_share(features, minority, ~minority, k=1), 3)
    0.333
    """
    rows = minority.nonzero()[:, 0]
    enough = check.is_count(k) and k < len(features)
    check.raise_all(
        [
            check.that("k", k, f"a positive integer below {len(features)}, the number of samples", enough),
            check.that("minority", len(rows), "a mask of at least one sample", len(rows) > 0),
        ]
    )
    overwhelmed, places = 0, features.double()
    for some in rows.split(chunk):
        # Computed from differences, so that equal distances stay equal.
        distances = torch.cdist(places[some], places, compute_mode="donot_use_mm_for_euclid_dist")
        distances[torch.arange(len(some)), some] = torch.inf  # no sample is its own neighbour
        nearest = distances.sort(dim=1, stable=True).indices[:, :k]
        overwhelmed += int((2 * majority[nearest].sum(1) > k).sum())
    return overwhelmed / len(rows)


def mean_silhouette(features: Tensor, classes: Tensor, minority: int) -> float:
    """Return the mean silhouette of a class: 1 if its samples are together and far from others, below 0 if among them.

    >>> features, classes = torch.tensor([[0.0], [1.0], [100.0], [101.0]]), torch.tensor([0, 0, 1, 1])
    >>> round(mean_silhouette(features, classes, 1), 2)
    0.99
    """
    from sklearn.metrics import silhouette_samples  # type: ignore[import-untyped]

    values = silhouette_samples(features.double().numpy(), classes.numpy())
    return float(values[(classes == minority).numpy()].mean())


def plane(features: Tensor, seed: int = 0) -> Tensor:
    """Return positions ``(N, 2)`` by t-SNE, which keeps near samples near; large distances mean little."""
    from sklearn.manifold import TSNE  # type: ignore[import-untyped]

    if bool((features == features[0]).all()):  # a network with constant features
        return torch.zeros(len(features), 2)
    perplexity = min(_PERPLEXITY, (len(features) - 1) / 3)
    places = TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(features.double().numpy())
    return torch.from_numpy(places)


def draw_maps(found: Mapping[str, Any], path: Path) -> None:
    """Draw the maps of ``compare_neighbourhoods`` side by side."""
    from matplotlib.figure import Figure

    figure = Figure((3.4 * len(found["maps"]), 4.1), layout="constrained")
    axes = figure.subplots(1, len(found["maps"]), squeeze=False)[0]
    for axis, letter, (row, places) in zip(axes, "abcdefgh", found["maps"].items(), strict=False):
        for role, (marker, colour) in zip(ROLES, _STYLES, strict=True):
            name = plain(f"{role}: {found['classes'][role]['name'].replace('_', ' ')}")
            axis.scatter(**places[role], s=14, marker=marker, color=colour, linewidths=0, alpha=0.9, label=name)
        axis.set_title(plain(f"({letter}) {row}"), color=INK, fontsize=10)
        axis.set_xlabel(_caption(found["rows"][row]), color=INK, fontsize=8)
        axis.set_aspect("equal", "datalim")
        axis.set_xticks([])
        axis.set_yticks([])
        axis.spines[:].set_color("#bbbbbb")
    figure.legend(
        *axes[0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=3,
        frameon=False,
        labelcolor=INK,
        fontsize=9,
    )
    figure.suptitle("t-SNE of the features of test images, first seed", color=INK, fontsize=9)
    save_figure(figure, path)


def _caption(measures: Mapping[str, Mapping[str, float]]) -> str:
    """Return the measures of the first seed's map as text."""
    among, silhouette = (next(iter(measures[name].values())) for name in ("overwhelmed", "silhouette"))
    return f"{among:.0%} of Min-1 among the others, silhouette {silhouette:.2f}"
