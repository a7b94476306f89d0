"""The handwritten digits of scikit-learn, made imbalanced."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rectifier._base import check
from rectifier.data.dataset import PARTS, ImageArray, ImageData
from rectifier.data.split import stratified_split
from rectifier.labels import imbalance
from rectifier.labels.space import LabelSpace

CLASSES = 10


def digits(*, ratio: float = 20.0, seed: int = 0) -> ImageData:
    """Return scikit-learn's 1,797 digits, uint8 ``(N, 8, 8, 1)``, with the label "digit" of ten classes.

    ``seed`` chooses a fifth of each digit's images for validation and a fifth for test, so both stay balanced. The
    training part is reduced to the paper's power law: its most frequent digit is ``ratio`` times as frequent as its
    rarest. ``ratio=1`` keeps it complete. The rarest digit is 9 at seed 0, 8 at seed 1 and so on. Several seeds
    then do not confuse the difficulty of one digit with its rarity.

    >>> data = digits(ratio=20)
    >>> data.counts("train")[0].tolist()
    [100, 32, 19, 14, 11, 9, 7, 6, 6, 5]
    """
    wrong_ratio = check.that("ratio", ratio, "from 1 (complete) to 100", check.is_real(ratio) and 1 <= ratio <= 100)
    check.raise_all([wrong_ratio, check.that("seed", seed, "a non-negative integer", check.is_natural(seed))])
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]

    source = load_digits()
    targets = torch.from_numpy(source.target.astype(np.int64))
    split = stratified_split(targets, [CLASSES], shares=(0.6, 0.2, 0.2), seed=seed)
    kept = torch.ones_like(split, dtype=torch.bool) if ratio == 1 else _long_tail(targets, split == 0, ratio, seed)
    index = [i for part in range(len(PARTS)) for i in (kept & (split == part)).nonzero()[:, 0].tolist()]
    training = "complete" if ratio == 1 else f"a power law of 1:{ratio:g}"
    return ImageData(
        "digits",
        ImageArray(np.rint(source.images[..., None] * (255 / 16)).astype(np.uint8)[index]),
        targets[index, None],
        LabelSpace.from_names({"digit": range(CLASSES)}),
        split[index],
        tuple(f"{PARTS[split[i]]}/{i:05d}" for i in index),
        (f"Split with seed {seed}. The training part is {training}; validation and test are balanced.",),
    )


def _long_tail(targets: Tensor, training: Tensor, ratio: float, seed: int) -> Tensor:
    """Mark the images ``(N,)`` to keep: all that are held out, and as many of each digit as the power law allows."""
    smallest = int(targets[training].bincount().min() / ratio)
    profile = imbalance.power_law_profile(CLASSES, round(smallest * ratio), smallest)
    generator = torch.Generator().manual_seed(seed)
    kept = ~training
    for digit in range(CLASSES):
        own = (training & (targets == digit)).nonzero()[:, 0]
        kept[own[torch.randperm(len(own), generator=generator)[: profile[(digit + seed) % CLASSES]]]] = True
    return kept
