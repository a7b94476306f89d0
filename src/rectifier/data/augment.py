"""Random crops and flips of a whole batch at once, on the batch's own device."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rectifier._base import check


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
