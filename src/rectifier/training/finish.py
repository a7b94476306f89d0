"""Finish a run: adjust the classifier where the method says so, predict once, and score.

Methods that decide by features are fitted here on the features of the training part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from lightning.fabric import Fabric
from torch import Tensor

from rectifier._base import check, console
from rectifier.data.dataset import Decoded, ImageFiles
from rectifier.data.store import available_cores
from rectifier.evaluation.by_features import DECISIONS, ClusterDecision, Decision, NeighbourDecision
from rectifier.evaluation.by_features.hog import hog_features
from rectifier.networks.decoupling import choose_tau, tau_normalised
from rectifier.samplers.lmle.clusters import CLUSTER_SIZE
from rectifier.training.baselines import baseline_scores, verdict
from rectifier.training.engine.outputs import predict
from rectifier.training.job import Job
from rectifier.training.run.predictions import MOST_FEATURES, Predictions
from rectifier.training.run.results import score_predictions

HELD_OUT = ("validation", "test")
_SAME = 0.05  # logits that differ by less hardly depend on the image; in bfloat16 rounding alone does that
_AT_ONCE = 8192  # images whose pixels are in memory together

SCORED_APART = 2**18
"""Logits of a part from which on runs are scored in separate processes: fewer are faster to score than to send."""

COLLAPSE = "lower `eta` or set `rectify_from=0.25`."
"""The remedy when hard mining collapses the features and CRL gives constant predictions."""


def finish(fabric: Fabric, jobs: Sequence[Job]) -> None:
    """Predict validation and test once, save the predictions, and score them."""
    found = [_predicted(fabric, job) for job in jobs]
    if fabric.is_global_zero:
        for source in {id(job.opened.source): job.opened.source for job in jobs if has_baselines(job)}.values():
            try:
                scores = baseline_scores(source)
            except (OSError, ValueError) as error:  # a trained run is worth more than its baselines
                console.say(f"No baselines: {error}")
                continue
            for job in jobs:
                if job.opened.source is source and has_baselines(job):
                    job.run.save_baselines(scores)
        for job, scored in zip(jobs, _scored(jobs, found), strict=True):
            job.run.save_results(*scored)
            _say_verdict(job)


def has_baselines(job: Job) -> bool:
    """Say whether a run is compared with baselines: those on photographs are, unless told otherwise."""
    wanted = job.config.baselines
    return isinstance(job.opened.source.images, ImageFiles) if wanted is None else wanted


def _say_verdict(job: Job) -> None:
    """Say it plainly if a run is no better than a constant answer or than HOG."""
    baselines = job.run.baselines
    rule = job.run.rules["preferred"]
    score = job.run.rules["validation"][rule]
    if baselines is None or score is None:
        return
    epochs = [row["validation"] for row in job.run.history() if row["epoch"]]
    tune = None if job.backbone is None else job.config.tune
    said = verdict(score, baselines["validation"], epochs, rule, tune=tune)
    if said is not None:
        console.say(f"{job.run.path}: {said}")


def _predicted(fabric: Fabric, job: Job) -> dict[str, Predictions]:
    """Save the predictions of the held-out parts and what makes them; return the predictions without features."""
    is_trained = job.method.features is None
    if not is_trained and not fabric.is_global_zero:
        return {}
    job.network.to(fabric.device)
    if job.afterwards.kind == "tau":
        _normalise_classifier(fabric, job)
    found = {part: _predictions(fabric, job, part) for part in HELD_OUT}
    decision = None if job.method.decision is None else _decide(fabric, job, found)
    if fabric.is_global_zero:
        if is_trained:
            job.run.save_weights(job.weights)
        if decision is not None:
            job.run.save_decision(cast(str, job.method.decision), decision.state())
        for part, predictions in found.items():
            job.run.save_predictions(part, predictions)
        _warn_of_blind_labels(found["validation"], job.method.rectification is not None)
    return {part: replace(predictions, features=None) for part, predictions in found.items()}


def _scored(jobs: Sequence[Job], found: Sequence[dict[str, Predictions]]) -> Iterator[tuple[dict[str, Any], ...]]:
    """Yield rules and metrics of each run. Several large runs are scored at the same time.

    Each has its own process: threads would wait for each other at thousands of small steps.
    """
    work = [(own, job.counts, job.config.method) for job, own in zip(jobs, found, strict=True)]
    from joblib import Parallel, delayed  # type: ignore[import-untyped]

    large = any(part.logits.numel() >= SCORED_APART for own in found for part in own.values())
    # A generator, so that each run is saved as soon as it is scored.
    workers = Parallel(min(len(work), available_cores()) if large else 1, return_as="generator")
    yield from workers(delayed(score_predictions)(*one) for one in work)


def _warn_of_blind_labels(predictions: Predictions, rectified: bool) -> None:
    if blind := blind_labels(predictions):
        named = ", ".join(blind[:3]) + (", ..." if blind[3:] else "")
        remedy = f"To avoid this, {COLLAPSE}" if rectified else "A smaller learning rate or a warm-up often helps."
        console.say(
            f"{len(blind)} of {check.amount(len(predictions.space), 'label')} ({named}): the logits are the same for"
            f" every validation image. {remedy}"
        )


def blind_labels(predictions: Predictions) -> list[str]:
    """Return the labels whose logits are the same for every image."""
    if len(predictions.logits) < 2:
        return []
    moves = predictions.logits.amax(0) - predictions.logits.amin(0)
    by_label = moves.split(list(predictions.space.sizes))
    return [name for name, own in zip(predictions.space.names, by_label, strict=True) if float(own.max()) < _SAME]


def _predictions(fabric: Fabric, job: Job, part: str) -> Predictions:
    data, index = job.data, job.data.indices(part)
    wanted = job.method.decision is not None or (job.config.features and _features_fit(job, len(index)))
    logits, features = _outputs(fabric, job, part, wanted)
    return Predictions(logits, data.targets[index], tuple(data.ids[i] for i in index.tolist()), data.space, features)


def _outputs(fabric: Fabric, job: Job, part: str, with_features: bool = True) -> tuple[Tensor, Tensor | None]:
    """Return the network's logits and features, or no logits and histograms of oriented gradients without a network."""
    if job.method.features is None:
        return predict(fabric, job.network, job.held_out(fabric, part), with_features)
    images, rows = cast(Decoded, job.data.images), job.data.indices(part).split(_AT_ONCE)
    return torch.zeros(0, job.data.space.columns), torch.cat([hog_features(images.gather(r.numpy())) for r in rows])


