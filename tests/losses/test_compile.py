"""One graph, no recompilation, the same numbers."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable

import pytest
import torch

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
@pytest.mark.parametrize(
    ("level", "comparison", "mining", "layout"),
    [
        ("class", "relative", "hard", "binary"),
        ("instance", "distribution", "hard", "mixed"),
    ],
)
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")  # the compiler's own
def test_generated_code_gives_the_same(level: str, comparison: str, mining: str, layout: str) -> None:
    loss = ClassRectificationLoss(level, comparison, kappa=3, mining=mining, sizes=LAYOUTS[layout])
    assert_same_compiled(loss, LAYOUTS[layout], "inductor")


@pytest.mark.parametrize(("level", "comparison", "layout"), [(*design, layout) for design, _, layout in TURNS])
def test_the_batch_size_may_change(level: str, comparison: str, layout: str) -> None:
    """As in a last, smaller batch: more samples than kappa, and fewer."""
    loss = ClassRectificationLoss(level, comparison, kappa=15, sizes=LAYOUTS[layout])
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    for samples in (40, 24, 33, 9):
        batch = make_batch(LAYOUTS[layout], samples, seed=samples)
        torch.testing.assert_close(compiled(*batch[:3]), loss(*batch[:3]))


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
