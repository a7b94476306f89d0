"""The benchmark of heads compares equal things."""

from __future__ import annotations

import heads
import pytest
import torch

from rectifier.training.heads import HeadSpec, train_heads


@pytest.mark.parametrize("method", heads.METHODS)
def test_a_plain_loop_gives_the_same_head(method: str) -> None:
    table = heads.made_table(4, "cpu", samples=50, features=6)
    spec = HeadSpec(method, epochs=2, batch_size=20, lr=0.05)
    plain = heads.plain_training(table, spec)
    variance, mean = torch.var_mean(table.x, 0, correction=0)
    found = train_heads(table, [spec])[0].logits(table.x)
    torch.testing.assert_close(found, plain((table.x - mean) / variance.sqrt()).detach(), rtol=1e-4, atol=1e-4)


def test_every_group_has_64_heads_and_both_measurements_run() -> None:
    assert {len(specs) for specs in heads.groups("ce", 1).values()} == {64}
    table = heads.made_table(3, "cpu", samples=40, features=4)
    assert heads.samples_per_second(table, HeadSpec(batch_size=20), 1) != 0
    found = heads.time_together(table, "ce", 1, 1)
    assert set(found) == set(heads.groups("ce", 1))
    assert all(taken > 0 for times in found.values() for taken in times.values())
