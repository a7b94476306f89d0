"""Two and three processes against one process on the joined batch."""

from __future__ import annotations

import gc
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from helpers.cases import DESIGNS, make_batch
from rectifier import ClassBalancedAccuracy, ClassRectificationLoss, RectifiedCrossEntropy, class_balanced_accuracy
from rectifier.evaluation.metrics import count_correct
from rectifier.losses.crl.design import Design
from rectifier.losses.focal import FocalLoss
from rectifier.losses.objective import Objective
from rectifier.losses.ranked_triplet import RankedCrossEntropy
from rectifier.losses.semi_hard_triplet import SemiHardTripletLoss

SIZES = [2, 5]
UNEVEN = {1: [20], 2: [13, 7], 3: [9, 1, 12]}


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        generator_state = torch.random.get_rng_state()
        torch.manual_seed(0)
        self.body, self.head = nn.Linear(6, 4), nn.Linear(4, sum(SIZES))
        torch.random.set_rng_state(generator_state)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = torch.tanh(self.body(x))
        return self.head(features), features


class Mixed(nn.Module):
    """Every sample mixed with one of the next classes, by a share that its own row gives."""

    def __init__(self, objective: nn.Module) -> None:
        super().__init__()
        self.objective = objective

    def forward(self, logits: Tensor, targets: Tensor, features: Tensor) -> Tensor:
        partner = ((targets + 1) % torch.tensor(SIZES), logits[:, 0].detach().sigmoid())
        loss: Tensor = self.objective(logits, targets, features, partner=partner)
        return loss


class Again(nn.Module):
    """The loss of the batch when it is seen for the second time, beside the memory of the first, flipped."""

    def __init__(self, objective: nn.Module) -> None:
        super().__init__()
        self.objective = objective

    def forward(self, logits: Tensor, targets: Tensor, features: Tensor) -> Tensor:
        self.objective(logits.detach().flip(1), targets, features.detach())
        loss: Tensor = self.objective(logits, targets, features)
        return loss


def objectives(gather: bool) -> dict[str, nn.Module]:
    counts = [torch.tensor([90, 10]), torch.tensor([60, 20, 10, 6, 4])]
    built: dict[str, nn.Module] = {}
    for level, comparison in DESIGNS:
        options = {"level": level, "comparison": comparison, "kappa": 3}
        built[f"objective {level} {comparison}"] = RectifiedCrossEntropy(counts, eta=0.9, gather=gather, **options)
    parts = {"weights": torch.linspace(0.2, 3, 7), "rectification": Design(kappa=3, anchors="easy"), "alpha": 0.5}
    built["focal"] = Objective(FocalLoss(), SIZES, gather=gather, **parts)
    built["focal, mixed"] = Mixed(built["focal"])
    for level in ("class", "instance"):
        remembering = Objective(
            FocalLoss(), SIZES, gather=gather, rectification=Design(level=level, kappa=3), alpha=0.5, memory=50
        )
        built[f"memory, {level}"] = Again(remembering.double())
    built["semi-hard triplets"] = SemiHardTripletLoss(SIZES, gather=gather)
    built["ranked cross-entropy"] = RankedCrossEntropy(SIZES, gather=gather)
    built["crl alone"] = ClassRectificationLoss(sizes=SIZES, kappa=3, gather=gather)
    return built


def data(samples: int) -> tuple[Tensor, Tensor]:
    batch = make_batch(SIZES, samples, seed=5, missing=0.1)
    return torch.randn(samples, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64), batch.targets


def losses_and_gradients(model: nn.Module, x: Tensor, targets: Tensor, gather: bool) -> dict[str, list[Tensor]]:
    results = {}
    for name, objective in objectives(gather).items():
        model.zero_grad()
        logits, features = model(x)
        loss = objective(logits, targets, features)
        loss.backward()
        results[name] = [loss.detach(), *(p.grad.clone() for p in model.parameters())]
    return results


