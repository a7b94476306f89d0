"""The batches of LMLE: quintuplets, mined every epoch from features that are computed once per round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Unpack

import torch
from torch import Generator, Tensor

from rectifier._base import check
from rectifier._base.distances import unit
from rectifier.labels import columns
from rectifier.labels.columns import Sizes
from rectifier.losses.lmle import ROLES, rows_complaint
from rectifier.samplers.base import Common
from rectifier.samplers.batches import EpochBatchSampler
from rectifier.samplers.class_members import Targets, checked_targets
from rectifier.samplers.lmle.clusters import CLUSTER_SIZE, Clusters, balanced_anchors, cluster_labels, mine_quintuplets

FITTED_ON = 20
"""Samples per cluster for k-means. Few are enough, because the features of a round soon become old."""


class Round(NamedTuple):
    """The data that a round of LMLE mines from. Features have unit length, in float16."""

    features: Tensor  # (N, D) or (N, A, D)
    assigned: Tensor  # (N, A) each sample's cluster of each label, -1 where the label is missing
    class_of: Tensor  # (C,) the class of each cluster, those of the first label first
    clusters: Tensor  # (A,) how many of them each label has

    def by_label(self) -> Iterator[tuple[Tensor, Clusters]]:
        """Yield features ``(N, D)`` and clusters of each label, without centres, which mining does not need."""
        for a, own in enumerate(self.class_of.split(self.clusters.tolist())):
            features = columns.of_label(self.features, a).float()
            yield features, Clusters(features.new_empty(len(own), 0), own, self.assigned[:, a].long())


@dataclass
class _Rounds:
    """The latest round, and how many there were. A sampler shares them with its shards."""

    latest: Round | None = None
    count: int = 0


class QuintupletSampler(EpochBatchSampler):
    """Batches of R quintuplets in five blocks: [anchors | near | far_cluster_near | far_cluster_far | other].

    For ``LMLE`` and for ``DataLoader(batch_sampler=...)``. Row r of every block belongs to label r % A. Its anchors are
    drawn equally from the label's classes. The other four rows are the anchor's quintuplet in this label. Without
    one, because another class or the label is missing, the anchor is repeated. A loss sees that from the targets.

    ``mine`` starts a round: it takes the features of all samples and clusters each class of each label. Every epoch
    draws its anchors and mines their quintuplets from these. Before the first round a batch is 5 R samples in the order
    of ``UniformSampler``, one pass over the samples after the other.

    Several ranks must mine the same features, on the same kind of device.

    Args:
        quintuplets: R, at least one per label.
        batches: Batches of an epoch, over all ranks. By default as many as the samples fill, at least one per rank.
        size: Approximate number of samples in a cluster.
        candidates: Number of samples, equally from each class, in which the quintuplets of a label are searched. They
            are drawn for each group of as many anchors, in addition to these. So memory is bounded, and the work of an
            anchor does not grow with the data set. A smaller data set is searched whole.

    >>> targets = torch.tensor([0] * 30 + [1] * 10)
    >>> sampler = QuintupletSampler(targets, quintuplets=4, batches=3)
    >>> sampler.mine(torch.randn(40, 8, generator=Generator().manual_seed(0)))
    >>> anchors, near, nearer, farther, other = sampler.plan().view(3, 5, 4).unbind(1)
    >>> targets[anchors].flatten().bincount().tolist(), bool((targets[other] != targets[anchors]).all())
    ([6, 6], True)
    """

    def __init__(
        self,
        targets: Targets,
        sizes: Sizes | None = None,
        *,
        quintuplets: int,
        batches: int | None = None,
        size: int = CLUSTER_SIZE,
        candidates: int = 4096,
        **common: Unpack[Common],
    ) -> None:
        known, by_label = checked_targets(targets, sizes)
        self._targets, self._labels = known.clamp(min=-1), len(by_label)
        self.quintuplets, self.batches, self.size, self.candidates = quintuplets, batches, size, candidates
        self._rounds = _Rounds()
        super().__init__(**common)
        self.batch_size = ROLES * quintuplets

    def complaints(self) -> list[str | None]:
        return [
            rows_complaint(self.quintuplets, self._labels),
            None if self.batches is None else check.count("batches", self.batches),
            check.count("size", self.size),
            check.count("candidates", self.candidates),
        ]

    def length(self) -> int:
        by_default = max(len(self._targets) // (ROLES * self.quintuplets), self.num_replicas)
        return int(by_default if self.batches is None else self.batches)

    @property
    def rounds(self) -> int:
        """How many rounds have started. Another number shows that an earlier plan is out of date."""
        return self._rounds.count

    @torch.no_grad()
    def mine(self, features: Tensor) -> None:
        """Start a round with the features of all samples, ``(N, D)`` or ``(N, A, D)``. It runs on their device."""
        self._check(features)
        kept = unit(features.detach().float()).half()
        found = cluster_labels(kept, self._targets.to(kept.device), self.size, self.seed, FITTED_ON)
        assigned = torch.stack([own.assigned for own in found], 1).int()
        clusters = torch.tensor([len(own.class_of) for own in found], device=kept.device)
        self._begin(Round(kept, assigned, torch.cat([own.class_of for own in found]), clusters))

    def state(self) -> dict[str, Tensor]:
        """Return the data of the round as tensors, or nothing before the first. Seed and epoch are not included."""
        known = self._rounds.latest
        return {} if known is None else {name: part.contiguous() for name, part in known._asdict().items()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue the round of a ``state``: the plans of all epochs are the same. It runs on the state's device."""
        if not state:
            self._begin(None)
            return
        if set(state) != set(Round._fields):
            check.fail("state", f"of {', '.join(Round._fields)}, or empty", f"{', '.join(state)}")
        self._check(state["features"])
        if state["assigned"].shape != self._targets.shape:
            wanted = f"of shape {tuple(self._targets.shape)}, like the targets"
            check.fail("the state's clusters", wanted, f"shape {tuple(state['assigned'].shape)}")
        self._begin(Round(**state))

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"round": self.state()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self.load(state_dict["round"])

    def draw(self, generator: Generator) -> Tensor:
        known = self._rounds.latest
        return self._uniform(generator) if known is None else self._mined(known, generator)

    def _begin(self, found: Round | None) -> None:
        self._rounds.latest = found
        self._rounds.count += 1

    def _uniform(self, generator: Generator) -> Tensor:
        samples, size = len(self._targets), ROLES * self.quintuplets
        passes = -(-self.total * size // samples)
        order = torch.cat([torch.randperm(samples, generator=generator) for _ in range(passes)])
        return order[: self.total * size].view(self.total, size)

    def _mined(self, known: Round, generator: Generator) -> Tensor:
        """Return ``(batches, 5 R)``. The quintuplets of a label are mined in groups."""
        device = known.features.device
        plan = torch.empty(self.total, ROLES, self.quintuplets, dtype=torch.int64, device=device)
        for a, (own, (features, clusters)) in enumerate(zip(self._targets.unbind(1), known.by_label(), strict=True)):
            rows = plan[:, :, a :: self._labels]
            anchors = balanced_anchors(own, self.total * rows.shape[2], generator)
            mined = []
            for group in anchors.split(self.candidates):
                pool = self._pool(own, group, generator).to(device)  # it includes the anchors
                within = clusters._replace(assigned=clusters.assigned[pool])
                places = torch.searchsorted(pool, group.to(device))
                mined.append(pool[mine_quintuplets(features[pool], within, places)])
            rows.copy_(torch.cat(mined, 1).view(ROLES, self.total, -1).transpose(0, 1))
        return plan.flatten(1).cpu()

    def _pool(self, own: Tensor, anchors: Tensor, generator: Generator) -> Tensor:
        """Return the samples, in ascending order, in which the quintuplets of a label are searched."""
        if len(own) <= self.candidates:
            return torch.arange(len(own))
        pool: Tensor = torch.cat([anchors, balanced_anchors(own, self.candidates, generator)]).unique()
        return pool

    def _check(self, features: Tensor) -> None:
        samples, labels = self._targets.shape
        shapes_ok = features.dim() == 2 or (features.dim() == 3 and features.shape[1] == labels)
        if not features.is_floating_point() or not shapes_ok or len(features) != samples:
            wanted = f"floating point of shape ({samples}, D) or ({samples}, {labels}, D)"
            check.fail("features", wanted, f"{features.dtype}, shape {tuple(features.shape)}")
        if not bool(features.isfinite().all()):
            check.fail("features", "finite", "NaN or infinity among them")
