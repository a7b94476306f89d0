"""What becomes of a trained network: its classifier mended, its predictions made once, and scored.

Where features decide in place of the classifier, what they decide by is fitted on those of the training part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

from rectifier._base import check, console
from rectifier.data.dataset import Decoded, ImageData
from rectifier.data.store import available_cores
from rectifier.evaluation.by_features import DECISIONS, ClusterDecision, Decision, NeighbourDecision
from rectifier.evaluation.by_features.hog import hog_features
from rectifier.networks.decoupling import choose_tau, tau_normalised
from rectifier.samplers.lmle.clusters import CLUSTER_SIZE
from rectifier.training.engine.predict import predict
from rectifier.training.job import Job
from rectifier.training.run.folder import Run
from rectifier.training.run.predictions import MOST_FEATURES, Predictions
from rectifier.training.run.results import score_predictions

HELD_OUT = ("validation", "test")
_SAME = 0.05  # logits that differ by less from image to image hardly depend on it, and in bfloat16 by rounding alone
_AT_ONCE = 8192  # images whose pixels are in memory together

SCORED_APART = 2**18
"""Logits of a part from which on runs are scored in processes of their own: fewer are scored before one has begun."""


def finish(fabric: Fabric, jobs: Sequence[Job], runs: Sequence[Run]) -> None:
    """Predict validation and test once, and score what was predicted."""
    found = [_predicted(fabric, job, run) for job, run in zip(jobs, runs, strict=True)]
    if fabric.is_global_zero:
        for run, scored in zip(runs, _scored(jobs, found), strict=True):
            run.save_results(*scored)


def _predicted(fabric: Fabric, job: Job, run: Run) -> dict[str, Predictions]:
    """Return what is predicted of the held-out parts, without features; it is saved, and so is what predicted it."""
    untrained = job.method.features is not None
    if untrained and not fabric.is_global_zero:
        return {}
    found, decision = (_by_gradients if untrained else _by_network)(fabric, job)
    if fabric.is_global_zero:
        if not untrained:
            run.save_weights(job.network.state_dict())
        if decision is not None:
            run.save_decision(cast(str, job.method.decision), decision.state())
        for part, predictions in found.items():
            run.save_predictions(part, predictions)
        _tell_blind(found["validation"], job.method.rectification is not None)
    return {part: replace(predictions, features=None) for part, predictions in found.items()}


def _by_network(fabric: Fabric, job: Job) -> tuple[dict[str, Predictions], Decision | None]:
    network = job.network.to(fabric.device)
    if job.afterwards.kind == "tau":
        _normalise_classifier(fabric, job, network)
    found = {part: _predictions(fabric, job, network, part) for part in HELD_OUT}
    if job.method.decision is None:
        return found, None
    _, features = predict(fabric, network, job.held_out(fabric, "train"))
    return _decided(fabric, job, cast(Tensor, features), found)


def _by_gradients(fabric: Fabric, job: Job) -> tuple[dict[str, Predictions], Decision | None]:
    """Predict by features that no network has to learn: histograms of oriented gradients."""
    features = {part: _gradients(job.data, part) for part in ("train", *HELD_OUT)}
    empty = torch.zeros(0, job.data.space.columns)
    found = {part: _as_predictions(job.data, part, empty, features[part]) for part in HELD_OUT}
    return _decided(fabric, job, features["train"], found)


def _scored(jobs: Sequence[Job], found: Sequence[dict[str, Predictions]]) -> Iterator[tuple[dict[str, Any], ...]]:
    """Yield rules and metrics of each. Several are scored at the same time, where that is more than a moment's work.

    Each in a process of its own: threads would wait for each other at thousands of small steps.
    """
    asked = [(own, job.counts, job.config.method) for job, own in zip(jobs, found, strict=True)]
    if len(asked) < 2 or max(part.logits.numel() for own in found for part in own.values()) < SCORED_APART:
        yield from (score_predictions(*one) for one in asked)
        return
    from joblib import Parallel, delayed  # type: ignore[import-untyped]

    # A generator, so that each is saved as soon as it is there.
    workers = Parallel(min(len(asked), available_cores()), return_as="generator")
    yield from workers(delayed(score_predictions)(*one) for one in asked)


def _tell_blind(predictions: Predictions, rectified: bool) -> None:
    if blind := blind_labels(predictions):
        named = ", ".join(blind[:3]) + (", ..." if blind[3:] else "")
        remedy = COLLAPSE if rectified else "A smaller rate or a warm-up often helps."
        console.say(
            f"{len(blind)} of {check.amount(len(predictions.space), 'label')} ({named}): the logits are the same for"
            f" every validation image. {remedy}"
        )


COLLAPSE = (
    "Hard mining from the first step can collapse features to a point, where the rectification stays at its margin and"
    " units die. Give rectification less weight (a smaller eta), or let cross-entropy begin (rectify_from=0.25)."
)
"""What happens when CRL ends in constant answers, and what helps."""


def blind_labels(predictions: Predictions) -> list[str]:
    """Return the labels whose logits are the same for every image."""
    if len(predictions.logits) < 2:
        return []
    moves = predictions.logits.amax(0) - predictions.logits.amin(0)
    by_label = moves.split(list(predictions.space.sizes))
    return [name for name, own in zip(predictions.space.names, by_label, strict=True) if float(own.max()) < _SAME]


def _predictions(fabric: Fabric, job: Job, network: nn.Module, part: str) -> Predictions:
    wanted = job.method.decision is not None
    wanted = wanted or (job.config.features and _features_fit(network, len(job.data.indices(part)), job.data))
    logits, features = predict(fabric, network, job.held_out(fabric, part), wanted)
    return _as_predictions(job.data, part, logits, features)


def _as_predictions(data: ImageData, part: str, logits: Tensor, features: Tensor | None) -> Predictions:
    index = data.indices(part)
    ids = tuple(data.ids[i] for i in index.tolist())
    return Predictions(logits, data.targets[index], ids, data.space, features)


def _decided(
    fabric: Fabric, job: Job, features: Tensor, found: dict[str, Predictions]
) -> tuple[dict[str, Predictions], Decision]:
    """Fit what decides by features, and put its scores where the classifier's logits were."""
    kind = DECISIONS[cast(str, job.method.decision)]
    known = {part: cast(Tensor, predictions.features).float() for part, predictions in found.items()}
    options: dict[str, Any] = {"unit": False} if kind is NeighbourDecision and job.method.features else {}  # of edges
    if kind is ClusterDecision:
        options = {"size": job.config.method_options.get("cluster_size", CLUSTER_SIZE), "seed": job.config.seed}
    targets = job.data.targets[job.data.indices("train")].to(fabric.device)
    console.say(f"Deciding by features: {job.method.about}")
    decision = kind.fit(
        features.float().to(fabric.device),
        targets,
        job.data.space,
        known["validation"].to(fabric.device),
        found["validation"].targets.to(fabric.device),
        **options,
    )
    for part, predictions in found.items():
        scores = decision(known[part].to(fabric.device)).cpu()
        fits = job.config.features and 2 * known[part].numel() <= MOST_FEATURES
        found[part] = replace(predictions, logits=scores, features=predictions.features if fits else None)
    return found, decision


