"""Choose the samples and classes that a batch compares. What it reads of them has a gradient, the choice has none."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from rectifier.losses.crl import mining
from rectifier.losses.crl.bounds import bounds_of
from rectifier.losses.crl.chunks import compare
from rectifier.losses.crl.closed_form import count_triplets
from rectifier.losses.crl.comparison import Comparison
from rectifier.losses.crl.design import Design
from rectifier.losses.crl.mining import Profile
from rectifier.losses.crl.pairs import Draw, FeaturePairs, ScorePairs, scored_classes
from rectifier.losses.crl.runs import list_triplets
from rectifier.losses.crl.scores import Scores
from rectifier.losses.crl.small_batch import all_triplets
from rectifier.losses.gather import shared_draw


class Rectification(NamedTuple):
    """The loss of each label, with the counts behind it; all ``(A,)``."""

    loss: Tensor
    mined_classes: Tensor
    comparisons: Tensor  # triplets, or positive and negative pairs


class Chosen(NamedTuple):
    """What a batch compares: some entries of ``Scores.values``, or features.

    The caller reads the entries at ``places`` by ``columns.take``, together with others that it needs, because the
    gradient of each reading is as large as all scores. ``losses`` and ``compare`` take what it has read.
    """

    places: Tensor  # (E,); none where features are compared
    losses: Callable[[Tensor], tuple[Tensor, Tensor]]  # the loss and the number of comparisons of each label
    mined_classes: Callable[[], Tensor]

    def compare(self, values: Tensor) -> Rectification:
        loss, comparisons = self.losses(values)
        return Rectification(loss, self.mined_classes(), comparisons)


def choose(
    scores: Scores,
    targets: Tensor,
    features: Tensor | None,
    sizes: tuple[int, ...],
    design: Design,
    generator: torch.Generator | None = None,
    gather: bool = False,
) -> Chosen:
    """Choose what to compare by the design, from scores and checked targets ``(N, A)``."""
    samples, labels = targets.shape
    if samples < 2:  # no sample has a positive
        none = targets.new_zeros(labels)
        return Chosen(none[:0], lambda values: (_zero(values, features).expand(labels), none), lambda: none)
    if design.counts_triplets:
        return _triplets(scores, targets, sizes, design)
    batch = mining.profile(targets, sizes, design.rho, design.scope)
    if design.anchors == "easy":
        every = scores.of(scores.values.detach())
        batch = batch._replace(easy=mining.easiest(batch.own, every, design.slots(samples)))
    draw = partial(shared_draw, generator=generator, gather=gather) if design.mining == "random" else None
    level = _scores if features is None else partial(_features, features)
    return level(scores, batch, sizes, design, draw)


def _triplets(scores: Scores, targets: Tensor, sizes: tuple[int, ...], design: Design) -> Chosen:
    algorithm = _ALGORITHMS[bounds_of(targets.shape[0], sizes, design).algorithm]
    with torch.no_grad():
        reading = algorithm(scores, targets, sizes, design)

    def losses(values: Tensor) -> tuple[Tensor, Tensor]:
        read = scores.of(values)
        triplets = reading.triplets(read.detach())
        return triplets.loss(read, design.common_margin), triplets.number

    return Chosen(reading.places, losses, reading.mined_classes)


_ALGORITHMS = {"small batch": all_triplets, "few classes": count_triplets, "many classes": list_triplets}


def _scores(scores: Scores, batch: Profile, sizes: tuple[int, ...], design: Design, draw: Draw | None) -> Chosen:
    pairs = ScorePairs(scored_classes(scores, batch, sizes, design, draw), batch)
    comparison = Comparison(design.comparison, design.margins(sizes, scores.values), design.bins, signed=True)
    samples, mined_classes = batch.own.shape[1], partial(batch.mined_classes, sizes)
    return Chosen(
        pairs.places, lambda values: compare(pairs.read(scores.of(values)), samples, comparison), mined_classes
    )


def _features(
    features: Tensor, scores: Scores, batch: Profile, sizes: tuple[int, ...], design: Design, draw: Draw | None
) -> Chosen:
    pairs = FeaturePairs(features, batch, design.slots(features.shape[0]), design.normalize, draw)
    comparison = Comparison(design.comparison, design.margins(sizes, features), design.bins, signed=False)
    samples, mined_classes = batch.own.shape[1], partial(batch.mined_classes, sizes)
    return Chosen(batch.own.new_zeros(0), lambda _: compare(pairs, samples, comparison), mined_classes)


def _zero(values: Tensor, features: Tensor | None) -> Tensor:
    """Return 0 with a gradient path to what would have been compared."""
    return ((values if features is None else features) * 0).sum()
