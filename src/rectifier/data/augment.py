"""Random changes of a whole batch at once, on its own device: crops and flips, TrivialAugment, RandAugment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from rectifier._base import check
from rectifier.data.operations import OPERATIONS, operate


@dataclass(frozen=True)
class CropAndFlip:
    """Shift each image by up to ``padding`` pixels (filled with black) and mirror half of them.

    Drawing is separate from applying. ``draw`` gives the numbers of a whole epoch on the CPU, so the same seed gives
    the same images on every device. A training step draws nothing.

    >>> augment = CropAndFlip(padding=1)
    >>> image = torch.arange(4, dtype=torch.uint8).view(1, 2, 2, 1)
    >>> augment(image, torch.tensor([[1, 1, 1]]))[0, :, :, 0].tolist()   # not shifted, mirrored
    [[1, 0], [3, 2]]
    >>> augment(image, torch.tensor([[2, 1, 0]]))[0, :, :, 0].tolist()   # the window moved down by one
    [[2, 3], [0, 0]]
    """

    padding: int = 4
    flip: bool = True

    def __post_init__(self) -> None:
        if not check.is_natural(self.padding):
            check.fail("padding", "a number of pixels, 0 or more", repr(self.padding))

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw vertical shift, horizontal shift (0 to 2 * padding) and mirroring (0, 1) of ``count`` images."""
        shifts = torch.randint(0, 2 * self.padding + 1, (count, 2), generator=generator)
        mirrored = torch.randint(0, 2 if self.flip else 1, (count, 1), generator=generator)
        return torch.cat([shifts, mirrored], 1)

    def __call__(self, images: Tensor, draws: Tensor) -> Tensor:
        """Return images ``(B, H, W, C)`` shifted and mirrored as ``draws`` ``(B, 3)`` says."""
        batch, height, width, channels = images.shape
        padded = torch.nn.functional.pad(images, (0, 0, *[self.padding] * 4))
        down, right, mirrored = draws.to(images.device).unbind(1)
        across = torch.arange(width, device=images.device)
        across = torch.where(mirrored[:, None] > 0, width - 1 - across, across) + right[:, None]
        rows = torch.arange(height, device=images.device) + down[:, None]
        rows = rows + torch.arange(batch, device=images.device)[:, None] * padded.shape[1]
        # The padded images are one long list of rows, and each row is a list of pixels.
        pixels = rows[:, :, None] * padded.shape[2] + across[:, None, :]
        return padded.view(-1, channels).index_select(0, pixels.flatten()).view(images.shape)


class Policy(NamedTuple):
    """How many operations each image gets, how strong they are, and what the full strength is."""

    operations: int
    strength: int | None  # of 30; None draws it for each image and operation
    shear: float  # pixels sideways per pixel
    shift: float  # share of the side
    most_pixels: float  # of a shift
    degrees: float
    factor: float  # that brightness, colour, contrast and sharpness gain or lose
    bits: float  # that posterize drops

    def amounts(self, height: int, width: int) -> list[float]:
        """Return the amounts of all operations at full strength."""
        shifts = [min(self.shift * side, self.most_pixels) for side in (width, height)]
        return [0, self.shear, self.shear, *shifts, self.degrees, *[self.factor] * 4, self.bits, 256, 0, 0]


POLICIES = {
    "crop": None,
    "trivial": Policy(1, None, shear=0.99, shift=0.5, most_pixels=32, degrees=135, factor=0.99, bits=6),
    "rand": Policy(2, 9, shear=0.3, shift=150 / 331, most_pixels=float("inf"), degrees=30, factor=0.9, bits=4),
}
_STRONGEST = 30


@dataclass(frozen=True)
class Augment(CropAndFlip):
    """Change each image by random operations, then crop and flip it as ``CropAndFlip`` does.

    ``"trivial"`` is TrivialAugment in its wide range (Müller and Hutter 2021): one operation of ``OPERATIONS`` with a
    random strength. Shifts reach 32 pixels as published, but at most half of the side. ``"rand"`` is RandAugment (Cubuk
    et al. 2020): two operations of strength 9 of 30. ``"crop"`` only crops and flips. Half of the strengths are
    negative where an operation has two directions.

    Images are uint8, or float from 0 to 1, which are rounded to 256 levels. The crops of a seed are the same under
    every policy.

    >>> augment = Augment(padding=0, flip=False, policy="rand")
    >>> images = torch.full((2, 8, 8, 3), 7, dtype=torch.uint8)
    >>> draws = augment.draw(2, torch.Generator().manual_seed(0))
    >>> draws.shape, augment(images, draws).shape
    (torch.Size([2, 9]), torch.Size([2, 8, 8, 3]))
    """

    policy: str = "trivial"

    def __post_init__(self) -> None:
        super().__post_init__()
        check.raise_all([check.choice("policy", self.policy, tuple(POLICIES))])

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw ``(count, 3 + 3 n)``: crop and flip, then n times operation, strength (0 to 30) and direction (0, 1)."""
        drawn, policy = [super().draw(count, generator)], POLICIES[self.policy]
        for _ in range(policy.operations if policy else 0):
            operation = torch.randint(0, len(OPERATIONS), (count, 1), generator=generator)
            strength = torch.randint(0, _STRONGEST + 1, (count, 1), generator=generator)
            if policy and policy.strength is not None:
                strength.fill_(policy.strength)
            drawn += [operation, strength, torch.randint(0, 2, (count, 1), generator=generator)]
        return torch.cat(drawn, 1)

    def __call__(self, images: Tensor, draws: Tensor) -> Tensor:
        """Return images ``(B, H, W, C)`` changed, shifted and mirrored as ``draws`` ``(B, 3 + 3 n)`` says."""
        policy = POLICIES[self.policy]
        if policy is None:
            return super().__call__(images, draws)
        changed = images if images.dtype == torch.uint8 else (images * 255).round().clamp(0, 255).to(torch.uint8)
        full = torch.tensor(policy.amounts(*images.shape[1:3]), device=images.device)
        chosen = draws[:, 3:].to(images.device)
        for operation, strength, negative in chosen.unflatten(1, (-1, 3)).permute(1, 2, 0):
            amount = full[operation] * strength / _STRONGEST * (1 - 2 * negative)
            changed = operate(changed, operation, amount)
        cropped = super().__call__(changed, draws[:, :3])
        return cropped if images.dtype == torch.uint8 else cropped.to(images.dtype) / 255