def _decide(fabric: Fabric, job: Job, found: dict[str, Predictions]) -> Decision:
    """Fit the decision by features, and replace the classifier's logits with its scores."""
    kind = DECISIONS[cast(str, job.method.decision)]
    features = cast(Tensor, _outputs(fabric, job, "train")[1])
    known = {part: cast(Tensor, predictions.features).float() for part, predictions in found.items()}
    options: dict[str, Any] = {"unit": False} if kind is NeighbourDecision and job.method.features else {}
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
    return decision


def _normalise_classifier(fabric: Fabric, job: Job) -> None:
    """Divide the weights of each class by a power of their norm, chosen on validation; biases become 0."""
    classifier: Any = job.network.head.classifier  # type: ignore[union-attr]
    _, features = _outputs(fabric, job, "validation")
    targets, weight = job.data.targets[job.data.indices("validation")], classifier.weight.detach().float().cpu()
    tau = choose_tau(cast(Tensor, features), targets, weight, None, job.data.space.sizes)
    console.say(f"The weights of each class are divided by their norm to the power of {tau:g}.")
    with torch.no_grad():
        classifier.weight.copy_(tau_normalised(classifier.weight, tau))
        classifier.bias.zero_()


def _features_fit(job: Job, samples: int) -> bool:
    """Say whether the features of so many samples are small enough to be saved in half precision."""
    head: Any = job.network.head
    branches = 1 if head.entry is None else len(job.data.space)
    fits = 2 * samples * branches * int(head.classifier.weight.shape[1]) <= MOST_FEATURES
    if not fits:
        console.say(f"The features of {samples:,} samples are not saved: they exceed 1 GiB.")
    return fits
