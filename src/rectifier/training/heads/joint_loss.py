"""JointLoss: the losses of H heads. Heads of one method are labels of one objective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rectifier._base import check
from rectifier.labels.space import LabelSpace
from rectifier.losses.lmle import LMLE
from rectifier.losses.objective import Objective
from rectifier.losses.ranked_triplet import RankedCrossEntropy
from rectifier.methods import build_objective
from rectifier.training.heads.bank import Answer
from rectifier.training.heads.spec import HeadSpec

Partner = tuple[Tensor, Tensor]
"""Targets of the other samples, and the share of the own ones, both ``(B, H, A)``."""


@dataclass(frozen=True, eq=False)
class _Share:
    """Some heads, whose losses one module computes."""

    heads: Tensor | slice
    count: int
    loss: nn.Module
    compares_features: bool


class JointLoss:
    """The losses ``(H,)`` of a batch.

    Every loss of single labels sums over labels, so H heads of A labels are one head of H * A labels: the sum of their
    losses has for each head its own gradient. An objective that couples its labels, draws random numbers or remembers
    batches serves one head.
    """

    def __init__(self, specs: Sequence[HeadSpec], counts: Sequence[Tensor], space: LabelSpace) -> None:
        self.labels, self.shares = len(space), []
        alone = [_objective(spec, counts, space) for spec in specs]
        joint: dict[object, list[int]] = {}
        for head, (spec, loss) in enumerate(zip(specs, alone, strict=True)):
            joint.setdefault(_likeness(spec) if is_separable(loss) else head, []).append(head)
        for heads in joint.values():
            losses = [alone[head] for head in heads]
            loss = losses[0] if len(heads) == 1 else _joined(specs[heads[0]], losses, counts, space)
            if is_separable(losses[0]):
                loss.label_reduction = "none"
            where = slice(heads[0], heads[-1] + 1)
            neighbours = heads == list(range(where.start, where.stop))
            chosen = where if neighbours else torch.tensor(heads, device=counts[0].device)
            self.shares.append(_Share(chosen, len(heads), loss.to(counts[0].device), reads_features(losses[0])))

    def set_progress(self, done: float) -> None:
        """Tell all objectives which share of training is done."""
        for share in self.shares:
            set_progress: Any = getattr(share.loss, "set_progress", None)
            if set_progress is not None:
                set_progress(done)

    def __call__(self, answer: Answer, targets: Tensor, partner: Partner | None = None) -> Tensor:
        """Return the losses from the answer of a bank and targets ``(B, H, A)``."""
        losses = [self._of(share, answer, targets, partner) for share in self.shares]
        if len(losses) == 1:
            return losses[0]
        found = torch.empty_like(answer.logits[0, :, 0])
        for share, own in zip(self.shares, losses, strict=True):
            found[share.heads] = own
        return found

    def _of(self, share: _Share, answer: Answer, targets: Tensor, partner: Partner | None) -> Tensor:
        more: dict[str, Any] = {}
        if partner is not None:
            more["partner"] = tuple(part[:, share.heads].flatten(1) for part in partner)
        if share.compares_features and answer.features is not None:
            more["features"] = self._features(share, answer.features[:, share.heads])
        logits = answer.logits[:, share.heads].flatten(1)
        per_label: Tensor = share.loss(logits, targets[:, share.heads].flatten(1), **more)
        return per_label.view(share.count, -1).sum(1)

    def _features(self, share: _Share, features: Tensor) -> Tensor:
        """Return the features ``(B, H * A, U)`` of all labels, or those of a single head as it gives them."""
        if share.count == 1:
            return features[:, 0]
        if features.dim() == 3:  # the labels of a head share them
            features = features[:, :, None].expand(-1, -1, self.labels, -1)
        return features.flatten(1, 2)


def is_separable(loss: nn.Module) -> bool:
    """Tell whether the loss is a sum over labels that do not affect each other, without random numbers and memory."""
    if not isinstance(loss, Objective) or loss.pooled or loss.memory is not None:
        return False
    return loss.design is None or loss.design.mining != "random"


def reads_features(loss: nn.Module) -> bool:
    """Tell whether a loss compares features."""
    return not isinstance(loss, Objective) or (loss.design is not None and loss.design.level == "instance")


def check_layers(spec: HeadSpec, loss: nn.Module) -> None:
    """Refuse a head without layers for a loss that compares features, because those of the network are frozen."""
    if reads_features(loss) and not spec.has_layers:
        problem = f"{spec.method} compares features that it trains, and this head has none."
        raise ValueError(f"{problem} Give it a hidden layer or branches: network.hidden=256, or network.branch=64.")


def _objective(spec: HeadSpec, counts: Sequence[Tensor], space: LabelSpace) -> Any:
    """Return the objective of a single head."""
    made: Any = build_objective(spec.method, counts, space, **spec.method_options)
    check_layers(spec, made)
    if isinstance(made, Objective):
        made.sample_loss.label_smoothing = spec.smoothing
        if made.design is not None and made.design.mining == "random":
            made.generator = torch.Generator(counts[0].device).manual_seed(spec.seed)
    elif spec.smoothing:
        if not isinstance(made, RankedCrossEntropy):
            kind = "pairs of samples" if not isinstance(made, LMLE) else "quintuplets"
            check.fail("smoothing", f"0 for method {spec.method!r}, whose loss compares {kind}", spec.smoothing)
        made.cross_entropy.label_smoothing = spec.smoothing
    return made


def _joined(spec: HeadSpec, losses: Sequence[Any], counts: Sequence[Tensor], space: LabelSpace) -> Any:
    """Return the objective of heads that differ at most in eta or alpha."""
    number = len(losses)
    names = tuple(f"{head}/{name}" for head in range(number) for name in space.names)
    options = {name: value for name, value in spec.method_options.items() if name not in _OF_ALPHA}
    if losses[0].design is not None:
        options["alpha"] = torch.cat([loss.alpha for loss in losses])
    made = build_objective(spec.method, [*counts] * number, LabelSpace(names, space.classes * number), **options)
    made.sample_loss.label_smoothing = spec.smoothing  # type: ignore[union-attr]
    return made


_OF_ALPHA = ("eta", "alpha")


def _likeness(spec: HeadSpec) -> str:
    """Return what heads must share to be labels of one objective."""
    options = {name: value for name, value in spec.method_options.items() if name not in _OF_ALPHA}
    return repr((spec.method, sorted(options.items()), spec.smoothing))
