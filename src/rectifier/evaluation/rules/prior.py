"""Subtract the log prior of the training classes from the logits, wholly or by a share that validation chooses."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from rectifier._base import check
from rectifier.evaluation.rules.rule import CountRule
from rectifier.labels.columns import Sizes
from rectifier.labels.counts import Counts
from rectifier.labels.imbalance import log_prior

TAUS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0)
"""The values of tau that ``PriorRule.fit`` tries."""


def prior_offsets(class_counts: Counts, tau: float = 1.0) -> Tensor:
    """Return ``-tau * log(prior)`` of every class, ``(K,)``. Add it to the logits to take the prior off.

    ``class_counts`` are those of the training split. A class without a training sample has the prior of half a sample.

    >>> prior_offsets([90, 10]).exp().round(decimals=2)
    tensor([ 1.1100, 10.0000])
    """
    return (-tau * log_prior(class_counts)).float()


def adjusts_prior(loss: object) -> bool:
    """Say whether a loss corrects for class frequencies during training.

    It does if it, or a part of it, has ``adjusts_prior = True``, or is a loss of PyTorch with class weights.
    """

    def corrects(part: object) -> bool:
        if isinstance(part, nn.CrossEntropyLoss | nn.NLLLoss):
            return part.weight is not None
        return getattr(part, "adjusts_prior", False) is True

    return any(map(corrects, loss.modules() if isinstance(loss, nn.Module) else [loss]))


class PriorRule(CountRule):
    """Subtract tau times the log prior from the logits: post-hoc logit adjustment (Menon et al. 2021).

    A model trained with plain cross-entropy on imbalanced data prefers frequent classes. This rule decides as if all
    classes were equally frequent. It needs no fit: tau = 1 follows from Bayes' rule. ``fit`` chooses tau on validation.

    Args:
        class_counts: Training samples of each class: a list or 1-d tensor for one label, a list of them for several.
        tau: Strength of the correction. 0 changes nothing.
        sizes: A LabelSpace, so that errors name the label. Its sizes must agree with the counts.
        loss: The loss of the training. One that corrects for the prior itself is refused: two corrections are too much.
        taus: The values that ``fit`` chooses from, by class-balanced accuracy; the first wins a tie.

    >>> rule = PriorRule([90, 10])
    >>> rule.decide([[1.0, 0.0], [3.0, 0.0]])
    [1, 0]
    >>> rule.fit([[1.0, 0.5], [1.0, -2.0], [1.0, 0.4]], [1, 0, 1])
    PriorRule(sizes=[2], offsets=[0.05268, 1.151], tau=0.5)
    """

    tau: Tensor

    def __init__(
        self,
        class_counts: Counts,
        tau: float = 1.0,
        *,
        sizes: Sizes | None = None,
        loss: object = None,
        taus: Sequence[float] = TAUS,
    ) -> None:
        if isinstance(loss, str):
            raise TypeError(check.sentence("loss", "the loss itself", repr(loss)))
        if adjusts_prior(loss):
            wanted = "one that does not correct for the class prior: this rule would correct a second time"
            check.fail("loss", wanted, type(loss).__name__)
        super().__init__(class_counts, sizes, "tau", tau, taus)

    def offsets_at(self, value: float) -> Tensor:
        return prior_offsets(self.class_counts, value)
