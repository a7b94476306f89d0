"""Gradient accumulation: four batches of eight equal one batch of 32, where the loss allows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from helpers import frameworks
from helpers.frameworks import COUNTS, Samples
from rectifier.losses import AsymmetricLoss, FocalLoss, LDAMLoss, LogitAdjustedLoss, RectifiedCrossEntropy

pytest.importorskip("lightning")
pytest.importorskip("transformers")
pytest.importorskip("accelerate")
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*`isinstance\\(treespec, LeafSpec\\)` is deprecated"),
]

STEPS, SMALL = 4, 8
WHOLE, GAPS = Samples(), Samples(missing=0.4)
LOSSES: dict[str, Callable[..., Any]] = {
    "focal": FocalLoss,
    "LDAM": lambda **options: LDAMLoss(COUNTS, scale=2.0, **options),
    "logit-adjusted": lambda **options: LogitAdjustedLoss(COUNTS, **options),
}


def by_items(loss: Any) -> Callable[..., Tensor]:
    """The ``compute_loss_func`` of docs/integrations.md."""
    return lambda outputs, labels, num_items_in_batch: loss(outputs["logits"], labels) / num_items_in_batch


def in_lightning(data: Samples, loss: Any) -> Tensor:
    return frameworks.lightning(DataLoader(data, SMALL), loss, accumulate_grad_batches=STEPS)


def in_accelerate(data: Samples, loss: Any) -> Tensor:
    return frameworks.accelerate(DataLoader(data, SMALL), loss, STEPS)


def in_model(data: Samples, loss: Any) -> Tensor:
    return frameworks.huggingface(DataLoader(data, SMALL), loss, gradient_accumulation_steps=STEPS)[1]


def in_function(data: Samples, loss: Any) -> Tensor:
    """Train with the Trainer of Hugging Face and a sum in ``compute_loss_func``."""
    return frameworks.huggingface(DataLoader(data, SMALL), None, by_items(loss), gradient_accumulation_steps=STEPS)[1]


def by_labels(data: Samples, loss: Any) -> Tensor:
    return frameworks.accelerate_by_labels(DataLoader(data, SMALL), loss, STEPS)


MEANS = {"lightning": in_lightning, "accelerate": in_accelerate, "huggingface": in_model}
SUMS = {"huggingface": in_function, "accelerate": by_labels}


def together(data: Samples, loss: Any) -> Tensor:
    """Train on the same samples without accumulation, in PyTorch alone."""
    return frameworks.plain([(data.inputs, data.targets)], loss)


def apart(data: Samples, loss: Any) -> Tensor:
    """Train on the mean of the losses of the small batches, in PyTorch alone."""

    def mean(logits: Tensor, targets: Tensor) -> Tensor:
        pairs = zip(logits.split(SMALL), targets.split(SMALL), strict=True)
        return torch.stack([loss(*pair) for pair in pairs]).mean()

    return frameworks.plain([(data.inputs, data.targets)], mean)


def assert_equal(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("framework", MEANS)
def test_means_over_single_samples(framework: str, loss: str) -> None:
    assert_equal(MEANS[framework](WHOLE, LOSSES[loss]()), together(WHOLE, LOSSES[loss]()))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("framework", SUMS)
def test_sums_over_the_labels_of_the_step(framework: str, loss: str) -> None:
    assert_equal(SUMS[framework](GAPS, LOSSES[loss](reduction="sum")), together(GAPS, LOSSES[loss]()))


def test_a_sum_over_the_samples_of_a_batch_in_lightning() -> None:
    class PerSample(FocalLoss):
        def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
            return super().forward(logits, targets) / len(targets)

    assert_equal(in_lightning(GAPS, PerSample(reduction="sum")), together(GAPS, PerSample(reduction="sum")))


@pytest.mark.parametrize("framework", MEANS)
def test_with_missing_labels_a_mean_of_means_is_not_the_mean(framework: str) -> None:
    found = MEANS[framework](GAPS, FocalLoss())
    assert_equal(found, apart(GAPS, FocalLoss()))
    assert (found - together(GAPS, FocalLoss())).abs().max() > 1e-3


def test_a_mean_in_compute_loss_func_counts_once_for_each_batch() -> None:
    one = in_function(WHOLE, lambda *batch: FocalLoss()(*batch) * len(WHOLE))  # which divides by 32 again
    start = frameworks.parameters(frameworks.network())
    assert_equal(one - start, STEPS * (together(WHOLE, FocalLoss()) - start))


@pytest.mark.parametrize("framework", MEANS)
def test_each_small_batch_is_mined_by_itself(framework: str) -> None:
    found = MEANS[framework](WHOLE, RectifiedCrossEntropy(COUNTS, alpha=0.5))
    assert_equal(found, apart(WHOLE, RectifiedCrossEntropy(COUNTS, alpha=0.5)))
    assert (found - together(WHOLE, RectifiedCrossEntropy(COUNTS, alpha=0.5))).abs().max() > 1e-3


def test_the_sum_of_a_rectified_loss_is_its_mean_over_the_small_batches() -> None:
    objective = RectifiedCrossEntropy(COUNTS, alpha=0.5, reduction="sum")
    assert_equal(in_function(WHOLE, objective), apart(WHOLE, RectifiedCrossEntropy(COUNTS, alpha=0.5)))


@pytest.mark.parametrize(("memory", "mined"), [(0, [False] * 4), (8, [False, True, True, True])])
def test_a_memory_mines_among_the_batches_before(memory: int, mined: list[bool]) -> None:
    objective = RectifiedCrossEntropy([3, 1], alpha=0.5, memory=memory)
    targets = torch.tensor([0, 0, 0, 1])  # one sample of the rare class has no pair
    found = [objective(torch.randn(4, 2), targets, return_parts=True).mined_classes.item() > 0 for _ in range(4)]
    assert found == mined


def test_bfloat16_in_the_trainer() -> None:
    class Watched(RectifiedCrossEntropy):
        def forward(self, logits: Tensor, targets: Tensor) -> Tensor:  # type: ignore[override]
            loss = super().forward(logits, targets)
            assert isinstance(loss, Tensor)
            types.append((logits.dtype, loss.dtype))
            return loss

    types: list[Any] = []
    options = {"gradient_accumulation_steps": STEPS, "bf16": True}
    _, trained = frameworks.huggingface(DataLoader(WHOLE, SMALL), Watched(COUNTS, alpha=0.5), **options)
    assert types == [(torch.bfloat16, torch.float32)] * STEPS
    precise = in_model(WHOLE, RectifiedCrossEntropy(COUNTS, alpha=0.5))
    assert trained.isfinite().all()
    assert 0 < (trained - precise).abs().max() < 0.02


def test_validation_is_neither_remembered_nor_counted() -> None:
    # The loss is not part of the model, so the Trainer does not switch it to evaluation mode.
    objective = RectifiedCrossEntropy("auto", sizes=3, alpha=0.5, memory=64, reduction="sum")
    loader: DataLoader[Any] = DataLoader(WHOLE, SMALL)
    trainer, _ = frameworks.huggingface(loader, None, by_items(objective))
    trainer.evaluate([*WHOLE, *WHOLE])
    assert objective.training
    assert objective.class_counts is not None
    assert objective.class_counts.tolist() == COUNTS
    assert objective.memory is not None
    assert (objective.memory.classes > 0).sum() == len(WHOLE)


def test_asymmetric_losses_accumulate_label_by_label() -> None:
    # Several binary labels, all present: the mean of each label over a step is the mean of its means.
    targets = (WHOLE.inputs[:, :2] > 0).long()
    logits = torch.randn(len(WHOLE), 4, generator=torch.Generator().manual_seed(1), requires_grad=True)
    loss = AsymmetricLoss(sizes=[2, 2])
    parts = [loss(*pair) for pair in zip(logits.split(SMALL), targets.split(SMALL), strict=True)]
    torch.testing.assert_close(torch.stack(parts).mean(), loss(logits, targets))
