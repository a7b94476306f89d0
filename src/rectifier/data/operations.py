"""Operations on the pixels of a whole batch: those that TrivialAugment and RandAugment choose from.

Each image has an operation and an amount. Images are grouped by operation, so the loop is over operations, never over
images. The results are those of PIL image by image, up to rounding.
"""

from __future__ import annotations

import torch
from torch import Tensor

OPERATIONS = (
    *("identity", "shear_x", "shear_y", "translate_x", "translate_y", "rotate"),
    *("brightness", "colour", "contrast", "sharpness", "posterize", "solarize", "autocontrast", "equalize"),
)
"""The amounts mean: pixels sideways per pixel for shear, pixels for translate, degrees for rotate, factor minus 1 for
brightness to sharpness, dropped bits for posterize, inverted levels for solarize. Amount 0 changes nothing, except that
autocontrast and equalize have no amount."""

_SPATIAL = 5  # operations that move pixels: they follow the identity


def operate(images: Tensor, operation: Tensor, amount: Tensor) -> Tensor:
    """Return uint8 images ``(B, H, W, C)``, each changed by its operation ``(B,)`` by its amount ``(B,)``.

    >>> image = torch.tensor([0, 100, 200], dtype=torch.uint8).view(1, 1, 3, 1)
    >>> images, amount = image.expand(3, 1, 3, 1), torch.tensor([0.5, 1.0, 100.0])
    >>> chosen = torch.tensor([OPERATIONS.index(name) for name in ("brightness", "translate_x", "solarize")])
    >>> operate(images, chosen, amount).flatten(1).tolist()
    [[0, 150, 255], [100, 200, 0], [0, 100, 55]]
    """
    counts = operation.bincount(minlength=len(OPERATIONS)).tolist()  # on a GPU the only wait
    sizes = [counts[0], sum(counts[1 : 1 + _SPATIAL]), *counts[1 + _SPATIAL :]]
    _, moved, *others = operation.argsort(stable=True).split(sizes)
    result = images.clone(memory_format=torch.contiguous_format)
    if len(moved):
        result[moved] = _moved(images[moved], operation[moved], amount[moved])
    for change, chosen in zip(_CHANGES, others, strict=True):
        if len(chosen):
            result[chosen] = change(images[chosen], amount[chosen].view(-1, 1, 1, 1))
    return result


def _moved(images: Tensor, operation: Tensor, amount: Tensor) -> Tensor:
    """Shear, shift or rotate: one gather of the nearest pixels, black from outside."""
    count, height, width, channels = images.shape
    each = (amount.where(operation == kind, 0).view(-1, 1, 1) for kind in range(1, 1 + _SPATIAL))
    shear_x, shear_y, right, down, angle = each
    cos, sin = angle.deg2rad().cos(), angle.deg2rad().sin()
    across = torch.arange(width, device=images.device).view(1, 1, -1) + 0.5  # the middle of each pixel
    along = torch.arange(height, device=images.device).view(1, -1, 1) + 0.5
    from_centre_x, from_centre_y = across - width / 2, along - height / 2
    x = cos * from_centre_x - sin * from_centre_y + width / 2 + shear_x * along + right.trunc()
    y = sin * from_centre_x + cos * from_centre_y + height / 2 + shear_y * across + down.trunc()
    x, y = x.floor().long(), y.floor().long()
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    rows = torch.arange(count, device=images.device).view(-1, 1, 1) * height + y.clamp(0, height - 1)
    pixels = rows * width + x.clamp(0, width - 1)
    found = images.reshape(-1, channels).index_select(0, pixels.flatten()).view(images.shape)
    return found * inside.unsqueeze(3)


def _brightness(images: Tensor, amount: Tensor) -> Tensor:
    return _away_from(torch.zeros((), device=images.device), images, amount)


def _colour(images: Tensor, amount: Tensor) -> Tensor:
    return _away_from(_grey(images), images, amount)


def _contrast(images: Tensor, amount: Tensor) -> Tensor:
    return _away_from((_grey(images).mean((1, 2, 3), keepdim=True) + 0.5).floor(), images, amount)


def _sharpness(images: Tensor, amount: Tensor) -> Tensor:
    smooth = images.float()
    rows = smooth[:, :-2] + smooth[:, 1:-1] + smooth[:, 2:]
    box = rows[:, :, :-2] + rows[:, :, 1:-1] + rows[:, :, 2:]
    middle = smooth[:, 1:-1, 1:-1]  # the border stays as it is
    middle.copy_(((box + 4 * middle) / 13).round())
    return _away_from(smooth, images, amount)


def _away_from(base: Tensor, images: Tensor, amount: Tensor) -> Tensor:
    """Move images away from a base, or towards it where the amount is negative."""
    return (base + (1 + amount) * (images - base)).round().clamp(0, 255).to(torch.uint8)


def _grey(images: Tensor) -> Tensor:
    """Return the luminance of three channels, or the mean of another number, in whole levels ``(B, H, W, 1)``."""
    if images.shape[3] != 3:
        return images.float().mean(3, keepdim=True).round()
    red, green, blue = images.int().unbind(3)
    return ((19595 * red + 38470 * green + 7471 * blue + 2**15) >> 16).float().unsqueeze(3)  # as PIL has it


def _posterize(images: Tensor, amount: Tensor) -> Tensor:
    dropped = amount.abs().round().to(torch.uint8)
    return (images >> dropped) << dropped


def _solarize(images: Tensor, amount: Tensor) -> Tensor:
    return torch.where(images < 256 - amount.abs(), images, 255 - images)


def _autocontrast(images: Tensor, _: Tensor) -> Tensor:
    """Stretch each channel to 0 to 255."""
    low, high = images.amin((1, 2), keepdim=True), images.amax((1, 2), keepdim=True)
    stretched = (images - low).float() * (255 / (high - low).clamp(min=1))
    return torch.where(high > low, stretched.round().to(torch.uint8), images)


def _equalize(images: Tensor, _: Tensor) -> Tensor:
    """Give each channel a histogram as flat as a table from 256 levels to 256 levels can make it."""
    count, channels = len(images), images.shape[3]
    pixels = images.permute(0, 3, 1, 2).reshape(count * channels, -1).long()
    first = 256 * torch.arange(len(pixels), device=images.device).unsqueeze(1)
    histogram = (pixels + first).flatten().bincount(minlength=256 * len(pixels)).view(-1, 256)
    largest = pixels.amax(1, keepdim=True)
    step = (pixels.shape[1] - histogram.gather(1, largest)) // 255
    below = histogram.cumsum(1) - histogram
    table = ((below + step // 2) // step.clamp(min=1)).clamp(max=255)
    table = torch.where(step > 0, table, torch.arange(256, device=images.device))  # too few pixels: unchanged
    changed = table.gather(1, pixels).to(torch.uint8)
    return changed.view(count, channels, *images.shape[1:3]).permute(0, 2, 3, 1)


_CHANGES = (_brightness, _colour, _contrast, _sharpness, _posterize, _solarize, _autocontrast, _equalize)
