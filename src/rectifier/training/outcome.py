"""What becomes of a trained network: its classifier mended, its predictions made once, and scored."""

from __future__ import annotations

from typing import Any, cast

import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

from rectifier import console
from rectifier.data.dataset import ImageData
from rectifier.decoupling import choose_tau, tau_normalised
from rectifier.engine.predict import predict
from rectifier.runs.folder import Run
from rectifier.runs.predictions import MOST_FEATURES, Predictions
from rectifier.runs.results import score_predictions
from rectifier.training.job import Job

HELD_OUT = ("validation", "test")


def finish(fabric: Fabric, job: Job, run: Run) -> None:
    """Predict validation and test once, and score what was predicted."""
    network = job.network.to(fabric.device)
    if job.afterwards.kind == "tau":
        _normalise_classifier(fabric, job, network)
    found = {part: _predictions(fabric, job, network, part) for part in HELD_OUT}
    if not fabric.is_global_zero:
        return
    run.save_weights(network.state_dict())
    for part, predictions in found.items():
        run.save_predictions(part, predictions)
    rules, metrics = score_predictions(found, job.counts, job.config.method)
    run.save_results(rules, metrics)


def _predictions(fabric: Fabric, job: Job, network: nn.Module, part: str) -> Predictions:
    data, index = job.data, job.data.indices(part)
    wanted = job.config.features and _features_fit(network, len(index), job.data)
    logits, features = predict(fabric, network, job.held_out(fabric, part), wanted)
    ids = tuple(data.ids[i] for i in index.tolist())
    return Predictions(logits, data.targets[index], ids, data.space, features)


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
