"""Samplers in two processes under Lightning, with its default settings."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import Tensor

from helpers.processes import in_two_processes
from helpers.samplers import CLASSES, EPOCHS, SAMPLERS, drawn_from, loader_of, padding, plans_of

pytest.importorskip("lightning")
pytestmark = pytest.mark.xdist_group("samplers under lightning")  # the processes are started once

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


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return in_two_processes(run_lightning, tmp_path_factory.mktemp("lightning"))


WHOLE = [case for case in CASES if not case.startswith(("progressive", "7")) and not case.endswith("mined")]


@pytest.mark.parametrize("case", [*WHOLE, *(f"{name}, fabric" for name in FABRIC)])
def test_the_ranks_draw_the_plan_of_each_epoch(ranks: list[dict[str, Any]], case: str) -> None:
    name = case.partition(",")[0]
    assert padding([rank[case] for rank in ranks], plans_of(SAMPLERS[name]())) == [[]] * EPOCHS


def test_lightning_repeats_a_sample_of_an_odd_number(ranks: list[dict[str, Any]]) -> None:
    drawn = [rank["progressive, given to fit"] for rank in ranks]
    assert [len(extra) for extra in padding(drawn, plans_of(SAMPLERS["progressive"]()))] == [1] * EPOCHS


def test_an_odd_number_of_batches_is_cut(ranks: list[dict[str, Any]]) -> None:
    plans = [plan[:6] for plan in plans_of(SAMPLERS["7 class batches"]())]
    assert padding([rank["7 class batches, given to fit"] for rank in ranks], plans) == [[]] * EPOCHS


def test_shards_have_the_features_that_the_users_sampler_mines(ranks: list[dict[str, Any]]) -> None:
    sampler: Any = SAMPLERS["quintuplets"]()
    for epoch in range(EPOCHS):
        sampler.mine(FEATURES.roll(epoch, 0))
        sampler.set_epoch(epoch)
        plan = sampler.plan().tolist()
        assert [rank["quintuplets, mined"][epoch] for rank in ranks] == [plan[0::2], plan[1::2]]
