"""train_heads: many heads on the same features, each equal to what it would be alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from rectifier._base import check
from rectifier.methods import check_method, find_method, whole_from
from rectifier.training.heads.bank import Answer, Bank
from rectifier.training.heads.grouping import Together, grouped
from rectifier.training.heads.joint_loss import JointLoss
from rectifier.training.heads.judge import Judge
from rectifier.training.heads.module import TrainedHead
from rectifier.training.heads.optimiser import OPTIMISERS
from rectifier.training.heads.prepared import Prepared
from rectifier.training.heads.spec import FeatureTable, HeadSpec
from rectifier.training.heads.streams import Batch, Streams

Progress = Callable[[int, int], None]


def train_heads(
    table: FeatureTable,
    specs: Sequence[HeadSpec],
    *,
    validation: FeatureTable | None = None,
    offsets: Sequence[Tensor | None] | None = None,
    choose: str | Sequence[str] = "last",
    progress: Progress | None = None,
) -> list[TrainedHead]:
    """Train heads on cached features, many at once. Each is what it would be if trained alone.

    A head that diverges has losses that are not finite. It does not change the others.

    Args:
        table: Training features. They are standardised inside; the returned heads take raw features.
        specs: The heads. Those of one shape train as one batched computation.
        validation: Features that score every epoch by class-balanced accuracy.
        offsets: For each spec ``(K,)``, added to the logits for the score: the decision rule that will be used. None
            adds nothing.
        choose: ``"last"`` keeps the last epoch, ``"best"`` the first with the best score. Then epochs before a method
            is complete (deferred weights) do not count, and a method whose decision is not by logits keeps the last.
            A list has one for each spec.
        progress: Called with the number of epochs that are done and of all, over all heads.

    >>> from rectifier.labels.space import LabelSpace
    >>> x = torch.tensor([[-1.0], [-2.0], [1.0], [2.0]])
    >>> table = FeatureTable(x, torch.tensor([[0], [0], [1], [1]]), LabelSpace.from_sizes([2]))
    >>> heads = train_heads(table, [HeadSpec(seed=seed, lr=0.1) for seed in range(3)], validation=table)
    >>> [head.score for head in heads], heads[0].logits(x).argmax(1).tolist()
    ([1.0, 1.0, 1.0], [0, 0, 1, 1])
    """
    given = [None] * len(specs) if offsets is None else list(offsets)
    chosen = [choose] * len(specs) if isinstance(choose, str) else list(choose)
    _check(table, specs, validation, given, chosen)
    data = Prepared(table)
    judge = None if validation is None else Judge(data, validation)
    found: dict[int, TrainedHead] = {}
    total, done = sum(spec.epochs for spec in specs), 0

    def epoch_over(heads: int) -> None:
        nonlocal done
        done += heads
        if progress is not None:
            progress(done, total)

    devices = [table.x.device] if table.x.is_cuda else []
    with torch.random.fork_rng(devices):  # the mixing seeds PyTorch's own generator
        for together in grouped(specs, data):
            own = together.positions
            training = _Training(together, [given[i] for i in own], data, judge, [chosen[i] for i in own])
            found.update(zip(own, training.run(epoch_over), strict=True))
    return [found[position] for position in range(len(specs))]


class _Training:
    """One bank of heads in training."""

    def __init__(
        self,
        together: Together,
        offsets: Sequence[Tensor | None],
        data: Prepared,
        judge: Judge | None,
        choose: Sequence[str],
    ) -> None:
        self.specs, self.data, self.judge = together.specs, data, judge
        self.bank, self.streams = Bank(self.specs, data), Streams(together.streams, data)
        self.loss = JointLoss(self.specs, data.counts, data.table.space)
        self.epochs, self.heads = self.specs[0].epochs, len(self.specs)
        steps = self.epochs * len(self.streams.batches)
        self.optimiser = OPTIMISERS[self.specs[0].optimizer](self.bank.weights, self.specs, steps)
        nothing = data.rows.new_zeros(sum(data.table.space.sizes))
        self.offsets = torch.stack([nothing if own is None else own.to(nothing) for own in offsets])
        self.choose = choose
        self.by_score = torch.tensor([own == "best" for own in choose], device=self.offsets.device)
        self.losses, self.scores = data.rows.new_zeros(2, self.epochs, self.heads)
        self.best: dict[str, Tensor] = {}

    def run(self, epoch_over: Callable[[int], None]) -> list[TrainedHead]:
        from_epoch = torch.tensor([_first_choice(spec) for spec in self.specs], device=self.offsets.device)
        best = torch.full_like(self.losses[0], -math.inf)
        kept = torch.full_like(from_epoch, self.epochs)
        for epoch in range(self.epochs):
            self._epoch(epoch)
            if self.judge is not None:
                self.scores[epoch] = self.judge(self.bank, self.offsets)
            if "best" in self.choose:
                better = (self.scores[epoch] > best) & (from_epoch <= epoch) & self.by_score
                best, kept = torch.where(better, self.scores[epoch], best), torch.where(better, epoch + 1, kept)
                self._remember(better)
            epoch_over(self.heads)
        return self._finished([int(number) for number in kept])

    def _epoch(self, epoch: int) -> None:
        self.loss.set_progress(epoch / self.epochs)
        self._mine(epoch)
        self.streams.start(epoch)
        seen = 0
        for place, size in enumerate(self.streams.batches):
            losses = self._step(self.streams.batch(place))
            self.losses[epoch] += losses * size
            seen += size
        self.losses[epoch] /= seen

    def _step(self, batch: Batch) -> Tensor:
        own = self.heads // len(batch.x)  # heads of a stream

        def by_head(parts: Tensor) -> Tensor:
            """Return ``(B, H, A)`` from the parts ``(S, B, A)`` of each stream."""
            return parts.transpose(0, 1).repeat_interleave(own, 1) if own > 1 else parts.transpose(0, 1)

        partner = None if batch.partner is None else (by_head(batch.partner[0]), by_head(batch.partner[1]))
        answer = self.bank(batch.x, self._masks(batch.x.shape[1]) if self.specs[0].dropout else None)
        losses = self.loss(answer, by_head(batch.targets), partner)
        names = list(self.bank.weights)
        gradients = torch.autograd.grad(losses.sum(), [self.bank.weights[name] for name in names])
        self.optimiser.step(dict(zip(names, gradients, strict=True)))
        return losses.detach()

    def _masks(self, samples: int) -> dict[str, Tensor]:
        """Return masks ``(H, B, ...)`` for the inputs of the later layers. Heads of a stream share them."""
        spec, own = self.specs[0], self.heads // len(self.streams.streams)
        shapes = {"hidden": (samples, spec.hidden), "entry": (samples, len(self.data.table.space), spec.branch)}
        used = [name for name, width in (("hidden", spec.hidden), ("entry", spec.branch)) if width]
        return {name: self.streams.mask(shapes[name]).repeat_interleave(own, 0) for name in used}

    def _mine(self, epoch: int) -> None:
        """Show LMLE's samplers the features of all training samples, where a round starts. Each head has its own."""
        due = [h for h, stream in enumerate(self.streams.streams) if epoch in stream.rounds]
        if due:
            features = self._answer(self.data.first_view).features
            for head in due:
                self.streams.streams[head].sampler.mine(features[:, head].contiguous())  # type: ignore[index]

    @torch.no_grad()
    def _answer(self, x: Tensor) -> Answer:
        return self.bank(x[None])

    def _remember(self, better: Tensor) -> None:
        for name, weight in self.bank.weights.items():
            now, before = weight.detach(), self.best.get(name)
            where = better.view(-1, *[1] * (now.dim() - 1))
            self.best[name] = now.clone() if before is None else torch.where(where, now, before)

    def _finished(self, kept: list[int]) -> list[TrainedHead]:
        last = {name: weight.detach() for name, weight in self.bank.weights.items()}
        losses, scores = self.losses.T.tolist(), self.scores.T.tolist()
        heads, table = [], self.data.table
        for head, spec in enumerate(self.specs):
            weights = self.best if self.best and kept[head] < self.epochs else last
            state = self.data.folded(spec, self.bank.state(head, weights))
            found = TrainedHead(spec, table.space, table.width, state, tuple(losses[head]), epoch=kept[head])
            heads.append(found if self.judge is None else replace(found, scores=tuple(scores[head])))
        return heads


