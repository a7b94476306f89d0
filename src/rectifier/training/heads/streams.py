"""Streams: which samples a head sees, in which order and how changed. Heads that draw alike share one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor

from rectifier.data.mixing import Mixup
from rectifier.methods import build_mixing, build_sampler, find_method, rounds_of
from rectifier.training.heads.prepared import Prepared
from rectifier.training.heads.spec import HeadSpec


class Batch(NamedTuple):
    """A batch of every stream: features ``(S, B, D)``, targets ``(S, B, A)`` and, mixed, those of the partners."""

    x: Tensor
    targets: Tensor
    partner: tuple[Tensor, Tensor] | None = None  # targets and share, both (S, B, A)


def draws_alike(spec: HeadSpec, position: int) -> str:
    """Return what heads must share to see the same batches. ``position`` is that of the spec in its list."""
    method = find_method(spec.method)
    own = [
        (slot, id(part), [(name, spec.method_options.get(name)) for name in part.options])
        for slot, part in method.parts.items()
        if slot in ("sampler", "mixing")
    ]
    mined = position if method.rounds is not None else None  # each head mines its own features
    drawn = spec.draws, spec.epochs, spec.batch_size, spec.noise, spec.mixup, spec.dropout
    return repr((own, mined, drawn))


class Stream:
    """The order of samples of one or several heads, and what is drawn for them, all from the seed."""

    def __init__(self, spec: HeadSpec, data: Prepared) -> None:
        table, self.spec, self.data = data.table, spec, data
        options: dict[str, Any] = {"epochs": spec.epochs, "batch_size": spec.batch_size, "options": spec.method_options}
        self.sampler: Any = build_sampler(spec.method, table.targets.cpu(), table.space, seed=spec.draws, **options)
        self.rounds = rounds_of(spec.method, spec.epochs, spec.method_options)
        mixing = build_mixing(spec.method, data.counts, table.space, spec.method_options)
        mixing = Mixup(spec.mixup) if spec.mixup else mixing
        self.mixing: Any = None if mixing is None else mixing.to(table.x.device)
        self.masks = Generator(table.x.device).manual_seed(_seed(spec.draws, 1, "dropout"))

    @property
    def batches(self) -> list[int]:
        """The sizes of an epoch's batches. Only the samplers of LMLE draw whole batches."""
        if (size := getattr(self.sampler, "batch_size", None)) is not None:
            return [size] * len(self.sampler)
        length = len(self.sampler)
        number = -(-length // self.spec.batch_size)
        return [length // number + (i < length % number) for i in range(number)]

    def plan(self, epoch: int) -> tuple[Tensor, Tensor | None]:
        """Return the rows of an epoch in their order, and the rows whose residuals are added as noise."""
        self.sampler.set_epoch(epoch)
        samples = self.sampler.plan().flatten()
        drawn = Generator().manual_seed(_seed(self.spec.draws, epoch, "plan"))
        table = self.data.table
        if table.views > 1:
            samples = samples + len(table) * torch.randint(table.views, samples.shape, generator=drawn)
        donors = torch.randint(len(self.data.rows), samples.shape, generator=drawn) if self.spec.noise else None
        return samples, donors

    def mix(self, x: Tensor, targets: Tensor, number: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return mixed features, the partners' targets, and the share of the own ones ``(B, A)``."""
        torch.manual_seed(_seed(self.spec.draws, number, "mixing"))  # the mixing draws from PyTorch's own generator
        mixed, (partner, share) = self.mixing(x, targets)
        by_label = share if share.dim() == 2 else share[:, None].expand(targets.shape)
        return mixed, partner, by_label


class Streams:
    """The batches of S streams with batches of equal sizes."""

    def __init__(self, streams: Sequence[Stream], data: Prepared) -> None:
        self.streams, self.data = streams, data
        self.batches, self.spec = streams[0].batches, streams[0].spec
        noise = [stream.spec.noise for stream in streams]
        self.noise = torch.tensor(noise, dtype=torch.float64).to(data.rows)[:, None, None] if any(noise) else None
        self.number = 0  # of the next batch
        self._buffers: dict[tuple[int, ...], Tensor] = {}

    def start(self, epoch: int) -> None:
        """Draw the order of an epoch."""
        plans = [stream.plan(epoch) for stream in self.streams]
        device = self.data.rows.device
        self._rows = torch.stack([rows for rows, _ in plans]).to(device).split(self.batches, 1)
        donors = [donors for _, donors in plans if donors is not None]
        self._donors = torch.stack(donors).to(device).split(self.batches, 1) if donors else None
        self._targets = self.data.table.targets

    def batch(self, place: int) -> Batch:
        """Return a batch of the epoch. The next call overwrites its features."""
        rows = self._rows[place]
        x = self._gathered(self.data.rows, rows, "x")
        if self.noise is not None and self._donors is not None:
            x.addcmul_(self._gathered(self.data.residuals, self._donors[place], "noise"), self.noise)
        samples = rows % len(self._targets) if self.data.table.views > 1 else rows
        targets = self._targets[samples]
        self.number += 1
        partner = None
        if self.spec.mixes:
            mixed = [s.mix(x[i], targets[i], self.number) for i, s in enumerate(self.streams)]
            x, others, share = (torch.stack(parts) for parts in zip(*mixed, strict=True))
            partner = others, share
        if self.spec.dropout:
            x = x * self.mask((*rows.shape[1:], x.shape[-1]))
        return Batch(x, targets, partner)

    def mask(self, shape: Sequence[int]) -> Tensor:
        """Return the next mask ``(S, *shape)`` of dropout: 0 or the inverse of the share that stays."""
        kept = 1 - self.spec.dropout
        made = self.data.rows.new_empty((len(self.streams), *shape))
        for own, stream in zip(made, self.streams, strict=True):
            own.bernoulli_(kept, generator=stream.masks)
        return made.div_(kept)

    def _gathered(self, source: Tensor, rows: Tensor, use: str) -> Tensor:
        """Return ``(S, B, D)`` in a buffer: fresh memory would cost more than the copy."""
        key = (*rows.shape, len(use))
        if key not in self._buffers:
            self._buffers[key] = source.new_empty(rows.numel(), source.shape[1])
        torch.index_select(source, 0, rows.reshape(-1), out=self._buffers[key])
        return self._buffers[key].view(*rows.shape, -1)


def _seed(seed: int, number: int, use: str) -> int:
    """Return a seed far from those of the samplers, other seeds, numbers and uses."""
    mixed = (seed * 0x9E3779B1 + number * 0x85EBCA6B + sum(map(ord, use)) * 0xC2B2AE35) % 2**32
    mixed = ((mixed ^ (mixed >> 16)) * 0x45D9F3B) % 2**32
    return mixed ^ (mixed >> 16)
