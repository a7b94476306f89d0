"""Fully connected layers that several networks share."""

from __future__ import annotations

from itertools import pairwise

from torch import nn

from rectifier.networks.options import Widths, as_widths


def fully_connected(inputs: int, widths: Widths, dropout: float) -> list[nn.Module]:
    """Return fully connected layers with ReLU, and dropout between them; the head drops what the last gives.

    >>> nn.Sequential(*fully_connected(20, (16, 8), 0.5))
    Sequential(
      (0): Linear(in_features=20, out_features=16, bias=True)
      (1): ReLU()
      (2): Dropout(p=0.5, inplace=False)
      (3): Linear(in_features=16, out_features=8, bias=True)
      (4): ReLU()
    )
    """
    layers: list[nn.Module] = []
    for before, after in pairwise((inputs, *as_widths(widths))):
        dropped = [nn.Dropout(dropout)] if layers else []
        layers += [*dropped, nn.Linear(before, after), nn.ReLU()]
    return layers
