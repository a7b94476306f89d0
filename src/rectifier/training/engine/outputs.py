"""Predict with a network: logits and features, and the class-balanced accuracy of validation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist
from lightning.fabric import Fabric
from torch import Tensor, nn

from rectifier.data.loader import Batch
from rectifier.evaluation.metrics import balanced_mean, count_correct
from rectifier.networks.head import Output
from rectifier.training.engine.devices import gather_all
from rectifier.training.engine.graphs import Graphs, Work
from rectifier.training.engine.modes import evaluating


def shard(samples: int, fabric: Fabric) -> range:
    """Return the positions of this process's share; each position belongs to one process."""
    return range(fabric.global_rank, samples, fabric.world_size)


@torch.no_grad()
def outputs(fabric: Fabric, network: nn.Module, batches: Iterable[Batch]) -> Iterator[tuple[Batch, Output]]:
    """Yield each batch with the output of the network, which is in evaluation mode meanwhile."""
    dtype = next(network.parameters()).dtype  # float64, if training was
    with evaluating(network):
        for batch in batches:
            with fabric.autocast():
                found = network(batch.images.to(dtype))
            yield batch, Output(found.logits.float(), found.features.float())


@dataclass(eq=False)
class Validation:
    """The class-balanced accuracy of a network over all processes, with ``offsets`` ``(K,)`` added to its logits.

    A call returns a tensor and does not wait for the device. ``captured`` replays each batch as a CUDA graph.
    """

    fabric: Fabric
    network: nn.Module
    batches: Iterable[Batch]
    sizes: tuple[int, ...]
    offsets: Tensor
    captured: bool = False

    def __post_init__(self) -> None:
        self.offsets = self.offsets.to(self.fabric.device)
        self._counts = torch.zeros(2, sum(self.sizes), dtype=torch.int64, device=self.fabric.device)
        self._work: Work = self._count
        if self.captured:
            self._work = Graphs(self._count, "Validation", lambda: {"counts": self._counts}, may_give_up=True)

    def __call__(self) -> Tensor:
        self._counts.zero_()
        for batch in self.batches:
            self._work([batch])
        if self.fabric.world_size > 1:
            dist.all_reduce(self._counts)
        correct, total = self._counts
        return balanced_mean(correct, total, self.sizes)

    def _count(self, batches: list[Batch]) -> None:
        for batch, output in outputs(self.fabric, self.network, batches):
            self._counts += torch.stack(count_correct(output.logits + self.offsets, batch.targets, self.sizes))


def predict(
    fabric: Fabric, network: nn.Module, batches: Iterable[Batch], with_features: bool = True
) -> tuple[Tensor, Tensor | None]:
    """Return logits ``(N, K)`` and features of all samples in their order, on the CPU of every process."""
    names = ("positions", "logits", "features") if with_features else ("positions", "logits")
    found: dict[str, list[Tensor]] = {name: [] for name in names}
    for batch, output in outputs(fabric, network, batches):
        for name, tensor in zip(names, (batch.positions, *output), strict=False):
            found[name].append(tensor.cpu())
    joined = {name: torch.cat(tensors) for name, tensors in found.items() if tensors}
    everyone = [each for each in gather_all(fabric, joined) if each]  # a process may have no sample
    positions, logits, *features = (torch.cat([each[name] for each in everyone]) for name in names)
    order = positions.argsort()
    return logits[order], features[0][order] if features else None
