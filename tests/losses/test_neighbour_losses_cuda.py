"""On a GPU: losses that compare neighbours wait for nothing, and give the CPU's numbers, captured too."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from helpers.cases import capture, make_batch
from rectifier.losses.lmle import LMLE, quintuplet_loss
from rectifier.losses.ranked_triplet import RankedCrossEntropy
from rectifier.losses.semi_hard_triplet import SemiHardTripletLoss

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode"),
    pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream"),
]


class Quintuplet(nn.Module):
    def forward(self, logits: Tensor, targets: Tensor, features: Tensor) -> Tensor:
        return quintuplet_loss(*features[:, 0].roll(1, 0).chunk(5), valid=targets[:10, 0] >= 0)


def lmle(sizes: list[int]) -> LMLE:
    return LMLE(sizes, quintuplets=10, pretrain=0.0).cuda()


@pytest.mark.parametrize("make", [SemiHardTripletLoss, RankedCrossEntropy, lambda _: Quintuplet(), lmle])
@pytest.mark.parametrize("sizes", [[2] * 6, [3, 7, 2], [60]])
def test_on_a_gpu(make: Callable[[list[int]], nn.Module], sizes: list[int]) -> None:
    loss = make(sizes)
    logits, targets, features = (t.cuda() for t in make_batch(sizes, 50, dtype=torch.float32)[:3])
    features.requires_grad_()

    def run() -> tuple[Tensor, Tensor]:
        value = loss(logits, targets, features)
        return value, torch.autograd.grad(value, features)[0]

    run()  # tables are made once
    torch.cuda.set_sync_debug_mode("error")
    try:
        run()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph, captured = capture(run)
    for seed in range(1, 3):
        other = make_batch(sizes, 50, seed, dtype=torch.float32, missing=0.2)
        with torch.no_grad():
            for tensor, new in zip((logits, targets, features), other[:3], strict=True):
                tensor.copy_(new)
        graph.replay()
        torch.testing.assert_close(captured[0].cpu(), copy.deepcopy(loss).cpu()(*other[:3]), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(captured[1], run()[1], atol=1e-5, rtol=1e-4)
