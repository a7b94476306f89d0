"""What a score is compared with: a constant answer, and HOG with logistic regression. A sentence if it is no better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rectifier._base import check, console
from rectifier.data.dataset import ImageData, Pixels
from rectifier.data.features import CachedFeatures, cached_features
from rectifier.evaluation.by_features.hog import hog_features
from rectifier.evaluation.metrics import class_balanced_accuracy
from rectifier.networks.pretrained.steps import one_thread
from rectifier.training.heads import FeatureTable, HeadSpec, TrainedHead, train_heads

CONSTANT = "constant answer"
HOG = "HOG + logistic regression"
HELD_OUT = ("validation", "test")

MOST_TRAINING = 10_000
"""Training images of the logistic regression at most: more cost time and hardly change its score."""

RATES = (3e-4, 1e-3)
"""Learning rates of the logistic regression. Validation chooses the rate and the epoch."""

_STEPS = 320  # of the optimiser, in 5 to 20 epochs
_BATCH = 256
_MARGIN = 0.005  # a score this close to that of a constant answer is no better
_SAME = 1e-5  # scores in float32 that differ by less are equal
_COLLAPSED = 10  # epochs with one answer to every image that are worth a sentence


@dataclass(frozen=True)
class GradientHistograms:
    """Histograms of oriented gradients as a ``Compute``, so that they are cached like features of a network.

    >>> GradientHistograms()(np.zeros((2, 64, 64, 3), np.uint8))["hog"].shape
    (2, 1764)
    """

    size: tuple[int, int] = (64, 64)
    interpolation: str = "bilinear"
    key: str = "hog-9-orientations-8x8-cells-2x2-blocks"

    @property
    def layers(self) -> dict[str, tuple[int, ...]]:
        down, across = (side // 8 - 1 for side in self.size)
        return {"hog": (down * across * 2 * 2 * 9,)}

    @property
    def described(self) -> str:
        return f"HOG at {self.size[0]} x {self.size[1]} pixels"

    def __call__(self, pixels: Pixels, /) -> dict[str, NDArray[np.float32]]:
        with console.quiet():  # the extraction has a progress bar already
            return {"hog": hog_features(pixels, workers=1).numpy()}


def baseline_scores(source: ImageData, *, seed: int = 0) -> dict[str, dict[str, float]]:
    """Return the class-balanced accuracy of both baselines on validation and test: part, name, value.

    ``CONSTANT`` always answers with the most frequent training class of each label. ``HOG`` is logistic regression with
    logit adjustment on histograms of oriented gradients, which are computed once and cached. It learns from at most
    ``MOST_TRAINING`` training images; ``seed`` draws them. Unreadable images are left out. A score that does not exist,
    such as that of a part without labelled images, is left out too.

    ``source`` has files, pixels in memory or a store. ``list(found["test"].items())`` are rows for people.

    >>> from rectifier.data.dataset import ImageArray
    >>> from rectifier.labels.space import LabelSpace
    >>> targets, split = torch.tensor([0, 0, 1, 0, 1, 0, 1]), torch.tensor([0, 0, 0, 1, 1, 2, 2])
    >>> pixels = np.random.default_rng(0).integers(0, 256, (7, 8, 8, 3), np.uint8)
    >>> data = ImageData("noise", ImageArray(pixels), targets[:, None], LabelSpace.from_sizes([2]), split)
    >>> with console.quiet():
    ...     baseline_scores(data)["test"]["constant answer"]
    0.5
    """
    described = _hog_of(source, seed)
    if not len(described.indices("train")):
        raise ValueError(f"No training image of {source.name!r} can be read.")
    head = _logistic_regression(described, seed)
    found: dict[str, dict[str, float]] = {}
    for part in HELD_OUT:
        data, held_out = source.part(part), described.part(part)
        scores = {CONSTANT: _score(_constant_answer(source, len(data)), data)}
        if len(held_out):
            scores[HOG] = _score(head.logits(_features(held_out)), held_out)
        found[part] = {name: score for name, score in scores.items() if score == score}  # NaN differs from itself
    return found


def verdict(
    score: float,
    baselines: Mapping[str, float],
    scores_by_epoch: Sequence[float | None],
    rule: str,
    *,
    tune: str | None = None,
) -> str | None:
    """Say in a sentence or two that a model is no better than a baseline, and what to try. None if it is better.

    Args:
        score: Class-balanced accuracy of the model on validation, as it is kept.
        baselines: Those on validation, by name, as in ``baseline_scores``.
        scores_by_epoch: Class-balanced accuracy on validation after each epoch; None where nothing was measured.
        rule: The decision rule of ``score``, for the sentence.
        tune: What of a pretrained network was trained, which changes the advice. None for another network.

    >>> verdict(0.58, {"constant answer": 0.5, "HOG + logistic regression": 0.55}, [0.52, 0.57, 0.58], "argmax")
    >>> verdict(0.5, {"constant answer": 0.5}, [0.5] * 20, "argmax", tune="head")
    'The model is no better than a constant answer after any epoch (50.0 % against 50.0 % class-balanced accuracy on \
validation under argmax): it has learned nothing. Try a smaller learning rate (rectifier lr-find suggests one).'
    """
    measured = {epoch: own for epoch, own in enumerate(scores_by_epoch, 1) if own is not None and own == own}
    constant, where = baselines.get(CONSTANT, 0.0), f"class-balanced accuracy on validation under {rule}"
    if constant > 1 - _MARGIN:
        return f"A constant answer reaches {_percent(constant)} on validation: it has too few classes to judge a model."
    learned = score > constant + _MARGIN
    one_answer = _epochs_with_one_answer(measured, constant) if learned else 0
    if learned:
        said = _against_hog(score, baselines.get(HOG), where)
    else:
        said = _against_constant(score, baselines, measured, where)
    if one_answer:
        said.append(f"The last {one_answer} epochs give one answer to every image.")
    stable = learned and not one_answer
    return " ".join([*said, _remedy(list(measured.values()), stable, tune)]) if said else None


def _against_constant(
    score: float, baselines: Mapping[str, float], measured: Mapping[int, float], where: str
) -> list[str]:
    """Return sentences about a model that has learned nothing."""
    constant, hog = baselines.get(CONSTANT, 0.0), baselines.get(HOG, 0.0)
    better = [epoch for epoch in measured if measured[epoch] > constant + _MARGIN]
    ever, lesson = "" if better or not measured else " after any epoch", "it has learned nothing"
    if better:
        best = max(better, key=lambda epoch: measured[epoch])
        lesson = f"it was better after epoch {best} ({_percent(measured[best])}) and has lost that"
    said = [
        f"The model is no better than a constant answer{ever} ({_percent(score)} against {_percent(constant)} {where}):"
        f" {lesson}."
    ]
    if hog > constant + _MARGIN:
        said.append(f"{HOG} reaches {_percent(hog)}.")
    return said


def _against_hog(score: float, hog: float | None, where: str) -> list[str]:
    """Return a sentence if the baseline is as good as the model, or better."""
    if hog is None or hog < score:
        return []
    if _percent(hog) == _percent(score):
        return [f"{HOG} is as good as the model ({_percent(score)} {where})."]
    return [f"{HOG} is better than the model ({_percent(hog)} against {_percent(score)} {where})."]


def _epochs_with_one_answer(measured: Mapping[int, float], constant: float) -> int:
    """Return for how many epochs at the end a network gives one answer to every image; 0 if they are few.

    One answer to every image has the score of the constant answer, whichever class of validation it is. Another model
    has this very score by accident only, and not for many epochs.
    """
    varied = [epoch for epoch, score in measured.items() if abs(score - constant) > _SAME]
    alike = max(measured, default=0) - max(varied, default=0)
    return alike if alike >= _COLLAPSED or 2 * alike >= max(len(measured), 4) else 0


def _remedy(scores: Sequence[float], stable: bool, tune: str | None) -> str:
    late = max(1, len(scores) // 10)
    rising = len(scores) > late and max(scores[-late:]) > max(scores[:-late])
    advice = {
        "a smaller learning rate (rectifier lr-find suggests one)": bool(scores) and not stable,
        "more epochs (--epochs)": 0 < len(scores) < _COLLAPSED or (stable and rising),
        "a pretrained network (--network auto)": tune is None,
        "fine-tuning (--tune last)": tune == "head" and stable,
    }
    fitting = [text for text, fits in advice.items() if fits]
    return f"Try {', or '.join(fitting or ['more images of the rare classes'])}."


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _hog_of(source: ImageData, seed: int) -> ImageData:
    """Return the data with HOG for images, and no more training images than are used."""
    train = source.indices("train")
    if len(train) > MOST_TRAINING:
        drawn = torch.randperm(len(train), generator=torch.Generator().manual_seed(seed))[:MOST_TRAINING]
        kept = torch.cat([train[drawn], *(source.indices(part) for part in HELD_OUT)]).sort().values
        console.say(f"{HOG} learns from {MOST_TRAINING:,} of {check.amount(len(train), 'training image')}.")
        source = source.select(kept)
    # Another name, because the list of unreadable images that has the name of the data is that of all its images.
    return cached_features(replace(source, name=f"{source.name}-hog"), GradientHistograms())


def _logistic_regression(data: ImageData, seed: int) -> TrainedHead:
    """Train one linear classifier of all labels at each rate, and return the best on validation."""
    validation = _table(data, "validation") if len(data.indices("validation")) else None
    table = _table(data, "train")
    epochs = min(20, max(5, _STEPS * _BATCH // len(table)))
    specs = [HeadSpec("logit-adjustment", lr=rate, epochs=epochs, batch_size=_BATCH, seed=seed) for rate in RATES]
    with one_thread():  # seconds on one core, many times that where threads wait for busy cores
        heads = train_heads(table, specs, validation=validation, choose="best" if validation else "last")
    return max(heads, key=lambda head: head.score or 0.0)


def _table(data: ImageData, part: str) -> FeatureTable:
    own = data.part(part)
    return FeatureTable(_features(own), own.targets, own.space)


def _features(data: ImageData) -> Tensor:
    return torch.from_numpy(cast(CachedFeatures, data.images).gather(np.arange(len(data))))


def _constant_answer(source: ImageData, samples: int) -> Tensor:
    """Return the most frequent training class of each label, ``(samples, A)``."""
    answer = torch.stack([counts.argmax() for counts in source.counts("train")])
    return answer.expand(samples, -1)


def _score(preds: Tensor, data: ImageData) -> float:
    return float(class_balanced_accuracy(preds, data.targets, data.space))
