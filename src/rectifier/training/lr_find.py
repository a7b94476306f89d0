"""The learning rate range test of a config: what ``rectifier lr-find`` runs. Parts of your own: ``find_rate``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from rectifier.methods import find_method
from rectifier.training.config import AUTO, Config
from rectifier.training.engine.devices import make_fabric, set_up
from rectifier.training.engine.rate_range import RateCurve, find_rate
from rectifier.training.head_stage import add_noise, train_first_heads
from rectifier.training.job import RunSpec, engine_options, open_jobs
from rectifier.training.stages import make_course

__all__ = ["RateCurve", "find_rate", "find_rate_of"]


def find_rate_of(config: Config, **options: Any) -> RateCurve:
    """Test learning rates for a run with this config, on one device. Nothing is saved.

    Args:
        config: the settings of the run. Its ``lr`` has no effect.
        options: ``lowest``, ``highest`` and ``steps`` of ``find_rate``.
    """
    if config.method != AUTO and find_method(config.method).features is not None:
        raise ValueError(f"{config.method} trains no network, so it has no learning rate.")
    config = replace(config.anchored(), devices=1, nodes=1)
    fabric = make_fabric(engine_options(config), alone=True)
    with set_up(fabric, engine_options(config)), TemporaryDirectory() as folder:
        job = open_jobs([RunSpec("lr-find", config, Path(folder))])[0].ready(fabric)
        torch.manual_seed(job.seed(fabric))
        if job.backbone is not None and job.config.tune != "head":  # what a run starts from
            train_first_heads(fabric, [job])
            add_noise(fabric, [job])
        course = make_course(fabric, job, held_out=[])
        parts = fabric, course.network, course.objective, course.loader, course.options
        return find_rate(*parts, mixing=course.mixing, **options)
