"""The options of the Class Rectification Loss: what they may be, and what they mean for a batch."""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor

from rectifier._base import check
from rectifier.labels import columns


class Design(NamedTuple):
    """The options of the loss."""

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
        """Return the design, or raise everything that is wrong with it."""
        kappa, rho, margin, bins = self.kappa, self.rho, self.margin, self.bins
        check.raise_all(
            [
                check.choice("level", self.level, ("class", "instance")),
                check.choice("comparison", self.comparison, ("relative", "absolute", "distribution")),
                check.choice("scope", self.scope, ("minority", "all")),
                check.choice("mining", self.mining, ("hard", "random", "all")),
                check.that("kappa", kappa, "a positive integer", check.is_count(kappa)),
                check.share("rho", rho),
                check.that("margin", margin, "a positive number or None", margin is None or _is_positive(margin)),
                check.that("bins", bins, "an integer of at least 2", check.is_count(bins) and bins > 1),
                check.choice("scores", self.scores, ("probability", "log-probability")),
                check.choice("anchors", self.anchors, ("all", "easy")),
                self._scores_complaint(),
            ]
        )
        return self

    def _scores_complaint(self) -> str | None:
        if self.scores != "log-probability":
            return None
        if self.level == "instance":
            where = "level='instance', which compares distances between features"
        elif self.comparison == "distribution":
            where = "comparison='distribution', whose histograms reach from -1 to 1"
        else:
            return None
        return check.sentence("scores", f"'probability' for {where}", repr(self.scores))

    def described(self) -> str:
        """Return the options as they are written in a call."""
        return ", ".join(f"{name}={value!r}" for name, value in self._asdict().items())

    def slots(self, samples: int) -> int:
        """Return how many positives and how many negatives are mined."""
        fewer = self.mining == "all" or self.kappa > samples  # not min(): a compiled graph would make kappa symbolic
        return samples if fewer else self.kappa

    def margins(self, sizes: tuple[int, ...], like: Tensor) -> Tensor:
        """Return ``(A,)`` margins: 0.5 at class level (1 between log-probabilities), at instance level 2 pi / classes
        (Eq. 12), absolute 1.
        """
        if self.margin is None and self.level == "instance" and self.comparison == "relative":
            return 2 * math.pi / columns.label_sizes(sizes, like.device).to(like.dtype)
        default = 0.5 if self.level == "class" and self.scores == "probability" else 1.0
        return like.new_full((len(sizes),), default if self.margin is None else self.margin)


def check_reduction(label_reduction: str) -> str:
    check.raise_all([check.choice("label_reduction", label_reduction, ("sum", "mean", "none"))])
    return label_reduction


def reduce_labels(per_label: Tensor, label_reduction: str) -> Tensor:
    """Sum or average ``(A,)`` over the labels, or leave it."""
    if label_reduction == "none":
        return per_label
    return per_label.sum() if label_reduction == "sum" else per_label.mean()


def _is_positive(value: object) -> bool:
    return check.is_real(value) and value > 0