def _gradients(data: ImageData, part: str) -> Tensor:
    images = cast(Decoded, data.images)
    return torch.cat([hog_features(images.gather(rows.numpy())) for rows in data.indices(part).split(_AT_ONCE)])


def _normalise_classifier(fabric: Fabric, job: Job, network: nn.Module) -> None:
    """Divide each class's weights by a power of their norm that validation likes best; biases go, as published."""
    classifier: Any = network.head.classifier  # type: ignore[union-attr]
    _, features = predict(fabric, network, job.held_out(fabric, "validation"))
    index = job.data.indices("validation")
    weight, sizes = classifier.weight.detach().float().cpu(), job.data.space.sizes
    tau = choose_tau(cast(Tensor, features), job.data.targets[index], weight, None, sizes)
    console.say(f"Class weights are divided by their norm to the power of {tau:g}.")
    with torch.no_grad():
        classifier.weight.copy_(tau_normalised(classifier.weight, tau))
        classifier.bias.zero_()


def _features_fit(network: nn.Module, samples: int, data: ImageData) -> bool:
    """Say whether the features of so many samples are small enough to be saved, in half precision."""
    head: Any = network.head
    branches = 1 if head.entry is None else len(data.space)
    fits = 2 * samples * branches * int(head.classifier.weight.shape[1]) <= MOST_FEATURES
    if not fits:
        console.say(f"Features of {samples:,} samples are left out of the saved predictions: they would pass 1 GiB.")
    return fits
