"""Design: the options of the Class Rectification Loss, and their meaning for a batch."""

from __future__ import annotations

import math
from typing import NamedTuple

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

    def slots(self, samples: int) -> int:
        """Return the number of positives, and of negatives, to mine."""
        fewer = self.mining == "all" or self.kappa > samples  # min() would make kappa symbolic in a compiled graph
        return samples if fewer else self.kappa

    def margins(self, sizes: tuple[int, ...], like: Tensor) -> Tensor:
        """Return ``(A,)`` margins: at class level 0.5 (1 for log-probabilities), at instance level 2 pi / classes (Eq.
        12).

        The absolute comparison at instance level has 1.
        """
        if self.margin is None and self.level == "instance" and self.comparison == "relative":
            return 2 * math.pi / columns.label_sizes(sizes, like.device).to(like.dtype)
        default = 0.5 if self.level == "class" and self.scores == "probability" else 1.0
        return like.new_full((len(sizes),), default if self.margin is None else self.margin)
