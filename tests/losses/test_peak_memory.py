"""What the losses hold at their peak: linear in the batch at class level, in chunks where pairs would not fit."""

from __future__ import annotations

import measure
import pytest
import torch

from helpers.cases import DESIGNS, make_batch
from rectifier import class_rectification_loss
from rectifier.losses.crl import chunks


def peak_bytes(sizes: list[int], samples: int, **options: object) -> int:
    batch = make_batch(sizes, samples, dtype=torch.float32)
    logits, features = batch.logits.requires_grad_(), batch.features.requires_grad_()

    def run() -> None:
        loss = class_rectification_loss(logits, batch.targets, features, sizes=sizes, **options)  # type: ignore[arg-type]
        torch.autograd.grad(loss, (logits, features), allow_unused=True)

    run()  # tables that are kept are made here
    return measure.peak_bytes(run, cuda=False)


@pytest.mark.parametrize("sizes", [[2] * 20, [50], [5, 12, 30]])
def test_class_level_triplets_are_linear_in_the_batch_and_square_in_kappa(sizes: list[int]) -> None:
    columns = sum(sizes)
    for samples, kappa in ((64, 8), (256, 8), (1024, 8), (256, 32)):
        entries = samples * columns + columns * kappa**2
        assert peak_bytes(sizes, samples, kappa=kappa) < 100 * entries  # bytes: some twenty tensors at once


@pytest.mark.parametrize(("level", "comparison"), [d for d in DESIGNS if d != ("class", "relative")])
def test_chunks_bound_the_peak(level: str, comparison: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"level": level, "comparison": comparison, "kappa": 64}
    whole = peak_bytes([2] * 8, 512, **options)
    monkeypatch.setattr(chunks, "CHUNK_BYTES", whole // 20)
    assert peak_bytes([2] * 8, 512, **options) < whole / 4


def test_chunks_bound_the_peak_of_triplets(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = peak_bytes([2] * 60, 128, kappa=64)
    monkeypatch.setattr(chunks, "CHUNK_BYTES", whole // 20)
    assert peak_bytes([2] * 60, 128, kappa=64) < whole / 3
