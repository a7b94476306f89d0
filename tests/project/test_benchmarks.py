"""Benchmarks compare equal things, and their parts run."""

from __future__ import annotations

from pathlib import Path

import compiling
import engine_steps
import imports
import loader
import pytest
import rivals
import torch

from helpers.cases import make_batch
from rectifier import class_rectification_loss
from rectifier.training.engine.step_modes import EagerStep


@pytest.mark.parametrize(("sizes", "samples"), [([4], 24), ([2] * 5, 60), ([5, 9, 20], 50)])
def test_dense_rivals_give_our_value_and_gradient(sizes: list[int], samples: int) -> None:
    batch = make_batch(sizes, samples, missing=0.1)
    ours = batch.logits.clone().requires_grad_()
    value = class_rectification_loss(ours, batch.targets, sizes=sizes)
    (expected,) = torch.autograd.grad(value, ours)
    for rival in (rivals.dense_per_class, rivals.dense_at_once):
        theirs = batch.logits.clone().requires_grad_()
        loss = rival(theirs, batch.targets, sizes)
        torch.testing.assert_close(loss, value)
        torch.testing.assert_close(torch.autograd.grad(loss, theirs)[0], expected)


def test_the_loop_over_triplets_gives_our_value() -> None:
    batch = make_batch([3], 12)
    torch.testing.assert_close(
        rivals.triplet_loop(batch.logits, batch.targets, [3]), class_rectification_loss(batch.logits, batch.targets)
    )


def test_compiling_pays_from_the_step_where_both_take_equally_long() -> None:
    found = {"wait_s": {"as it is": 2.0, "network": 32.0}, "step_ms": {"as it is": 4.3, "network": 3.4}}
    steps = compiling.pays_from(found, "as it is", "network")
    assert steps is not None
    taken = [1e3 * found["wait_s"][name] + steps * found["step_ms"][name] for name in found["wait_s"]]
    assert taken[0] == pytest.approx(taken[1])
    assert compiling.pays_from(found, "network", "as it is") is None


@pytest.mark.parametrize("method", ["ce", "crl", "lmle", "remix", "ldam"])
def test_a_step_on_a_fixed_batch_computes_the_loss_and_changes_the_weights(method: str) -> None:
    fabric = engine_steps.make_fabric("cpu")
    step = engine_steps.engine_step(fabric, "cifarnet", method, compiled=None)
    assert isinstance(step, EagerStep)
    before = [weight.detach().clone() for weight in step.network.parameters()]
    batch = engine_steps.made_batch("cifarnet", fabric.device, samples=10)
    classes = torch.tensor([[0]] * 8 + [[1]] * 2)  # two quintuplets for LMLE; the rare class can be mined
    step([batch._replace(targets=classes)], 0.01)
    found = step.tally.means()
    assert step.tally.first_bad() is None
    assert found["loss"] > 0
    assert (found["rectification"] > 0) == (method == "crl")
    assert not all(torch.equal(old, new) for old, new in zip(before, step.network.parameters(), strict=True))


def test_memory_of_a_stream_is_measured_in_its_own_process(tmp_path: Path) -> None:
    assert set(loader.memory_mib(tmp_path / "many", 300)) == {"targets and names", "loader"}


def test_imports_are_timed_in_a_new_process_after_torch() -> None:
    torch_alone, nothing = imports.seconds("pass")
    assert torch_alone > 100 * nothing
    assert imports.seconds("time.sleep(0.05)")[1] >= 0.05
