"""Shared by the tests of records."""

from __future__ import annotations

from typing import Any

SHAPES = "shapes:samples=96,size=16,ratio=4,labels=shape=3/colour=2,validation=20,test=20"


SMALL: dict[str, Any] = {
    "network": "mlp",
    "epochs": 1,
    "batch_size": 32,
    "tensorboard": False,
    "features": False,
    "accelerator": "cpu",
}
