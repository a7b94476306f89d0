"""What class rectification adds to a whole training step, captured as a CUDA graph.

    python benchmarks/step.py [--batch 256] [--json FILE]

ResNet32 on CIFAR-100's shape in bfloat16, in plain PyTorch: forward, loss, backward and optimizer step, with
cross-entropy and with class rectification. The loss runs eager, and compiled with fullgraph=True.
"""

from __future__ import annotations

from collections.abc import Callable

import measure
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from rectifier import LabelSpace, RectifiedCrossEntropy
from rectifier.labels import power_law_profile
from rectifier.networks import build_network

CLASSES = 100


def training_step(objective: Callable[[Tensor, Tensor], Tensor], batch: int) -> Callable[[], object]:
    """Return one step of SGD on a fixed batch whose classes follow the paper's power law."""
    torch.manual_seed(0)
    model = build_network("resnet32", LabelSpace.from_sizes([CLASSES]), (32, 32, 3), seed=0)
    model = model.cuda().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(model.parameters(), lr=torch.tensor(0.1), momentum=0.9, weight_decay=5e-4, fused=True)
    images = torch.randn(batch, 3, 32, 32, device="cuda").to(memory_format=torch.channels_last)
    counts = torch.tensor(power_law_profile(CLASSES, 500, 25), dtype=torch.float32)
    targets = torch.multinomial(counts, batch, replacement=True).cuda()

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = objective(model(images).logits, targets)
        loss.backward()
        optimizer.step()

    return step


def objectives() -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    counts = torch.tensor(power_law_profile(CLASSES, 500, 25))
    rectified = RectifiedCrossEntropy(counts, eta=0.5).cuda()
    return {
        "cross-entropy": nn.CrossEntropyLoss(),
        "cross-entropy, again": nn.CrossEntropyLoss(),
        "rectified": rectified,
        "rectified, all classes": RectifiedCrossEntropy(counts, eta=0.5, scope="all").cuda(),
        "rectified, compiled": torch.compile(rectified, fullgraph=True),
    }


def main() -> None:
    parser = measure.parser(__doc__, rounds=200, devices=["cuda"])
    parser.add_argument("--batch", type=int, default=256)
    given = measure.arguments(parser)
    steps = {name: training_step(objective, given.batch) for name, objective in objectives().items()}
    graphs = {name: measure.captured(step) for name, step in steps.items()}
    captured = measure.milliseconds(graphs, given.rounds, cuda=True)
    eager = measure.milliseconds(steps, 20, cuda=True)
    table = Table("objective", "captured ms", "ratio", "eager ms", "ratio", title=f"ResNet32, batch {given.batch}")
    for name in steps:
        first, second = (f"{times[name] / times['cross-entropy']:.3f}" for times in (captured, eager))
        table.add_row(name, f"{captured[name]:.3f}", first, f"{eager[name]:.2f}", second)
    console, facts = Console(), measure.facts(cuda=True)
    console.print(f"{facts['hardware']}, commit {facts['commit']}")
    console.print(table)
    measure.save(given.json, facts, {"batch": given.batch, "captured_ms": captured, "eager_ms": eager})


if __name__ == "__main__":
    main()
