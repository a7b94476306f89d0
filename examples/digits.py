"""Rare digits: train a small network on imbalanced images, with cross-entropy and with class rectification.

The digits that scikit-learn carries (1,797 images of 8 x 8) are made imbalanced 1:20 by the paper's power law: digit 0
keeps 100 training images, digit 9 keeps 5. Which digit is rare is turned from seed to seed. Test images are balanced.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from rectifier import ClassBalancedAccuracy, RectifiedCrossEntropy, class_counts, power_law_profile

CLASSES = 10
TEST_PER_CLASS = 40


class Split(NamedTuple):
    """Images ``(N, 1, 8, 8)`` and targets ``(N,)``; class 0 is the most frequent in training, class 9 the rarest."""

    train_images: Tensor
    train_targets: Tensor
    test_images: Tensor
    test_targets: Tensor


def imbalanced_digits(largest: int, smallest: int, seed: int) -> Split:
    """Choose training images by the power law and TEST_PER_CLASS test images of each class."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    # Turn the digits, so that no single digit's difficulty is mistaken for rarity.
    targets = (torch.tensor(digits.target) + seed) % CLASSES
    generator = torch.Generator().manual_seed(seed)
    train, test = [], []
    for c, size in enumerate(power_law_profile(CLASSES, largest, smallest)):
        own = (targets == c).nonzero().flatten()
        own = own[torch.randperm(len(own), generator=generator)]
        test.append(own[:TEST_PER_CLASS])
        train.append(own[TEST_PER_CLASS : TEST_PER_CLASS + size])
    return Split(images[torch.cat(train)], targets[torch.cat(train)], images[torch.cat(test)], targets[torch.cat(test)])


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, CLASSES),
    )


def train(split: Split, eta: float, epochs: int, seed: int) -> Tensor:
    """Train one network and return its sensitivity on each class of the test images."""
    torch.manual_seed(seed)
    model = network()
    objective = RectifiedCrossEntropy(class_counts(split.train_targets, [CLASSES]), eta=eta)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for batch in torch.randperm(len(split.train_targets), generator=generator).split(64):
            loss = objective(model(split.train_images[batch]), split.train_targets[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    metric = ClassBalancedAccuracy([CLASSES])
    with torch.no_grad():
        metric.update(model.eval()(split.test_images), split.test_targets)
    return metric.sensitivity
