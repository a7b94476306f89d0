"""What class rectification adds to a whole training step, captured as a CUDA graph.

    python benchmarks/step.py [--batch 256] [--json FILE]

ResNet32 on CIFAR-100's shape in bfloat16: forward, loss, backward and optimizer step, with cross-entropy and with class
rectification beside it. The loss runs as it is and compiled (``torch.compile(objective, fullgraph=True)``).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import measure
import torch
from resnet32 import resnet32
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from rectifier import RectifiedCrossEntropy, power_law_profile

CLASSES = 100


def training_step(objective: Callable[[Tensor, Tensor], Tensor], batch: int) -> Callable[[], object]:
    """Return one step of SGD on a fixed batch whose classes follow the paper's power law."""
    torch.manual_seed(0)
    model = resnet32(CLASSES).cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=torch.tensor(0.1), momentum=0.9, weight_decay=5e-4, fused=True)
    images = torch.randn(batch, 3, 32, 32, device="cuda").to(memory_format=torch.channels_last)
    counts = torch.tensor(power_law_profile(CLASSES, 500, 25), dtype=torch.float32)
    targets = torch.multinomial(counts, batch, replacement=True).cuda()

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = objective(model(images), targets)
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--json", type=Path, help="also write every number to this file")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("a captured step needs a CUDA device, and none is available here")
    torch.backends.cudnn.benchmark = True  # the fastest cross-entropy step there is to compare with
    steps = {name: training_step(objective, arguments.batch) for name, objective in objectives().items()}
    graphs = {name: measure.captured(step) for name, step in steps.items()}
    captured = measure.milliseconds(graphs, arguments.rounds, cuda=True)
    eager = measure.milliseconds(steps, 20, cuda=True)
    table = Table("objective", "captured ms", "ratio", "eager ms", "ratio", title=f"ResNet32, batch {arguments.batch}")
    for name in steps:
        ratios = (times[name] / times["cross-entropy"] for times in (captured, eager))
        first, second = (f"{ratio:.3f}" for ratio in ratios)
        table.add_row(name, f"{captured[name]:.3f}", first, f"{eager[name]:.2f}", second)
    console = Console()
    console.print(f"{measure.hardware(cuda=True)}, commit {measure.commit()}")
    console.print(table)
    if arguments.json:
        header = {"hardware": measure.hardware(cuda=True), "commit": measure.commit(), "batch": arguments.batch}
        arguments.json.write_text(json.dumps(header | {"captured_ms": captured, "eager_ms": eager}, indent=1) + "\n")


if __name__ == "__main__":
    main()
