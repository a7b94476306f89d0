"""Samplers in two processes under accelerate."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.processes import in_two_processes
from helpers.samplers import SAMPLERS, drawn_from, loader_of, padding, plans_of

pytest.importorskip("accelerate")

# By default accelerate fills the last round of batches with the first entries of the epoch: so many.
FILLED = {"over": 4, "down": 2, "progressive": 1, "7 class batches": 1, "8 class batches": 0, "quintuplets": 0}
DISPATCHED = ("down", "8 class batches")


def run_accelerate() -> dict[str, list[list[list[int]]]]:
    from accelerate import Accelerator, DataLoaderConfiguration

    alone, dispatching = (DataLoaderConfiguration(dispatch_batches=dispatch) for dispatch in (None, True))
    drawn = {}
    for config, names in ((alone, SAMPLERS), (dispatching, DISPATCHED)):
        accelerator = Accelerator(cpu=True, dataloader_config=config)
        for name in names:
            loader = accelerator.prepare(loader_of(SAMPLERS[name]()))
            drawn[f"{name}, dispatched" if config is dispatching else name] = drawn_from(loader)
    return drawn


def test_two_ranks_draw_the_plan_of_each_epoch(tmp_path: Path) -> None:
    ranks = in_two_processes(run_accelerate, tmp_path)
    for name, filled in FILLED.items():
        plans = plans_of(SAMPLERS[name]())
        assert padding([rank[name] for rank in ranks], plans) == [sorted(plan[:filled]) for plan in plans], name
    for name in DISPATCHED:
        plans = plans_of(SAMPLERS[name]())
        assert padding([rank[f"{name}, dispatched"] for rank in ranks], plans) == [[]] * len(plans), name
