"""A config in which no setting has its default."""

from __future__ import annotations

from typing import Any

from rectifier.training.config import Config

# A value for every field that is not its default.
CHANGED: dict[str, Any] = {
    "data": "shapes",
    "images": "pictures",
    "data_root": "elsewhere",
    "data_options": {"missing": "0.1"},
    "split_seed": 3,
    "resplit": True,
    "size": "24x16",
    "fit": "crop",
    "unreadable": "raise",
    "method": "crl-class-absolute",
    "method_options": {"eta": 0.5, "kappa": 7},
    "network": "densenet",
    "network_options": {"depth": 22, "growth": 4},
    "weights": "earlier.safetensors",
    "tune": "all",
    "views": 2,
    "heads": 3,
    "noise": 0.5,
    "refit": False,
    "smoothing": 0.1,
    "epochs": 7,
    "batch_size": 48,
    "seed": 5,
    "optimizer": "adamw",
    "lr": 0.003,
    "momentum": 0.5,
    "nesterov": True,
    "weight_decay": 0.01,
    "schedule": "step",
    "milestones": (0.25, 0.5, 0.9),
    "decay": 0.3,
    "warmup": 1.5,
    "clip": 2.0,
    "accumulate": 4,
    "drop_last": True,
    "padding": 2,
    "flip": False,
    "augment": "rand",
    "rate_decay": 0.5,
    "freeze_norm": True,
    "ema": 0.9,
    "validate_every": 3,
    "patience": 6,
    "select": "prior",
    "precision": "bf16",
    "step": "eager",
    "batch_norm": "local",
    "accelerator": "cpu",
    "devices": 2,
    "nodes": 3,
    "checkpoint_seconds": 1.0,
    "tensorboard": False,
    "features": False,
    "baselines": True,
}


def changed(**settings: Any) -> Config:
    """A config in which no field has its default."""
    return Config(**{**CHANGED, **settings})
