"""Cross-entropy and class rectification in one objective, weighted by how imbalanced each label is."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from rectifier import check, columns
from rectifier.columns import Sizes
from rectifier.imbalance import Counts, as_count_list, loss_weight
from rectifier.labels import LabelSpace
from rectifier.losses.design import Design, check_reduction, reduce_labels
from rectifier.losses.entropy import label_cross_entropy
from rectifier.losses.inputs import no_autocast, prepare
from rectifier.losses.rectification import rectify


class LossParts(NamedTuple):
    """The objective and what it is made of; all but ``loss`` are ``(A,)`` and detached, for logging.

    ``comparisons`` is the number of triplets, or of positive and negative pairs.
    """

    loss: Tensor
    cross_entropy: Tensor
    rectification: Tensor
    alpha: Tensor
    mined_classes: Tensor
    comparisons: Tensor


class RectifiedCrossEntropy(torch.nn.Module):
    """Train with alpha * CRL + (1 - alpha) * CE per label (Eq. 8), alpha = min(eta * Omega, 1).

    Omega is the imbalance of the label in the training set, so balanced labels keep plain cross-entropy and imbalanced
    ones are rectified more. The cross-entropy of a label is the mean over the samples that have it.

    Args:
        class_counts: Training samples of each class: a 1-d tensor for one label, a list with one per label for several.
        eta: Weight of the rectification per unit of imbalance.
        alpha: Give the weight itself, one number or one per label, in place of eta * Omega.
        label_reduction: ``"sum"`` over labels (the paper's), ``"mean"``, or ``"none"`` for ``(A,)``.
        gather: Under ``torch.distributed``, compute on the joined batch of all ranks.
        sizes: A LabelSpace, so that errors name the label; its sizes must agree with the counts.
        generator: Where random mining draws from.
        design: The options of ``ClassRectificationLoss``: level, comparison, kappa, rho, margin, scope, mining, bins,
            normalize.

    >>> objective = RectifiedCrossEntropy(torch.tensor([900, 100]), eta=0.5)
    >>> objective.alpha
    tensor([0.2222])
    >>> parts = objective(torch.zeros(4, 2), torch.tensor([0, 0, 1, 1]), return_parts=True)
    >>> parts.cross_entropy, parts.mined_classes
    (tensor([0.6931]), tensor([1]))
    """

    class_counts: Tensor
    alpha: Tensor

    def __init__(
        self,
        class_counts: Counts,
        eta: float = 0.01,
        alpha: float | list[float] | Tensor | None = None,
        label_reduction: str = "sum",
        gather: bool = False,
        *,
        sizes: Sizes | None = None,
        generator: torch.Generator | None = None,
        **design: Any,
    ) -> None:
        super().__init__()
        counts, _ = as_count_list(class_counts)
        self.sizes: Sizes = tuple(map(len, counts))
        if sizes is not None:
            if columns.as_sizes(sizes) != self.sizes:
                check.fail("sizes", f"those of class_counts, {self.sizes}", columns.as_sizes(sizes))
            self.sizes = sizes if isinstance(sizes, LabelSpace) else self.sizes
        check.option_names(design, (*Design._fields, "eta", "alpha", "label_reduction", "gather", "sizes", "generator"))
        self.design = Design(**design).checked()
        self.label_reduction = check_reduction(label_reduction)
        self.gather = gather
        self.generator = generator
        self.register_buffer("class_counts", torch.cat(counts))
        self.register_buffer("alpha", loss_weight(counts, _eta(eta)) if alpha is None else _alpha(alpha, len(counts)))

    def forward(
        self, logits: Tensor, targets: Tensor, features: Tensor | None = None, *, return_parts: bool = False
    ) -> Tensor | LossParts:
        """Return the loss, or with ``return_parts`` a ``LossParts`` from the same pass."""
        with no_autocast(logits):
            given = prepare(logits, targets, features, self.sizes, self.design.level, self.gather)
            log_p = columns.log_softmax(given.logits, given.sizes)
            entropy = label_cross_entropy(log_p, given.targets, given.sizes)
            mined = rectify(
                log_p.exp(), given.targets, given.features, given.sizes, self.design, self.generator, self.gather
            )
            per_label = self.alpha * mined.loss + (1 - self.alpha) * entropy
        loss = reduce_labels(per_label, self.label_reduction)
        if not return_parts:
            return loss
        logged = (entropy, mined.loss, self.alpha, mined.mined_classes, mined.comparisons)
        return LossParts(loss, *(part.detach() for part in logged))

    def extra_repr(self) -> str:
        return self.design.described()


def _eta(eta: float) -> float:
    check.raise_all([check.number("eta", eta, "a number of at least 0", check.is_real(eta) and eta >= 0)])
    return eta


def _alpha(alpha: float | list[float] | Tensor, labels: int) -> Tensor:
    given = torch.as_tensor(alpha, dtype=torch.float32).detach().clone()
    if given.dim() > 1 or (given.dim() == 1 and len(given) != labels):
        check.fail("alpha", f"one number, or one for each of the {labels} labels", f"shape {tuple(given.shape)}")
    if not bool(((given >= 0) & (given <= 1)).all()):
        check.fail("alpha", "from 0 to 1", given.tolist())
    return given.expand(labels).clone()
