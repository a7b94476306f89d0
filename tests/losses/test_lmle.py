from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import oracles
from helpers.cases import Batch, make_batch
from rectifier import LabelSpace
from rectifier.losses import inputs
from rectifier.losses.lmle import LMLE, MARGINS, quintuplet_loss

LAYOUTS = [([4], 7), ([2] * 40, 51), ([2, 7, 3], 8), ([2, 3], 2)]


def quintuplet_batch(
    sizes: list[int], rows: int, seed: int = 0, *, missing: float = 0.1, wrong: float = 0.2, shared: bool = False
) -> Batch:
    """Five blocks in which most rows are quintuplets by their labels, and some are not."""
    batch = make_batch(sizes, 5 * rows, seed, shared=shared)
    g = torch.Generator().manual_seed(seed)
    targets = batch.targets.clone()
    for r in range(rows):
        label = r % len(sizes)
        own = int(torch.randint(0, sizes[label], (), generator=g))
        for role in range(5):
            targets[role * rows + r, label] = (own + (role == 4)) % sizes[label]
    targets = torch.where(torch.rand(targets.shape, generator=g) < wrong, batch.targets, targets)
    targets[torch.rand(targets.shape, generator=g) < missing] = -1
    return batch._replace(targets=targets)


def at(progress: float, sizes: list[int], rows: int, **options: object) -> LMLE:
    objective = LMLE(sizes, quintuplets=rows, **options)  # type: ignore[arg-type]
    objective.set_progress(progress)
    return objective


def assert_equals_the_loop_version(batch: Batch, rows: int, margins: tuple[float, float, float] = MARGINS) -> None:
    logits, features = batch.logits.clone().requires_grad_(), batch.features.clone().requires_grad_()
    parts = at(0.2, batch.sizes, rows, margins=margins)(logits, batch.targets, features, return_parts=True)
    expected, numbers = oracles.lmle(batch.targets, features, rows, margins)
    torch.testing.assert_close(parts.loss, sum(expected))
    torch.testing.assert_close(parts.base_loss, torch.stack(expected).detach())
    assert parts.comparisons.tolist() == numbers
    gradients = [torch.autograd.grad(value, features, retain_graph=True)[0] for value in (parts.loss, sum(expected))]
    torch.testing.assert_close(*gradients)
    parts.loss.backward()
    assert logits.grad is not None  # a gradient path, for whoever waits for every parameter
    assert not logits.grad.any()


@settings(max_examples=30)
@given(st.sampled_from(LAYOUTS), st.integers(0, 10**6), st.booleans(), st.sampled_from([0.0, 0.1, 0.4]))
def test_equals_the_loop_version(layout: tuple[list[int], int], seed: int, shared: bool, missing: float) -> None:
    assert_equals_the_loop_version(quintuplet_batch(*layout, seed, missing=missing, shared=shared), layout[1])


def test_margins_count() -> None:
    assert_equals_the_loop_version(quintuplet_batch([2, 3], 6), 6, margins=(1.0, 0.0, 2.0))


def test_the_weight_is_of_quintuplets_and_not_of_cross_entropy() -> None:
    batch = quintuplet_batch([2, 3], 6)
    for share, times in ((0.0, 1.0), (0.5, 0.1)):
        whole, light = (at(share, [2, 3], 6, weight=weight)(*batch[:3]) for weight in (1.0, 0.1))
        torch.testing.assert_close(light, times * whole)


def test_one_label_is_the_quintuplet_loss_of_the_blocks() -> None:
    batch = quintuplet_batch([3], 9, missing=0.0, wrong=0.0, shared=True)
    value = at(1.0, [3], 9)(*batch[:3])
    torch.testing.assert_close(value, quintuplet_loss(*batch.features.chunk(5)))
    length = torch.rand(45, 1, dtype=torch.float64) + 0.1
    torch.testing.assert_close(at(1.0, [3], 9)(batch.logits, batch.targets, batch.features * length), value)


@pytest.mark.parametrize("share", [0.0, 0.19])
@pytest.mark.parametrize(("sizes", "rows"), LAYOUTS)
def test_cross_entropy_of_all_rows_before(share: float, sizes: list[int], rows: int) -> None:
    batch = make_batch(sizes, 5 * rows, missing=0.3)
    logits, features = batch.logits.clone().requires_grad_(), batch.features.clone().requires_grad_()
    parts = at(share, sizes, rows)(logits, batch.targets, features, return_parts=True)
    expected = oracles.cross_entropy(logits, batch.targets, sizes)
    torch.testing.assert_close(parts.base_loss, expected.detach())
    torch.testing.assert_close(parts.loss, expected.sum())
    assert not parts.comparisons.any()
    gradients = torch.autograd.grad(parts.loss, (logits, features))
    torch.testing.assert_close(gradients[0], torch.autograd.grad(expected.sum(), logits)[0])
    assert not gradients[1].any()


def test_where_the_phases_meet() -> None:
    batch = quintuplet_batch([2], 5)
    before, after = (at(share, [2], 5)(*batch[:3]) for share in (0.0, 1.0))
    assert before != after
    for pretrain, share, expected in [(0.3, 0.29, before), (0.3, 0.3, after), (0.0, 0.0, after), (1.0, 0.99, before)]:
        assert at(share, [2], 5, pretrain=pretrain)(*batch[:3]) == expected


