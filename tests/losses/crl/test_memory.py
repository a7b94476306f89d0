"""The memory of recent samples: what is in it and how old, who has a gradient, and the losses against loops."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import oracles
from helpers.cases import DESIGNS, capture, make_batch
from rectifier import ClassRectificationLoss, RectifiedCrossEntropy, class_rectification_loss
from rectifier.losses.crl.design import Design
from rectifier.losses.crl.memory import Memory
from rectifier.losses.cross_entropy import CrossEntropyLoss
from rectifier.losses.focal import FocalLoss
from rectifier.losses.objective import Objective

LAYOUTS = {"one": [5], "forty": [2] * 40, "mixed": [2, 7, 3]}
SIZES = [2, 7, 3]
# Batches as long as the memory of 7, shorter, longer, none.
LENGTHS = {"even": [3] * 6, "uneven": [2, 5, 0, 4, 1, 1, 3], "whole": [7, 7, 7], "longer": [3, 12, 2, 9, 7, 1]}


def numbered(batch: int, rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """Scores and features that say which row of which batch they are; some labels are missing."""
    number = 100.0 * batch + torch.arange(rows) + 1
    targets = torch.stack([torch.arange(rows) % 3 + 2, torch.arange(rows) % 2 - 1], 1)
    return torch.stack([number] * 12, 1), targets[:, [1, 0, 1]], number[:, None]


@pytest.mark.parametrize("age", [None, 1, 2])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_the_last_samples_are_remembered_with_their_ages(lengths: str, age: int | None) -> None:
    memory = Memory(7, SIZES, age)
    seen: list[tuple[Tensor, Tensor, Tensor]] = []
    for rows in LENGTHS[lengths]:
        batch = numbered(len(seen), rows)
        scores, targets, features = memory.joined(*batch)
        assert scores.shape == (rows + 7, 12)
        for joined, own in zip((scores, targets, features), batch, strict=True):
            assert torch.equal(joined[:rows], own)
        # In the memory: each row once, with its own targets and features, and as many batches old as it is.
        expected = oracles.remembered_rows([len(past[0]) for past in seen], 7, age)
        labelled = (targets[rows:, 1] >= 0).nonzero()[:, 0]  # the second label never misses
        assert len(labelled) == len(expected)
        found = {float(scores[rows + slot, 0]): slot for slot in labelled.tolist()}
        for b, row in expected:
            slot = found[float(seen[b][0][row, 0])]
            assert torch.equal(scores[rows + slot], seen[b][0][row])
            assert torch.equal(targets[rows + slot], seen[b][1][row])
            assert torch.equal(features[rows + slot], seen[b][2][row])
            assert memory.ages[slot] == len(seen) - b
        assert memory.ages.count_nonzero() == min(7, sum(len(past[0]) for past in seen))  # an empty slot has no age
        assert (targets[rows:][[slot for slot in range(7) if slot not in labelled]] == -1).all()
        memory.remember(*batch)
        seen.append(batch)


OPTIONS: dict[str, dict[str, Any]] = {
    **{f"{level} {kind}": {"level": level, "comparison": kind} for level, kind in DESIGNS},
    "log-probabilities": {"scores": "log-probability"},
    "easy anchors": {"anchors": "easy"},
    "easy anchors between features": {"anchors": "easy", "level": "instance"},
}


@pytest.mark.parametrize(("samples", "age"), [(25, None), (25, 1), (7, None)])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("layout", ["one", "mixed"])
def test_values_and_gradients_equal_the_loop_version(layout: str, options: str, samples: int, age: int | None) -> None:
    sizes, chosen = LAYOUTS[layout], {"kappa": 3, **OPTIONS[options]}
    loss = ClassRectificationLoss(
        sizes=sizes, label_reduction="none", memory=samples, memory_age=age, **chosen
    ).double()  # type: ignore[arg-type]
    past: list[tuple[Tensor, Tensor, Tensor]] = []
    for seed in range(3):
        batch = make_batch(sizes, 10, seed, missing=0.2, shared=layout == "one")
        results = []
        for twin in (False, True):
            logits, features = batch.logits.clone().requires_grad_(), batch.features.clone().requires_grad_()
            if twin:
                given = (logits, batch.targets, features)
                value = oracles.crl_with_memory(past, given, sizes=sizes, samples=samples, age=age, **chosen)
            else:
                value = loss(logits, batch.targets, features)
            weighted = (value * torch.linspace(1, 2, len(sizes), dtype=value.dtype)).sum()
            source = features if chosen.get("level") == "instance" else logits
            results.append((value.detach(), torch.autograd.grad(weighted, source)[0]))
        torch.testing.assert_close(*results)
        past.append(batch[:3])


def test_forty_labels_equal_the_loop_version() -> None:
    sizes = LAYOUTS["forty"]
    loss = ClassRectificationLoss(sizes=sizes, label_reduction="none", kappa=3, memory=8).double()
    batches = [make_batch(sizes, 6, seed, missing=0.2) for seed in range(2)]
    loss(*batches[0][:2])
    expected = oracles.crl_with_memory([batches[0][:3]], batches[1][:3], sizes=sizes, samples=8, age=None, kappa=3)
    torch.testing.assert_close(loss(*batches[1][:2]), expected)


def test_a_class_that_each_batch_shows_once_is_mined_with_a_memory_alone() -> None:
    targets = torch.tensor([0] * 9 + [1])
    found = {}
    for memory in (0, 20):
        objective = Objective(CrossEntropyLoss(), [2], rectification=Design(), alpha=0.5, memory=memory)
        found[memory] = [int(objective(torch.randn(10, 2), targets, return_parts=True).mined_classes) for _ in range(3)]
    assert found == {0: [0, 0, 0], 20: [0, 1, 1]}


@pytest.mark.parametrize("level", ["class", "instance"])
def test_gradients_go_to_the_batch_alone(level: str) -> None:
    objective = Objective(FocalLoss(), SIZES, rectification=Design(level=level), alpha=1.0, memory=40)
    first, second = (make_batch(SIZES, 20, seed, dtype=torch.float32) for seed in range(2))
    leaves = [tensor.requires_grad_() for batch in (first, second) for tensor in (batch.logits, batch.features)]
    objective(*first[:3])
    gradients = torch.autograd.grad(objective(*second[:3]), leaves, allow_unused=True)
    assert gradients[0] is None
    assert gradients[1] is None
    assert gradients[2 if level == "class" else 3].any()  # type: ignore[union-attr]
    assert not any(buffer.requires_grad for buffer in objective.buffers())


def test_the_base_loss_is_of_the_batch_alone() -> None:
    plain, remembering = (
        Objective(FocalLoss(), SIZES, rectification=Design(kappa=3), alpha=0.5, memory=memory) for memory in (0, 30)
    )
    for seed in range(3):
        batch = make_batch(SIZES, 20, seed, missing=0.2)
        without, with_memory = (each(*batch[:2], return_parts=True) for each in (plain, remembering))
        assert torch.equal(without.base_loss, with_memory.base_loss)
        # Empty, a memory changes nothing; then it does.
        assert torch.allclose(without.rectification, with_memory.rectification) == (seed == 0)
        assert (with_memory.comparisons > without.comparisons).all() == (seed > 0)


def test_of_mixed_images_the_larger_side_is_remembered() -> None:
    objective = Objective(CrossEntropyLoss(), [3], rectification=Design(), alpha=0.5, memory=4)
    first, second = torch.tensor([[0], [1], [2], [-1]]), torch.tensor([[1], [2], [0], [1]])
    objective(torch.zeros(4, 3), first, partner=(second, torch.tensor([0.9, 0.1, 0.5, 0.7])))
    assert (objective.memory.classes[:, 0] - 1).tolist() == [0, 2, 2, 1]  # type: ignore[union-attr,operator]


def test_in_evaluation_nothing_is_remembered() -> None:
    objective = RectifiedCrossEntropy([torch.tensor([90, 10])], eta=0.5, level="instance", memory=30)
    batches = [make_batch([2], 20, seed, dtype=torch.float32) for seed in range(3)]
    with torch.inference_mode():
        objective.eval()(*batches[2][:3])
    objective.train()(*batches[0][:3])
    kept = {name: tensor.clone() for name, tensor in objective.state_dict().items()}
    objective.eval()
    values = [objective(*batches[1][:3]) for _ in range(2)]
    assert values[0] == values[1]  # of batch and memory, neither of which has changed
    assert values[0] != RectifiedCrossEntropy([torch.tensor([90, 10])], eta=0.5, level="instance")(*batches[1][:3])
    torch.testing.assert_close(objective.state_dict(), kept, atol=0, rtol=0)
    objective.train()(*batches[1][:3])
    assert not torch.equal(objective.state_dict()["memory.ages"], kept["memory.ages"])


@pytest.mark.parametrize("level", ["class", "instance"])
def test_a_loaded_state_goes_on_exactly(level: str) -> None:
    def build() -> Objective:
        return Objective(FocalLoss(), SIZES, rectification=Design(level=level), alpha=0.5, memory=25, memory_age=2)

    batches = [make_batch(SIZES, 10, seed, dtype=torch.float32) for seed in range(6)]
    through, resumed = build(), build()
    for batch in batches[:3]:
        through(*batch[:3])
    resumed.load_state_dict(through.state_dict())
    fresh = build()
    for batch in batches[3:]:
        expected = through(*batch[:3])
        assert resumed(*batch[:3]) == expected
        assert fresh(*batch[:3]) != expected or batch is batches[5]  # by then it has seen as much
    torch.testing.assert_close(resumed.state_dict(), through.state_dict(), atol=0, rtol=0)
    wanted = {"memory.scores", "memory.classes", "memory.ages", "memory.place"}
    assert wanted <= set(through.state_dict())
    assert ("memory.features" in through.state_dict()) == (level == "instance")


@pytest.mark.parametrize("level", ["class", "instance"])
def test_zeros_are_the_empty_memory(level: str) -> None:
    """As after the warm-up of a capture."""
    losses = [ClassRectificationLoss(level, sizes=SIZES, memory=30) for _ in range(2)]
    batches = [make_batch(SIZES, 20, seed, dtype=torch.float32) for seed in range(3)]
    losses[0](*batches[2][:3])
    for buffer in losses[0].buffers():
        buffer.zero_()
    for batch in batches:
        assert losses[0](*batch[:3]) == losses[1](*batch[:3])


@pytest.mark.parametrize(("level", "comparison"), DESIGNS)
def test_no_memory_is_as_before(level: str, comparison: str) -> None:
    batch = make_batch(SIZES, 30, missing=0.1)
    options: dict[str, Any] = {"level": level, "comparison": comparison, "kappa": 4}
    expected = class_rectification_loss(*batch[:3], sizes=SIZES, **options)
    loss = ClassRectificationLoss(sizes=SIZES, memory=0, **options)
    assert loss(*batch[:3]) == loss(*batch[:3]) == expected
    counts = [torch.arange(size) + 1 for size in SIZES]
    with_option, without = RectifiedCrossEntropy(counts, memory=0, **options), RectifiedCrossEntropy(counts, **options)
    assert with_option(*batch[:3]) == without(*batch[:3])
    assert not with_option.state_dict()


def test_it_takes_the_bytes_it_says() -> None:
    memory = Memory(512, [2] * 40)
    memory(torch.zeros(3, 80), torch.zeros(3, 40, dtype=torch.int64), torch.zeros(3, 40, 64))
    taken = sum(buffer.nbytes for buffer in memory.buffers())
    assert taken == 512 * (4 * 80 + 8 * 40 + 8 + 4 * 40 * 64) + memory.place.nbytes
    assert round(taken / 1e6, 1) == 5.6


def test_scores_and_features_of_half_precision_are_remembered_in_float32() -> None:
    loss = ClassRectificationLoss("instance", sizes=[2], memory=8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for _ in range(2):
            value = loss(torch.randn(8, 2).bfloat16(), torch.arange(8) % 2, torch.randn(8, 3).bfloat16())
    assert value.dtype == torch.float32
    assert {buffer.dtype for buffer in loss.buffers()} == {torch.float32, torch.int64}


@pytest.mark.parametrize("level", ["class", "instance"])
def test_nothing_to_compare_is_zero_with_a_gradient(level: str) -> None:
    loss = ClassRectificationLoss(level, sizes=[2, 3], memory=5, label_reduction="none")
    for rows in (4, 1, 0):
        logits, features = torch.randn(rows, 5, requires_grad=True), torch.randn(rows, 2, 3, requires_grad=True)
        value = loss(logits, torch.full((rows, 2), -1), features)
        assert value.tolist() == [0.0, 0.0]
        (gradient,) = torch.autograd.grad(value.sum(), logits if level == "class" else features)
        assert not gradient.any()


@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("level", ["class", "instance"])
def test_it_is_one_graph(level: str, prepared: bool) -> None:
    torch._dynamo.reset()
    plain, compiled = (
        Objective(FocalLoss(), SIZES, rectification=Design(level=level, kappa=3), alpha=0.5, memory=25, memory_age=2)
        for _ in range(2)
    )
    graph = torch.compile(compiled, fullgraph=True, backend="eager")
    if prepared and level == "instance":
        compiled.memory.prepare(make_batch(SIZES, 10, dtype=torch.float32).features)  # type: ignore[union-attr]
    # Without it, the first batch makes the features, and the second finds them made.
    with torch._dynamo.config.patch(error_on_recompile=prepared):
        for seed in range(5):
            batch = make_batch(SIZES, 10, seed, missing=0.2, dtype=torch.float32)
            torch.testing.assert_close(graph(*batch[:3]), plain(*batch[:3]))
    torch.testing.assert_close(compiled.state_dict(), plain.state_dict())
    torch._dynamo.reset()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode", "ignore:The AccumulateGrad node's stream")
@pytest.mark.parametrize("level", ["class", "instance"])
def test_a_captured_memory_remembers_and_waits_for_nothing(level: str) -> None:
    def build() -> Objective:
        return Objective(
            FocalLoss(), SIZES, rectification=Design(level=level, kappa=4), alpha=0.5, memory=50, memory_age=2
        ).cuda()

    captured_objective, objective = build(), build()
    first = make_batch(SIZES, 20, dtype=torch.float32)
    logits, targets, features = (tensor.cuda() for tensor in first[:3])
    source = (logits if level == "class" else features).requires_grad_()

    def run(of: Objective) -> tuple[Tensor, Tensor]:
        value = of(logits, targets, features)
        return value, torch.autograd.grad(value, source)[0]

    run(captured_objective)  # tables are made once
    torch.cuda.set_sync_debug_mode("error")
    try:
        run(captured_objective)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph, results = capture(lambda: run(captured_objective))
    for name, buffer in captured_objective.named_buffers():
        if name.startswith("memory."):
            buffer.zero_()
    for seed in range(5):
        other = make_batch(SIZES, 20, seed, dtype=torch.float32, missing=0.2)
        with torch.no_grad():
            for tensor, new in zip((logits, targets, features), other[:3], strict=True):
                tensor.copy_(new)
        graph.replay()
        for got, expected in zip(results, run(objective), strict=True):
            torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(captured_objective.state_dict(), objective.state_dict())
    assert objective.memory.ages.max() == 3  # type: ignore[union-attr,operator]


@pytest.mark.parametrize(
    "build",
    [
        lambda **o: Objective(CrossEntropyLoss(), [2], rectification=Design(), alpha=0.5, **o),
        lambda **o: RectifiedCrossEntropy(torch.tensor([9, 1]), **o),
        lambda **o: ClassRectificationLoss(sizes=[2], **o),
    ],
)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memory": -1}, "memory to be a positive integer, but got -1"),
        ({"memory": 2.5}, r"memory to be a positive integer, but got 2\.5"),
        ({"memory": 10, "memory_age": 0}, "memory_age to be a positive integer or None, but got 0"),
        ({"memory_age": 3}, "memory to be given together with memory_age, but got 0"),
    ],
)
def test_wrong_options(build: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(**options)


def test_what_a_memory_needs() -> None:
    with pytest.raises(ValueError, match=r"sizes to be given together with memory, .*but got None"):
        ClassRectificationLoss(memory=10)
    with pytest.raises(ValueError, match="rectification to be given together with memory, but got None"):
        Objective(CrossEntropyLoss(), [2], memory=10)
    loss = ClassRectificationLoss("instance", sizes=[2], memory=10)
    loss(torch.zeros(4, 2), torch.arange(4) % 2, torch.zeros(4, 3))
    with pytest.raises(ValueError, match=r"features to be \(3,\) for each sample, as in memory, but got \(5,\)"):
        loss(torch.zeros(4, 2), torch.arange(4) % 2, torch.zeros(4, 5))
