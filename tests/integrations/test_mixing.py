"""Soft targets of timm's and torchvision's mixup and CutMix go straight into the losses."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.scripts import VISION, run_with_torchvision

# torchvision is imported in a process of its own, so the assertions are in a script.
SCRIPT = """
import torch
from timm.data import Mixup
from torch.nn.functional import cross_entropy
from torch.testing import assert_close
from torchvision.transforms import v2

from rectifier.losses import FocalLoss, LDAMLoss, RectifiedCrossEntropy

torch.manual_seed(0)
counts, images, targets = [40, 10, 5], torch.randn(12, 3, 8, 8), torch.arange(12) % 3
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 3))
mixers = [
    Mixup(mixup_alpha=1.0, num_classes=3),
    Mixup(mixup_alpha=1.0, num_classes=3, label_smoothing=0.1),
    Mixup(mixup_alpha=0.0, cutmix_alpha=1.0, mode="elem", num_classes=3),
    v2.MixUp(num_classes=3),
    v2.CutMix(num_classes=3),
]


def by_share(loss, logits, soft):
    one_class = [loss(logits, torch.full((12,), k)) for k in range(3)]  # reduction="none"
    return (soft * torch.stack(one_class, 1)).sum(1).mean()


for mixer in mixers:
    mixed, soft = mixer(images.clone(), targets)
    logits = model(mixed)
    assert soft.shape == (12, 3)
    assert soft.max(1).values.min() < 1
    assert_close(FocalLoss()(logits, soft), by_share(FocalLoss(reduction="none"), logits, soft))
    margins = LDAMLoss(counts, scale=5.0, reduction="none")
    assert_close(LDAMLoss(counts, scale=5.0)(logits, soft), by_share(margins, logits, soft))
    rectified = RectifiedCrossEntropy(counts, alpha=0.5)
    parts, hard = (rectified(logits, wanted, return_parts=True) for wanted in (soft, soft.argmax(1)))
    assert_close(parts.base_loss, cross_entropy(logits, soft).detach()[None])
    assert_close(parts.rectification, hard.rectification)  # the class with the largest share
    assert_close(parts.loss, (parts.base_loss + parts.rectification).sum() / 2)
    parts.loss.backward()
    assert all(weight.grad.isfinite().all() for weight in model.parameters())
print(len(mixers), "mixers")
"""


@pytest.mark.skipif(not VISION.is_dir(), reason=f"timm and torchvision are not in {VISION}")
def test_soft_targets_count_with_their_shares(tmp_path: Path) -> None:
    assert run_with_torchvision(SCRIPT, tmp_path).endswith("5 mixers\n")
