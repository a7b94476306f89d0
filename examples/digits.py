"""Rare digits: train a small network on imbalanced images, with cross-entropy and with CRL, in a plain training loop.

scikit-learn's digits (1,797 images of 8 x 8) are made imbalanced 1:20 by the paper's power law: class 0 keeps 100
training images, class 9 keeps 5. Each seed assigns digits to other classes. The test images are balanced.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.stats import t as student_t
from sklearn.datasets import load_digits
from torch import Tensor, nn

from rectifier import ClassBalancedAccuracy, RectifiedCrossEntropy, class_counts, imbalance_measure
from rectifier.labels import power_law_profile

CLASSES = 10
LARGEST, SMALLEST = 100, 5
TEST_PER_CLASS = 40


class Split(NamedTuple):
    """Images ``(N, 1, 8, 8)`` and targets ``(N,)``. In training class 0 is the most frequent, class 9 the rarest."""

    train_images: Tensor
    train_targets: Tensor
    test_images: Tensor
    test_targets: Tensor


def imbalanced_digits(largest: int, smallest: int, seed: int) -> Split:
    """Choose training images by the power law and TEST_PER_CLASS test images of each class."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    # Other digits are rare with each seed, so that a difficult digit is not mistaken for a rare one.
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
    """Train one network and return its recall on each class of the test images."""
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


def mean_and_interval(values: Tensor) -> tuple[float, float]:
    """Return the mean over seeds and half the width of its 95 % interval (Student's t)."""
    half = float(student_t.ppf(0.975, len(values) - 1)) * values.std().item() / len(values) ** 0.5
    return values.mean().item(), half


def report(console: Console, sizes: list[int], plain: Tensor, rectified: Tensor, eta: float) -> None:
    """Print the recall of each class, rarest last, then class-balanced accuracies and their paired difference."""
    heads = ("class", "training images", "cross-entropy", "with CRL", "")
    table = Table(*heads, title="Recall on the test images")
    for column in table.columns[1:4]:
        column.justify = "right"
    for c, size in enumerate(sizes):
        before, after = plain[:, c].mean().item(), rectified[:, c].mean().item()
        bar = "█" * round(20 * after)
        table.add_row(str(c), str(size), f"{before:.3f}", f"{after:.3f}", f"{bar:20}")
    console.print(table)
    for name, scores in (("cross-entropy", plain), (f"with CRL, eta {eta:g}", rectified)):
        mean, half = mean_and_interval(100 * scores.mean(1))
        console.print(f"class-balanced accuracy, {name}: [bold]{mean:.1f}[/bold] ± {half:.1f}")
    mean, half = mean_and_interval(100 * (rectified - plain).mean(1))
    verdict = "the interval includes 0: no evidence of a difference" if abs(mean) <= half else "the interval excludes 0"
    console.print(f"difference, paired by seed: {mean:+.1f} ± {half:.1f} ({len(plain)} seeds; {verdict})")


def main() -> None:
    """Train both ways with several seeds and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds, at least 2")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--eta", type=float, default=0.5, help="weight of CRL per unit of imbalance")
    arguments = parser.parse_args()
    if arguments.seeds < 2:
        parser.error("an interval needs at least 2 seeds")
    torch.set_num_threads(1)  # a second thread slows down a network this small
    sizes = power_law_profile(CLASSES, LARGEST, SMALLEST)
    omega = imbalance_measure(sizes).item()
    console = Console()
    console.print(
        f"Digits, {sum(sizes)} training images, imbalance {LARGEST}:{SMALLEST}, Omega {omega:.2f}, "
        f"alpha {min(arguments.eta * omega, 1):.2f}; {TEST_PER_CLASS} test images of each class"
    )
    plain, rectified = [], []
    for seed in track(range(arguments.seeds), "training", console=console):
        split = imbalanced_digits(LARGEST, SMALLEST, seed)
        plain.append(train(split, 0.0, arguments.epochs, seed))
        rectified.append(train(split, arguments.eta, arguments.epochs, seed))
    report(console, sizes, torch.stack(plain), torch.stack(rectified), arguments.eta)


if __name__ == "__main__":
    main()
