"""Time and memory of the Class Rectification Loss, forward and backward, compared with alternatives.

    python benchmarks/loss.py [--device cuda] [--rounds 30] [--json FILE]

All candidates of a design take turns in one run. Ratios are to our loss with scope "minority". The last table compares
the whole objective with cross-entropy, for one label with many classes; on a GPU, both captured in a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from itertools import product

import measure
import rivals
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn.functional import cross_entropy

from rectifier import RectifiedCrossEntropy, class_rectification_loss

SHAPES = {
    "small (1 x 4, batch 24)": ([4], 24),
    "CelebA (40 x 2, batch 256)": ([2] * 40, 256),
    "X-Domain (9 labels, 178 classes, batch 128)": ([6, 9, 11, 14, 16, 18, 20, 29, 55], 128),
    "CIFAR-100 (1 x 100, batch 256)": ([100], 256),
    "ImageNet-LT (1 x 1000, batch 1024)": ([1000], 1024),
}
MANY_CLASSES, MANY_SAMPLES = (10_000, 100_000), 1024
LEVELS = ("class", "instance")
COMPARISONS = ("relative", "absolute", "distribution")


def batch(sizes: list[int], samples: int, device: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return long-tailed targets (class i as often as 1 / (i + 1)), half-trained logits and 64-d features."""
    g = torch.Generator().manual_seed(0)
    targets = torch.stack(
        [torch.multinomial(1 / torch.arange(1, size + 1.0), samples, True, generator=g) for size in sizes], 1
    )
    logits = torch.randn(samples, sum(sizes), generator=g)
    offsets = torch.tensor([sum(sizes[:a]) for a in range(len(sizes))])
    logits.scatter_add_(1, targets + offsets, torch.full(targets.shape, 2.0))
    features = torch.randn(samples, len(sizes), 64, generator=g)
    return logits.to(device).requires_grad_(), targets.to(device), features.to(device).requires_grad_()


def forward_backward(loss: Callable[[], Tensor], inputs: tuple[Tensor, ...]) -> None:
    torch.autograd.grad(loss(), inputs, allow_unused=True)


def candidates(
    sizes: list[int], samples: int, level: str, comparison: str, device: str, small: bool
) -> dict[str, Callable[[], object]]:
    logits, targets, features = batch(sizes, samples, device)
    step = partial(forward_backward, inputs=(logits, features))
    ours = partial(class_rectification_loss, logits, targets, features, level=level, comparison=comparison, sizes=sizes)
    found: dict[str, Callable[[], object]] = {
        "ours": lambda: step(ours),
        "ours, all classes": lambda: step(partial(ours, scope="all")),
    }
    if device == "cuda":
        found["ours, captured"] = measure.captured(found["ours"])
    if level == "class" and comparison == "relative":
        found["dense per class"] = lambda: step(lambda: rivals.dense_per_class(logits, targets, sizes))
        found["dense at once"] = lambda: step(lambda: rivals.dense_at_once(logits, targets, sizes))
        if small:
            found["loop over triplets"] = lambda: step(lambda: rivals.triplet_loop(logits, targets, sizes))
    if level == "instance" and comparison == "relative" and find_spec("pytorch_metric_learning"):
        found["metric-learning"] = lambda: step(lambda: rivals.metric_learning(features, targets))
    return found


def many_classes(classes: int, device: str) -> dict[str, Callable[[], object]]:
    """Return our objective and plain cross-entropy of one label with many classes."""
    logits, targets, _ = batch([classes], MANY_SAMPLES, device)
    counts = (1e7 / torch.arange(1, classes + 1)).ceil().long()
    objective = RectifiedCrossEntropy(counts, eta=0.5).to(device)
    found = {
        "cross-entropy": lambda: forward_backward(lambda: cross_entropy(logits, targets[:, 0]), (logits,)),
        "ours": lambda: forward_backward(lambda: objective(logits, targets), (logits,)),
    }
    # Not captured, a GPU would wait for the launches of small kernels.
    return {name: measure.captured(run) for name, run in found.items()} if device == "cuda" else dict(found)


def main() -> None:
    given = measure.arguments(measure.parser(__doc__, rounds=30))
    cuda = given.device == "cuda"
    console, facts, rows = Console(), measure.facts(cuda), []
    console.print(f"{facts['hardware']}\ncommit {facts['commit']}, median of {given.rounds} rounds")
    if not find_spec("pytorch_metric_learning"):
        console.print("pytorch-metric-learning is not installed and left out")
    for shape, (sizes, samples) in SHAPES.items():
        table = Table("design", "candidate", "ms", "ratio to ours", "peak MiB", title=shape, title_justify="left")
        for level, comparison in product(LEVELS, COMPARISONS):
            runs = candidates(sizes, samples, level, comparison, given.device, small=shape.startswith("small"))
            times = measure.milliseconds(runs, given.rounds, cuda)
            for name, run in runs.items():
                memory, ratio = measure.peak_bytes(run, cuda) / 2**20, times[name] / times["ours"]
                design = f"{level} {comparison}" if name == "ours" else ""
                table.add_row(design, name, f"{times[name]:.2f}", f"{ratio:.2f}", f"{memory:.1f}")
                row = {"shape": shape, "level": level, "comparison": comparison, "candidate": name}
                rows.append(row | {"ms": times[name], "ratio": ratio, "peak_mib": memory})
            table.add_section()
        console.print(table)
    many = []
    table = Table("classes", "cross-entropy, ms", "with CRL, ms", "ratio", title=f"Many classes, batch {MANY_SAMPLES}")
    for classes in MANY_CLASSES:
        times = measure.milliseconds(many_classes(classes, given.device), given.rounds, cuda)
        ratio = times["ours"] / times["cross-entropy"]
        table.add_row(f"{classes:,}", f"{times['cross-entropy']:.2f}", f"{times['ours']:.2f}", f"{ratio:.2f}")
        many.append({"classes": classes, "ms": times, "ratio": ratio})
    console.print(table)
    measure.save(given.json, facts, {"rounds": given.rounds, "rows": rows, "many_classes": many})


if __name__ == "__main__":
    main()
