"""On a GPU: no host synchronisation, one CUDA graph, generated kernels, and the CPU's numbers."""

from __future__ import annotations

import pytest
import torch

from helpers.cases import DESIGNS, Batch, capture, make_batch
from rectifier import ClassRectificationLoss, RectifiedCrossEntropy

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode"),
    pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream"),
]

LAYOUTS = {"binary": [2] * 6, "mixed": [3, 7, 2], "many classes": [60]}


def on_gpu(batch: Batch) -> tuple[torch.Tensor, ...]:
    logits, targets, features = (tensor.cuda() for tensor in batch[:3])
    return logits.requires_grad_(), targets, features.requires_grad_()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("level", "comparison"), DESIGNS)
@pytest.mark.parametrize("mining", ["hard", "random", "all"])
def test_nothing_waits_for_the_device(level: str, comparison: str, mining: str, layout: str) -> None:
    sizes = LAYOUTS[layout]
    batch = make_batch(sizes, 50, dtype=torch.float32, missing=0.1)
    loss = ClassRectificationLoss(level, comparison, mining=mining, kappa=5, sizes=sizes)
    inputs = on_gpu(batch)
    loss(*inputs)  # tables are made once
    torch.cuda.set_sync_debug_mode("error")
    try:
        value = loss(*inputs)
        value.backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    if mining != "random":
        torch.testing.assert_close(value.cpu(), loss(*batch[:3]), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("level", "comparison"), DESIGNS)
def test_a_captured_loss_follows_its_inputs(level: str, comparison: str, layout: str) -> None:
    sizes = LAYOUTS[layout]
    loss = ClassRectificationLoss(level, comparison, kappa=5, sizes=sizes)
    logits, targets, features = on_gpu(make_batch(sizes, 50, dtype=torch.float32))
    source = logits if level == "class" else features

    def run() -> tuple[torch.Tensor, torch.Tensor]:
        value = loss(logits, targets, features)
        return value, torch.autograd.grad(value, source)[0]

    graph, captured = capture(run)
    for seed in range(1, 4):
        other = make_batch(sizes, 50, seed, dtype=torch.float32, missing=0.2)
        with torch.no_grad():
            for tensor, new in zip((logits, targets, features), other[:3], strict=True):
                tensor.copy_(new)
        graph.replay()
        for got, expected in zip(captured, run(), strict=True):
            torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("level", "comparison"), DESIGNS)
def test_generated_kernels_give_the_same(level: str, comparison: str, layout: str) -> None:
    torch._dynamo.reset()
    sizes = LAYOUTS[layout]
    loss = ClassRectificationLoss(level, comparison, kappa=5, sizes=sizes)
    compiled = torch.compile(loss, fullgraph=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for seed in range(3):
            logits, targets, features = on_gpu(make_batch(sizes, 50, seed, dtype=torch.float32, missing=0.1))
            source = logits if level == "class" else features
            expected, value = loss(logits, targets, features), compiled(logits, targets, features)
            torch.testing.assert_close(value, expected, atol=1e-5, rtol=1e-5)
            (gradient,), (reference,) = torch.autograd.grad(value, source), torch.autograd.grad(expected, source)
            torch.testing.assert_close(gradient, reference, atol=1e-5, rtol=1e-4)


@pytest.mark.filterwarnings("ignore")
def test_generated_kernels_of_the_objective_give_the_same() -> None:
    torch._dynamo.reset()
    objective = RectifiedCrossEntropy([torch.tensor([90, 10])] * 4, eta=0.5).cuda()
    compiled = torch.compile(objective, fullgraph=True)
    for seed in range(3):
        logits, targets, _ = on_gpu(make_batch([2] * 4, 50, seed, dtype=torch.float32))
        torch.testing.assert_close(compiled(logits, targets), objective(logits, targets), atol=1e-5, rtol=1e-5)


def test_the_objective_waits_for_nothing_in_autocast() -> None:
    objective = RectifiedCrossEntropy([torch.tensor([90, 10])] * 4, eta=0.5).cuda()
    logits = torch.randn(64, 8, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    targets = torch.randint(0, 2, (64, 4), device="cuda")
    objective(logits, targets)
    torch.cuda.set_sync_debug_mode("error")
    try:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            parts = objective(logits, targets, return_parts=True)
        parts.loss.backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert parts.loss.dtype == torch.float32
    assert torch.isfinite(logits.grad).all()
