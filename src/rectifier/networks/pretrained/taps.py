"""Taps: the layers of a backbone that can be read, as one module from raw pixels to all of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rectifier._base import check
from rectifier.networks.pretrained.backbone import Backbone
from rectifier.networks.pretrained.steps import over_positions

LAYERS = ("last", "penultimate", "maps")
"""The features; the input of the last layer, averaged over positions; the maps before the last stage."""


class Taps(nn.Module):
    """Map uint8 pixels ``(N, H, W, 3)`` to the wanted layers of a backbone, in the order in which they are wanted.

    ``shapes`` holds the shape of each layer for one image, ``places`` the number of steps below it. A network that does
    not run as a sequence has only the layer ``last``.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, backbone: Backbone, layers: Sequence[str] = ("last",)) -> None:
        super().__init__()
        steps = backbone.steps
        _check_layers(backbone.name, layers, LAYERS if steps else LAYERS[:1])
        self.layers = tuple(layers)
        shapes = ((3, *backbone.preprocessing.size), *(steps.shapes if steps else [(backbone.width,)]))
        found = {"last": len(shapes) - 1}
        if steps:
            found |= {"penultimate": steps.before_last_layer(), "maps": steps.before_last_stage()}
        self.places = {layer: found[layer] for layer in layers}
        self.shapes = {layer: shapes[place] for layer, place in self.places.items()}
        if steps and "penultimate" in layers:
            self.shapes["penultimate"] = (steps.channels_before_last_layer(),)
        modules = steps.modules if steps else (backbone.trunk,)
        self.steps = nn.ModuleList(modules[: max(self.places.values())])
        # In units of pixels, so that pixels need no division by 255 of their own.
        self.register_buffer("mean", 255 * torch.tensor(backbone.preprocessing.mean))
        self.register_buffer("std", 255 * torch.tensor(backbone.preprocessing.std))

    def forward(self, pixels: Tensor) -> tuple[Tensor, ...]:
        # Transposed pixels stay where they are in memory: channels last, which is fastest on CPUs and GPUs.
        values = [((pixels.float() - self.mean) / self.std).permute(0, 3, 1, 2)]
        for step in self.steps:
            values.append(step(values[-1]))
        tapped = ((layer, values[place]) for layer, place in self.places.items())
        return tuple(over_positions(value) if layer == "penultimate" else value for layer, value in tapped)


def _check_layers(name: str, layers: Sequence[str], known: Sequence[str]) -> None:
    if isinstance(layers, str) or not layers:
        raise TypeError(check.sentence("layers", "a list of names", repr(layers)))
    for layer in layers:
        if layer not in known:
            check.fail(f"a layer of {name}", f"one of {', '.join(known)}", f"{layer!r}")
