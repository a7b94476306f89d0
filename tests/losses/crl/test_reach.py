"""Who is mined at which batch size."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

import oracles
from rectifier.labels import exponential_profile
from rectifier.losses import mining_rates
from rectifier.losses.crl.reach import mined_batches

PAGE = Path(__file__).parents[3] / "docs" / "loss.md"
PROFILES = {
    "2 classes, 1:1": [5000, 5000],
    "2 classes, 1:10": [10_000, 1000],
    "2 classes, 1:100": [10_000, 100],
    "2 classes, 1:1000": [10_000, 10],
    "10 classes, 1:100": exponential_profile(10, 5000, 50),
    "100 classes, 1:100 (CIFAR-100-LT)": exponential_profile(100, 500, 5),
}


@pytest.mark.parametrize("scope", ["minority", "all"])
@pytest.mark.parametrize("rho", [0.3, 0.5])
def test_equals_drawing_batches_in_a_loop(scope: str, rho: float) -> None:
    counts, batch = [40, 12, 5, 3], 10
    data = [k for k, n in enumerate(counts) for _ in range(n)]
    rng, hits, batches = random.Random(0), [0.0] * 4, 4000
    for _ in range(batches):
        for k in oracles.mined(rng.sample(data, batch), 4, rho, scope):
            hits[k] += 1 / batches
    found = mining_rates(counts, batch, rho=rho, scope=scope, batches=batches)
    torch.testing.assert_close(found, torch.tensor(hits), atol=0.03, rtol=0)


def test_several_labels_and_a_batch_of_everything() -> None:
    first, second = mining_rates([[6, 2], {"a": 3, "b": 3, "c": 2}], batch_size=100)
    assert first.tolist() == [0.0, 1.0]
    assert second.tolist() == [0.0, 0.0, 1.0]  # two of three equal classes would hold more than half


def test_the_tail_is_hardly_reached() -> None:
    rates = mining_rates(exponential_profile(100, 500, 5), 128)
    assert rates[-20:].mean() < 0.006
    assert rates[:20].mean() > 0.35


def test_the_table_of_the_page() -> None:
    for name, counts in PROFILES.items():
        cells = []
        for size in (8, 32, 128, 512):
            mined = mined_batches(torch.tensor(counts), size)
            anything, rarest = mined.any(1).float().mean(), mined[:, -1].float().mean()
            cells.append(f"{100 * anything:.0f}, {100 * rarest:.0f}")
        assert f"| {name} | {' | '.join(cells)} |" in PAGE.read_text()


def test_wrong_options() -> None:
    with pytest.raises(
        ValueError, match=r"(?s)batch_size to be a positive integer, but got 0.*rho.*scope to be one of"
    ):
        mining_rates([9, 1], 0, rho=2.0, scope="rare")