def _first_choice(spec: HeadSpec) -> int:
    """Return the first epoch, from 0, that can be chosen."""
    method = find_method(spec.method)
    if method.decision is not None and method.objective is not None:  # the logits are not trained
        return spec.epochs
    share = whole_from(spec.method, spec.method_options)
    return next((epoch for epoch in range(spec.epochs) if epoch / spec.epochs >= share), spec.epochs)


def _check(
    table: FeatureTable,
    specs: Sequence[HeadSpec],
    validation: FeatureTable | None,
    offsets: Sequence[Tensor | None],
    choose: Sequence[str],
) -> None:
    check.raise_all([check.choice("choose", own, ("last", "best")) for own in dict.fromkeys(choose)])
    if "best" in choose and validation is None:
        check.fail("choose", "'last' without validation", "'best'")
    if len(choose) != len(specs):
        check.fail("choose", f"one for each of the {len(specs)} specs", f"{len(choose)}")
    if len(offsets) != len(specs):
        check.fail("offsets", f"one for each of the {len(specs)} specs", f"{len(offsets)}")
    for own in offsets:
        if own is not None and own.shape != (table.space.columns,):
            check.fail("offsets", f"of shape ({table.space.columns},)", f"shape {tuple(own.shape)}")
    if validation is not None and validation.space != table.space:
        check.fail("the label space of validation", "that of training", f"sizes {validation.space.sizes}")
    if validation is not None and validation.width != table.width:
        check.fail("validation", f"{table.width} features wide, as training", validation.width)
    for spec in specs:
        check_method(spec.method, spec.epochs, spec.method_options)