def run_rank(rank: int, world: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world)
    sizes = UNEVEN[world]
    x, targets = (part.split(sizes)[rank] for part in data(sum(sizes)))
    model = Network().double()
    wrapped = DistributedDataParallel(model)
    results = losses_and_gradients(wrapped, x, targets, gather=True)
    metric = ClassBalancedAccuracy(SIZES)
    metric.update(model(x)[0], targets)
    results["metric"] = [metric.compute(), metric.sensitivity, metric.absent]
    torch.manual_seed(rank)  # every rank draws differently, and yet they must agree
    drawn = ClassRectificationLoss(mining="random", kappa=2, sizes=SIZES, gather=True)(model(x)[0], targets)
    results["random"] = [drawn.detach()]
    torch.save(results, f"{folder}/{rank}.pt")
    dist.barrier()
    del wrapped, metric  # before the group: its destructor waits for threads that free what they share with the wrapper
    gc.collect()
    dist.destroy_process_group()


@pytest.mark.parametrize("world", [1, 2, 3])
def test_ranks_give_what_one_process_gives_on_the_joined_batch(world: int, tmp_path: Path) -> None:
    x, targets = data(sum(UNEVEN[world]))
    model = Network().double()
    expected = losses_and_gradients(model, x, targets, gather=False)
    logits = model(x)[0].detach()
    correct, total = count_correct(logits, targets, tuple(SIZES))
    expected["metric"] = [class_balanced_accuracy(logits, targets, SIZES), correct / total, (total == 0).sum()]
    assert all(results[0] > 0 for results in expected.values())

    mp.start_processes(run_rank, (world, str(tmp_path)), nprocs=world, start_method="spawn")
    drawn = torch.load(tmp_path / "0.pt")["random"]
    for rank in range(world):
        results = torch.load(tmp_path / f"{rank}.pt")
        assert results.pop("random") == drawn
        assert results.keys() == expected.keys()
        for name, values in results.items():
            for got, want in zip(values, expected[name], strict=True):
                torch.testing.assert_close(
                    got, want, atol=1e-6, rtol=0, equal_nan=True, msg=lambda m, n=name: f"{n}: {m}"
                )


def test_gather_without_a_process_group_is_the_local_batch() -> None:
    batch = make_batch(SIZES, 20)
    local = ClassRectificationLoss(sizes=SIZES)(*batch[:2])
    assert ClassRectificationLoss(sizes=SIZES, gather=True)(*batch[:2]) == local


def evaluate_on_one_rank(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    where, wait = f"file://{folder}/rendezvous", timedelta(seconds=20)
    dist.init_process_group("gloo", init_method=where, rank=rank, world_size=2, timeout=wait)
    x, targets = (part.split(UNEVEN[2])[rank] for part in data(sum(UNEVEN[2])))
    model, loss = Network().double(), ClassRectificationLoss(sizes=SIZES, kappa=3, gather=True)
    if rank == 0:
        torch.save(loss.eval()(model(x)[0], targets).detach(), f"{folder}/evaluated.pt")
    torch.save(loss.train()(model(x)[0], targets).detach(), f"{folder}/{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def test_one_rank_may_evaluate_alone(tmp_path: Path) -> None:
    """It mines in its own batch. Both then train on the joined batch."""
    mp.start_processes(evaluate_on_one_rank, (str(tmp_path),), nprocs=2, start_method="spawn")
    x, targets = data(sum(UNEVEN[2]))
    logits, own, local = Network().double()(x)[0], UNEVEN[2][0], ClassRectificationLoss(sizes=SIZES, kappa=3)
    alone, joined = local(logits[:own], targets[:own]), local(logits, targets)
    assert alone != joined
    torch.testing.assert_close(torch.load(tmp_path / "evaluated.pt"), alone.detach())
    for rank in range(2):
        torch.testing.assert_close(torch.load(tmp_path / f"{rank}.pt"), joined.detach())
