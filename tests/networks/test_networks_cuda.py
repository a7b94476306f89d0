"""On a GPU: no host synchronisation, and one CUDA graph that follows its input."""

from __future__ import annotations

import pytest
import torch

from helpers.cases import capture
from helpers.network_forms import FORMS, LAYOUTS, images_for, make
from rectifier.networks.head import MultiLabelHead

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode"),
    pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream"),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_nothing_waits_for_the_device(form: str, dtype: torch.dtype) -> None:
    network = make(form).cuda().to(memory_format=torch.channels_last)
    images = images_for(network, 8).cuda()
    for attempt in range(2):  # libraries choose and load their kernels the first time
        torch.cuda.set_sync_debug_mode("error" if attempt else "default")
        try:
            with torch.autocast("cuda", dtype, enabled=dtype != torch.float32):
                logits, features = network(images)
            (logits.float().logsumexp(1).mean() + features.float().mean()).backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert all(torch.isfinite(parameter.grad).all() for parameter in network.parameters())


@pytest.mark.parametrize("form", FORMS)
def test_a_captured_network_follows_its_input(form: str) -> None:
    network = make(form).cuda().eval()
    images = images_for(network, 8).cuda()

    def run() -> tuple[torch.Tensor, ...]:
        logits, features = network(images)
        gradients = torch.autograd.grad(logits.square().mean() + features.mean(), list(network.head.parameters()))
        return logits, features, *gradients

    graph, captured = capture(run)
    for seed in range(1, 3):
        images.copy_(images_for(network, 8, seed))
        graph.replay()
        for got, expected in zip(captured, run(), strict=True):
            torch.testing.assert_close(got, expected, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("sizes", [*LAYOUTS.values(), [2] * 20 + [300]], ids=len)
def test_the_head_gives_the_cpus_numbers(sizes: list[int]) -> None:
    torch.manual_seed(0)
    head = MultiLabelHead(20, sizes, hidden=(8, 5)).double()
    shared = torch.randn(7, 20, dtype=torch.float64)
    expected = head(shared)
    torch.testing.assert_close(head.cuda()(shared.cuda()).logits.cpu(), expected.logits)