@pytest.mark.parametrize("five", [[0, 0, 0, 0, 0], [-1, 0, 0, 0, 1], [0, 0, 0, 0, -1], [-1] * 5, [0, 1, 0, 0, 1]])
def test_a_row_that_is_no_quintuplet_gives_zero_with_a_gradient_path(five: list[int]) -> None:
    features = torch.randn(5, 4, requires_grad=True)
    parts = at(1.0, [2], 1)(torch.zeros(5, 2), torch.tensor(five), features, return_parts=True)
    assert parts.loss.item() == 0
    assert parts.comparisons.tolist() == [0]
    parts.loss.backward()
    assert not features.grad.any()


def test_features_of_length_zero_have_a_gradient() -> None:
    features = torch.zeros(5, 4, requires_grad=True)
    at(1.0, [2], 1)(torch.zeros(5, 2), torch.tensor([0, 0, 0, 0, 1]), features).backward()
    assert features.grad.isfinite().all()


def test_gradcheck() -> None:
    batch = quintuplet_batch([2, 3], 4)
    tensors = batch.logits.requires_grad_(), batch.features.requires_grad_()
    for progress in (0.0, 1.0):
        objective = at(progress, [2, 3], 4)
        assert torch.autograd.gradcheck(lambda x, f, of=objective: of(x, batch.targets, f), tensors)


@pytest.mark.parametrize(("sizes", "rows"), LAYOUTS)
def test_one_graph_of_both_phases(sizes: list[int], rows: int) -> None:
    torch._dynamo.reset()
    objective = LMLE(sizes, quintuplets=rows)
    compiled = torch.compile(objective, fullgraph=True, backend="aot_eager")
    for progress in (0.0, 0.5):
        objective.set_progress(progress)
        batch = quintuplet_batch(sizes, rows)
        results = []
        for function in (objective, compiled):
            tensors = batch.logits.clone().requires_grad_(), batch.features.clone().requires_grad_()
            value = function(tensors[0], batch.targets, tensors[1])
            results.append((value, *torch.autograd.grad(value, tensors)))
        torch.testing.assert_close(*results)
        assert results[0][1].any() == (progress == 0.0)


def test_float32_inside_autocast() -> None:
    batch = quintuplet_batch([2, 3], 6)
    half = batch.logits.bfloat16(), batch.targets, batch.features.bfloat16()
    for progress in (0.0, 1.0):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value = at(progress, [2, 3], 6)(*half)
        assert value.dtype == torch.float32
        torch.testing.assert_close(value, at(progress, [2, 3], 6)(half[0].float(), half[1], half[2].float()))


def test_ranks_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The joined batch is one layout after the other; the mean is over the rows of both ranks."""
    mine, theirs = (quintuplet_batch([2, 3, 4], 8, seed, missing=missing) for seed, missing in ((0, 0.0), (1, 0.02)))
    alone = at(1.0, [2, 3, 4], 8, gather=True)(*mine[:3])
    assert alone == at(1.0, [2, 3, 4], 8)(*mine[:3])

    def joined(*own: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.cat(pair) for pair in zip(own, theirs[:3], strict=True))

    monkeypatch.setattr(inputs, "global_batch", joined)
    for progress in (0.0, 1.0):
        parts = at(progress, [2, 3, 4], 8, gather=True)(*mine[:3], return_parts=True)
        logits, targets, features = joined(*mine[:3])
        if progress:
            expected, numbers = oracles.lmle(targets, features, 8, MARGINS)
            assert parts.comparisons.tolist() == numbers
        else:
            expected = list(oracles.cross_entropy(logits, targets, [2, 3, 4]))
        torch.testing.assert_close(parts.base_loss, torch.stack(expected))
    assert parts.loss != alone


def test_wrong_input() -> None:
    all_of_them = r"(?s)quintuplets to be at least 3, one for .* 2.*margins.*pretrain.* 1\.5.*weight.* 0"
    with pytest.raises(ValueError, match=all_of_them):
        LMLE([2, 2, 2], quintuplets=2, margins=(0.1, 0.2, -1), pretrain=1.5, weight=0)
    for quintuplets in (0, 2.5, True):
        with pytest.raises(ValueError, match=r"quintuplets to be a positive integer"):
            LMLE([2], quintuplets=quintuplets)  # type: ignore[arg-type]
    objective = LMLE(LabelSpace.from_names({"age": [1, 2, 3]}), quintuplets=2)
    with pytest.raises(ValueError, match=r"progress to be a share from 0 to 1, but got -0\.1"):
        objective.set_progress(-0.1)
    objective.set_progress(0.0)
    targets = torch.zeros(10, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"a batch to be of 10 rows, five for each of 2 quintuplets.*but got 9"):
        objective(torch.zeros(9, 3), targets[:9], torch.zeros(9, 4))
    with pytest.raises(ValueError, match=r"features to be given .*, but got None"):
        objective(torch.zeros(10, 3), targets)
    with pytest.raises(ValueError, match=r"targets of label 'age' to be below 3"):
        objective(torch.zeros(10, 3), targets + 3, torch.zeros(10, 4))
