"""One graph, no recompilation, the same numbers."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend

from helpers.cases import DESIGNS, make_batch
from rectifier import ClassRectificationLoss, RectifiedCrossEntropy, class_rectification_loss

LAYOUTS = {"binary": [2] * 4, "mixed": [3, 7, 2], "very unequal": [2, 2, 2, 2, 2, 2, 40], "many classes": [30]}


@pytest.fixture(autouse=True)
def fresh_compiler() -> object:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def assert_same_compiled(loss: Callable[..., torch.Tensor], sizes: list[int], backend: str) -> None:
    compiled = torch.compile(loss, fullgraph=True, backend=backend)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for seed in range(3):
            batch = make_batch(sizes, 20, seed, missing=0.1, dtype=torch.float32)
            gradients = []
            for function in (loss, compiled):
                logits, features = batch.logits.clone().requires_grad_(), batch.features.clone().requires_grad_()
                value = function(logits, batch.targets, features)
                value.backward()
                gradients.append((value.detach(), logits.grad, features.grad))
            for expected, got in zip(*gradients, strict=True):
                assert (expected is None) == (got is None)
                if expected is not None:
                    torch.testing.assert_close(got, expected, atol=1e-6, rtol=1e-5)


# Compiling takes seconds. Each design meets two layouts with each kind of mining, and each layout several designs.
TURNS = list(zip(DESIGNS, itertools.cycle(LAYOUTS), itertools.cycle([*LAYOUTS][2:] + [*LAYOUTS][:2])))


@pytest.mark.parametrize(
    ("level", "comparison", "mining", "layout"),
    [(*design, mining, layout) for design, *two in TURNS for mining, layout in zip(("hard", "all"), two, strict=True)],
)
def test_every_design_is_one_graph(level: str, comparison: str, mining: str, layout: str) -> None:
    loss = ClassRectificationLoss(level, comparison, kappa=3, mining=mining, sizes=LAYOUTS[layout])
    assert_same_compiled(loss, LAYOUTS[layout], "aot_eager")


@pytest.mark.skipif(shutil.which("g++") is None, reason="generated code needs a C++ compiler")
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")  # the compiler's own
def test_generated_code_gives_the_same() -> None:
    loss = ClassRectificationLoss("instance", "distribution", kappa=3, sizes=LAYOUTS["mixed"])
    assert_same_compiled(loss, LAYOUTS["mixed"], "inductor")


# Fewer samples than kappa and more, the smallest batch, and sizes at which a Python comparison would change its mind.
BATCHES = (64, 3, 24, 25, 26, 2, 100, 512, 13)


def objective(level: str, comparison: str, sizes: list[int], **options: Any) -> RectifiedCrossEntropy:
    counts = [torch.arange(size) + 1 for size in sizes]
    return RectifiedCrossEntropy(counts, eta=0.5, level=level, comparison=comparison, **options)


def assert_same_for_all_batch_sizes(compiled: Any, loss: Any, sizes: list[int], dtype: torch.dtype) -> None:
    for samples in BATCHES:
        batch = make_batch(sizes, samples, seed=samples, missing=0.1, dtype=dtype)
        results = []
        for function in (loss, compiled):
            logits, features = batch.logits.clone().requires_grad_(), batch.features.clone().requires_grad_()
            value = function(logits, batch.targets, features)
            gradients = torch.autograd.grad(value, (logits, features), allow_unused=True)
            results.append([value.detach(), *(each for each in gradients if each is not None)])
        torch.testing.assert_close(results[1], results[0], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("level", "comparison", "layout"), [(*design, layout) for design, layout, _ in TURNS])
def test_one_graph_serves_all_batch_sizes(level: str, comparison: str, layout: str) -> None:
    loss = objective(level, comparison, LAYOUTS[layout]).double()
    compiled = torch.compile(loss, fullgraph=True, dynamic=True, backend="aot_eager")
    with torch._dynamo.config.patch(error_on_recompile=True):
        assert_same_for_all_batch_sizes(compiled, loss, LAYOUTS[layout], torch.float64)


@pytest.mark.skipif(shutil.which("g++") is None, reason="generated code needs a C++ compiler")
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")  # the compiler's own
def test_generated_code_serves_all_batch_sizes() -> None:
    loss = objective("class", "relative", LAYOUTS["many classes"])
    compiled = torch.compile(loss, fullgraph=True, dynamic=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        assert_same_for_all_batch_sizes(compiled, loss, LAYOUTS["many classes"], torch.float32)


@pytest.mark.parametrize("mining", ["all", "random"])
@pytest.mark.parametrize(
    ("level", "comparison"), [("class", "relative"), ("class", "absolute"), ("instance", "relative")]
)
def test_one_graph_serves_all_batch_sizes_without_hard_mining(level: str, comparison: str, mining: str) -> None:
    sizes, counter = LAYOUTS["mixed"], CompileCounterWithBackend("eager")

    def loss(logits: Tensor, targets: Tensor, features: Tensor) -> Tensor:
        return class_rectification_loss(
            logits, targets, features, level=level, comparison=comparison, mining=mining, sizes=sizes
        )

    compiled = torch.compile(loss, fullgraph=True, dynamic=True, backend=counter)
    for samples in BATCHES:
        batch = make_batch(sizes, samples, seed=samples)
        torch.manual_seed(0)
        value = compiled(*batch[:3])
        torch.manual_seed(0)
        torch.testing.assert_close(value, loss(*batch[:3]))
    assert counter.frame_count == 1


def test_one_graph_of_the_function_serves_all_batch_sizes() -> None:
    """Without sizes, the graph has a symbol even for the number of classes."""
    counter = CompileCounterWithBackend("eager")
    compiled = torch.compile(class_rectification_loss, fullgraph=True, dynamic=True, backend=counter)
    for samples in BATCHES:
        batch = make_batch([30], samples, seed=samples)
        torch.testing.assert_close(compiled(*batch[:2], kappa=4), class_rectification_loss(*batch[:2], kappa=4))
    assert counter.frame_count == 1


def test_a_graph_of_one_batch_size_is_followed_by_one_of_all() -> None:
    """As torch.compile does by itself. Otherwise the ninth batch size would fail."""
    counter = CompileCounterWithBackend("eager")
    loss = objective("class", "relative", [30])
    compiled = torch.compile(loss, fullgraph=True, backend=counter)
    for samples in (*BATCHES, 40, 30, 20):
        compiled(*make_batch([30], samples, dtype=torch.float32)[:2])
    assert counter.frame_count == 2


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(("level", "comparison", "layout"), [(*design, layout) for design, _, layout in TURNS])
def test_an_exported_graph_serves_all_batch_sizes(level: str, comparison: str, layout: str, strict: bool) -> None:
    sizes, rows = LAYOUTS[layout], {0: torch.export.Dim("samples", min=2, max=512)}
    loss = objective(level, comparison, sizes).double()
    example = make_batch(sizes, 64)[:3]
    exported = torch.export.export(loss, example, dynamic_shapes=(rows, rows, rows), strict=strict).module()
    for samples in BATCHES:
        batch = make_batch(sizes, samples, seed=samples, missing=0.1)
        torch.testing.assert_close(exported(*batch[:3]), loss(*batch[:3]))


def test_an_export_leaves_nothing_behind() -> None:
    """Tables made while torch.export runs the code hold no values."""
    sizes = [3, 5, 13]  # a layout that no other test uses
    loss, batch = ClassRectificationLoss(sizes=sizes), make_batch(sizes, 20)
    torch.export.export(loss, batch[:2], dynamic_shapes=({0: torch.export.Dim.AUTO}, {0: torch.export.Dim.AUTO}))
    assert loss(*batch[:2]) > 0


def test_the_whole_objective_is_one_graph() -> None:
    counts = [torch.tensor([90, 10]), torch.tensor([50, 30, 20])]
    assert_same_compiled(RectifiedCrossEntropy(counts, eta=0.5), [2, 3], "aot_eager")


def test_the_function_is_one_graph() -> None:
    def loss(logits: torch.Tensor, targets: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        return class_rectification_loss(logits, targets, comparison="absolute", kappa=3, sizes=[3, 7, 2])

    assert_same_compiled(loss, [3, 7, 2], "aot_eager")


def test_two_layouts_fit_one_graph() -> None:
    first, second = ClassRectificationLoss(sizes=[2, 3]), ClassRectificationLoss(sizes=[5, 4])

    def both(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return first(x, y) + second(z, w)

    a, b = make_batch([2, 3], 20), make_batch([5, 4], 20)
    compiled = torch.compile(both, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*a[:2], *b[:2]), both(*a[:2], *b[:2]))


def test_a_compiled_loss_still_refuses_wrong_targets() -> None:
    loss = torch.compile(ClassRectificationLoss(sizes=[2, 3]), fullgraph=True, backend="aot_eager")
    batch = make_batch([2, 3], 20)
    with pytest.raises(RuntimeError, match="below its label's number of classes"):
        loss(batch.logits, batch.targets + 2)
