"""Slow twins of fine-tuning, written from the papers and from PIL: image by image, weight by weight."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor, nn

ENHANCERS = {
    "brightness": ImageEnhance.Brightness,
    "colour": ImageEnhance.Color,
    "contrast": ImageEnhance.Contrast,
    "sharpness": ImageEnhance.Sharpness,
}


def operated(image: Image.Image, name: str, amount: float) -> Image.Image:
    """Change one image as PIL does."""
    matrices = {
        "shear_x": (1, amount, 0, 0, 1, 0),
        "shear_y": (1, 0, 0, amount, 1, 0),
        "translate_x": (1, 0, int(amount), 0, 1, 0),
        "translate_y": (1, 0, 0, 0, 1, int(amount)),
    }
    if name in matrices:
        return image.transform(image.size, Image.Transform.AFFINE, matrices[name])
    if name in ENHANCERS:
        return ENHANCERS[name](image).enhance(1 + amount)  # type: ignore[no-untyped-call]
    if name == "rotate":
        return image.rotate(amount)
    if name == "posterize":
        return ImageOps.posterize(image, 8 - round(abs(amount)))
    if name == "solarize":
        return ImageOps.solarize(image, 256 - abs(amount))  # type: ignore[arg-type]  # PIL only compares
    return {"identity": Image.Image.copy, "autocontrast": ImageOps.autocontrast, "equalize": ImageOps.equalize}[name](
        image
    )


def operated_one_by_one(images: Tensor, names: Sequence[str], amounts: Sequence[float]) -> Tensor:
    """Change uint8 images ``(B, H, W, C)`` in a loop."""
    found = []
    for pixels, name, amount in zip(images.numpy(), names, amounts, strict=True):
        image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
        found.append(np.array(operated(image, name, amount)).reshape(pixels.shape))
    return torch.from_numpy(np.stack(found))


def averaged(weights: Sequence[float], keep: float) -> float:
    """Return the moving average of one weight after some steps; the first is the weight before training."""
    average = weights[0]
    for step, weight in enumerate(weights[1:], start=1):
        kept = min(keep, (1 + step) / (10 + step))
        average = kept * average + (1 - kept) * weight
    return average


def rates(network: nn.Module, stages: int, lr: float, rate_decay: float) -> dict[str, float]:
    """Return the rate of each trainable weight of a network whose modules ``"0"``, ``"1"``, ... are its stages."""
    found = {}
    for name, weight in network.named_parameters():
        if weight.requires_grad:
            rate = lr
            for _ in range(stages - 1 - int(name.split(".")[0])):
                rate = rate * rate_decay
            found[name] = rate
    return found


def smoothed(losses: Sequence[float], beta: float) -> list[float]:
    """Return the exponentially weighted mean of all losses so far, by its definition."""
    found = []
    for last in range(len(losses)):
        weights = [beta ** (last - i) for i in range(last + 1)]
        found.append(sum(w * loss for w, loss in zip(weights, losses, strict=False)) / sum(weights))
    return found
