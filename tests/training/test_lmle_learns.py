"""LMLE from end to end, in plain PyTorch: rounds of mining, training on quintuplets, and the decision by clusters."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from rectifier import LabelSpace, class_balanced_accuracy
from rectifier.evaluation.by_features import ClusterDecision
from rectifier.losses.lmle import LMLE
from rectifier.samplers.lmle.quintuplets import QuintupletSampler

SPACE = LabelSpace.from_sizes([3, 2])
COUNTS = ([300, 60, 20], [320, 60])


def imbalanced(seed: int) -> tuple[Tensor, Tensor]:
    """Two labels that show in three of twenty dimensions each, all others being noise."""
    g = Generator().manual_seed(seed)
    targets = torch.stack(
        [torch.arange(len(n)).repeat_interleave(torch.tensor(n))[torch.randperm(380, generator=g)] for n in COUNTS], 1
    )
    x = torch.randn(380, 20, generator=g)
    for a in range(2):
        x[:, 3 * a : 3 * a + 3] += 3 * torch.eye(3)[targets[:, a]]
    return x, targets


def accuracy(embed: torch.nn.Module) -> float:
    with torch.no_grad():
        (train, validation, test) = ((embed(x).unflatten(1, (2, -1)), y) for x, y in map(imbalanced, range(3)))
    found = ClusterDecision.fit(*train, SPACE, *validation, size=40)
    return float(class_balanced_accuracy(found(test[0]), test[1], SPACE))


def test_training_on_quintuplets_makes_better_clusters() -> None:
    x, targets = imbalanced(0)
    torch.manual_seed(0)
    embed, classify = torch.nn.Linear(20, 2 * 4), torch.nn.Linear(2 * 4, 5)
    sampler = QuintupletSampler(targets, SPACE, quintuplets=16, batches=40, size=40)
    objective = LMLE(SPACE, quintuplets=16, pretrain=0.0)
    optimizer = torch.optim.SGD([*embed.parameters(), *classify.parameters()], lr=0.5, momentum=0.9)
    before, start = accuracy(embed), classify.weight.clone()
    for epoch in range(4):  # each is a round
        with torch.no_grad():
            sampler.mine(embed(x).unflatten(1, (2, -1)))
        sampler.set_epoch(epoch)
        for batch in sampler:
            optimizer.zero_grad()
            hidden = embed(x[batch])
            objective(classify(hidden), targets[batch], hidden.unflatten(1, (2, -1))).backward()
            optimizer.step()
    assert accuracy(embed) > before + 0.1
    assert torch.equal(classify.weight, start)  # quintuplets alone did it
