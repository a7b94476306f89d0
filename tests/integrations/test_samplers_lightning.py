"""Samplers in two processes under Lightning, with its default settings."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from helpers.processes import in_two_processes
from helpers.samplers import CLASSES, EPOCHS, SAMPLERS, drawn_from, loader_of, padding, plans_of

pytest.importorskip("lightning")

FEATURES = torch.randn(len(CLASSES), 4, generator=torch.Generator().manual_seed(0))
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{f"{name}, given to fit": (name, {}) for name in ("over", "progressive", "7 class batches", "8 class batches")},
    **{f"{name}, made in a hook": (name, {"in_hook": True}) for name in ("down", "8 class batches")},
    "8 class batches, sharded before": ("8 class batches", {"distributed": True}),
    "quintuplets, mined": ("quintuplets", {"mine": True}),
}
FABRIC = ("over", "quintuplets")


def train(name: str, in_hook: bool = False, mine: bool = False, **options: Any) -> list[list[list[int]]]:
    """Return the batches of this process in each epoch."""
    from lightning.pytorch import LightningModule, Trainer

    sampler: Any = None
    drawn: list[list[list[int]]] = []

    class Model(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def on_train_epoch_start(self) -> None:
            drawn.append([])
            if mine:
                sampler.mine(FEATURES.roll(self.current_epoch, 0))

        def training_step(self, batch: Tensor, _: int) -> Tensor:
            drawn[-1].append(batch.tolist())
            mean: Tensor = self.layer(batch[:, None].float()).mean()
            return mean

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.1)

    class Hooked(Model):
        def train_dataloader(self) -> Any:
            return loader_of(SAMPLERS[name]())

    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = Trainer(accelerator="cpu", devices=2, strategy="ddp", max_epochs=EPOCHS, **quiet)
    if in_hook:
        trainer.fit(Hooked())
    else:
        sampler = SAMPLERS[name](**options)
        trainer.fit(Model(), loader_of(sampler))
    return drawn


def run_lightning() -> dict[str, list[list[list[int]]]]:
    from lightning.fabric import Fabric

    logging.disable(logging.WARNING)
    drawn = {case: train(name, **options) for case, (name, options) in CASES.items()}
    fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
    fabric.launch()
    loaders = {name: fabric.setup_dataloaders(loader_of(SAMPLERS[name]())) for name in FABRIC}
    return drawn | {f"{name}, fabric": drawn_from(loader) for name, loader in loaders.items()}


def test_two_ranks_draw_the_plan_of_each_epoch(tmp_path: Path) -> None:
    first, second = in_two_processes(run_lightning, tmp_path)
    mined = first.pop("quintuplets, mined"), second.pop("quintuplets, mined")
    assert list(first) == [case for case in CASES if "mined" not in case] + [f"{name}, fabric" for name in FABRIC]
    for case, drawn in first.items():
        name = case.partition(",")[0]
        even = SAMPLERS[name]().total // 2 * 2
        plans = [plan if isinstance(plan[0], int) else plan[:even] for plan in plans_of(SAMPLERS[name]())]
        repeated = [len(extra) for extra in padding([drawn, second[case]], plans)]
        # Lightning repeats one sample of an odd number. Of an odd number of batches, the last is cut.
        assert repeated == [1 if name == "progressive" else 0] * EPOCHS, case

    sampler: Any = SAMPLERS["quintuplets"]()
    for epoch, shards in enumerate(zip(*mined, strict=True)):
        sampler.mine(FEATURES.roll(epoch, 0))
        sampler.set_epoch(epoch)
        plan = sampler.plan().tolist()
        assert [*shards] == [plan[0::2], plan[1::2]]
