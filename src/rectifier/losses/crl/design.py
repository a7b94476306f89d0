"""Design: the options of the Class Rectification Loss, and their meaning for a batch."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rectifier._base import check
from rectifier.labels import columns


class Design(NamedTuple):
    """The options of the loss; ``ClassRectificationLoss`` explains them."""

    level: str = "class"
    comparison: str = "relative"
    kappa: int = 25
    rho: float = 0.5
    margin: float | None = None
    scope: str = "minority"
    mining: str = "hard"
    bins: int = 100
    normalize: bool = False
    scores: str = "probability"
    anchors: str = "all"

    def checked(self) -> Design:
        """Return the design, or raise all its errors together."""
        margin, bins = self.margin, self.bins
        margin_ok = margin is None or (check.is_real(margin) and margin > 0)
        probability_for = ""
        if self.level == "instance":
            probability_for = "level='instance', which compares features"
        elif self.comparison == "distribution":
            probability_for = "comparison='distribution', whose histograms are from -1 to 1"
        scores_ok = self.scores != "log-probability" or not probability_for
        check.raise_all(
            [
                check.choice("level", self.level, ("class", "instance")),
                check.choice("comparison", self.comparison, ("relative", "absolute", "distribution")),
                check.choice("scope", self.scope, ("minority", "all")),
                check.choice("mining", self.mining, ("hard", "random", "all")),
                check.count("kappa", self.kappa),
                check.share("rho", self.rho),
                check.that("margin", margin, "a positive number or None", margin_ok),
                check.that("bins", bins, "an integer of at least 2", check.is_count(bins) and bins > 1),
                check.choice("scores", self.scores, ("probability", "log-probability")),
                check.choice("anchors", self.anchors, ("all", "easy")),
                check.that("scores", self.scores, f"'probability' for {probability_for}", scores_ok),
            ]
        )
        return self

    def described(self) -> str:
        """Return the options as written in a call."""
        return ", ".join(f"{name}={value!r}" for name, value in self._asdict().items())

    @property
    def reads_scores(self) -> bool:
        """Whether scores matter: at the class level, and where they choose the anchors."""
        return self.level == "class" or self.anchors == "easy"

    @property
    def counts_triplets(self) -> bool:
        """Whether the loss needs no list of pairs, because it is linear in scores and every sample is an anchor."""
        triplets = self.level == "class" and self.comparison == "relative"
        return triplets and self.anchors == "all" and self.mining != "random"

    @property
    def takes_all(self) -> bool:
        """Whether every class of a batch may be mined, even the largest."""
        return self.scope == "all" or self.rho > 1023 / 1024

    def slots(self, samples: int) -> int:
        """Return the number of positives, and of negatives, to mine.

        In a graph for any number of samples it is kappa, a constant, even if a batch has fewer.
        """
        return samples if self.mining == "all" or certain(samples < self.kappa) else self.kappa

    def margins(self, sizes: tuple[int, ...], like: Tensor) -> Tensor:
        """Return ``(A,)`` margins: ``common_margin`` or, for triplets of features, 2 pi / classes (Eq. 12)."""
        if self.margin is None and self.level == "instance" and self.comparison == "relative":
            return 2 * math.pi / columns.label_sizes(sizes, like.device).to(like.dtype)
        return like.new_full((len(sizes),), self.common_margin)

    @property
    def common_margin(self) -> float:
        """The margin of all labels: 0.5 between probabilities, 1 between log-probabilities and features."""
        default = 0.5 if self.level == "class" and self.scores == "probability" else 1.0
        return default if self.margin is None else self.margin


def make_design(*options: Any) -> Design:
    """Return the checked design with these options. One that was checked before is not checked again."""
    try:
        return Design(*options).checked() if torch.compiler.is_compiling() else _known_design(*options)
    except TypeError:  # an option that cannot be hashed, which the check refuses
        return Design(*options).checked()


@lru_cache(maxsize=128, typed=True)  # so that True is not taken for 1
def _known_design(*options: Any) -> Design:
    return Design(*options).checked()


def certain(condition: bool) -> bool:
    """Return whether a condition on shapes holds. In a compiled graph: whether it holds for all batches of the graph.

    A Python comparison would tie the graph to one side of it.
    """
    if not torch.compiler.is_compiling():
        return bool(condition)
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return statically_known_true(condition)
