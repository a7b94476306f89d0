"""Training steps of the engine on fixed batches: what `training.py`, `methods.py` and `compiling.py` time."""

from __future__ import annotations

from collections.abc import Callable, Collection

import measure
import torch
from lightning.fabric import Fabric

from rectifier import LabelSpace
from rectifier.data.loader import Batch
from rectifier.labels import power_law_profile
from rectifier.methods import METHODS, build_mixing, build_objective, needed_of_network
from rectifier.networks import build_network
from rectifier.training.engine.options import Options
from rectifier.training.engine.state import Tally
from rectifier.training.engine.step_modes import CapturedStep, EagerStep, make_optimizer

BATCH = 256
SHAPES: dict[str, tuple[list[int], tuple[int, int, int]]] = {
    "resnet32": ([100], (32, 32, 3)),
    "deepid2": ([2] * 40, (55, 47, 3)),
    "cifarnet": ([100], (32, 32, 3)),
    "densenet": ([100], (32, 32, 3)),
    "mtct": ([5, 6, 43, 132, 46, 4, 12, 7], (96, 72, 3)),
}
TIMED = ("resnet32", "deepid2")  # networks whose steps and methods are timed
IN_A_ROW = 10  # steps timed at a time on a GPU, as in training: the host does not wait after each

EngineStep = EagerStep | CapturedStep


def make_fabric(device: str) -> Fabric:
    return Fabric(accelerator=device, devices=1, precision="bf16-mixed" if device == "cuda" else "32-true")


def counts_of(sizes: list[int]) -> list[torch.Tensor]:
    """Return training counts: the paper's power law for labels with many classes, ten to one for binary ones."""
    return [torch.tensor(power_law_profile(size, 500, 25) if size > 2 else [30_000, 3_000]) for size in sizes]


def drawn_targets(sizes: list[int], samples: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    shares = [counts.double() / counts.sum() for counts in counts_of(sizes)]
    drawn = [torch.multinomial(share, samples, replacement=True, generator=generator) for share in shares]
    return torch.stack(drawn, 1)


def made_batch(network: str, device: torch.device, samples: int = BATCH) -> Batch:
    sizes, (height, width, channels) = SHAPES[network]
    images = torch.randn(samples, channels, height, width, generator=torch.Generator().manual_seed(0))
    images = images.to(device, memory_format=torch.channels_last)
    return Batch(images, drawn_targets(sizes, samples).to(device), torch.arange(samples, device=device))


def engine_step(
    fabric: Fabric, network: str, method: str, compiled: Collection[str] | None, may_give_up: bool = False
) -> EngineStep:
    """Return a step on a new network. It is captured, with these parts compiled; None means eager."""
    sizes, shape = SHAPES[network]
    space, counts, device = LabelSpace.from_sizes(sizes), counts_of(sizes), fabric.device
    bare = build_network(network, space, shape, seed=0, **needed_of_network(method, {}))
    bare = bare.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    options = {"eta": 0.5} if METHODS[method].rectification else {}
    objective = build_objective(method, counts, space, **options).to(device)
    if hasattr(objective, "set_progress"):
        objective.set_progress(0.9)  # LMLE begins with cross-entropy
    mixing = build_mixing(method, counts, space, {})
    wrapped, optimizer = fabric.setup(bare, make_optimizer(bare, Options(lr=0.01)))
    mixing = None if mixing is None else mixing.to(device)
    eager = EagerStep(fabric, bare, wrapped, optimizer, objective, Tally(len(sizes), device), mixing)
    eager.compile(compiled or ())
    return eager if compiled is None else CapturedStep(eager, may_give_up)


def step_milliseconds(steps: dict[str, Callable[[], object]], rounds: int, cuda: bool) -> dict[str, float]:
    """Return the median time of each step; on a GPU, of several steps in a row."""
    in_a_row = IN_A_ROW if cuda else 1

    def several(step: Callable[[], object]) -> Callable[[], None]:
        def take() -> None:
            for _ in range(in_a_row):
                step()

        return take

    times = measure.milliseconds({name: several(step) for name, step in steps.items()}, rounds, cuda)
    return {name: taken / in_a_row for name, taken in times.items()}
