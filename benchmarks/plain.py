"""Plain PyTorch data loading: a Dataset that decodes with pillow, crops and flips each sample, and a DataLoader."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from rectifier.data.dataset import ImageArray, ImageData, ImageFiles
from rectifier.data.normalise import Normalisation


class PlainDataset(Dataset[tuple[Tensor, Tensor]]):
    """One image at a time, as most tutorials do it."""

    def __init__(self, data: ImageData, size: tuple[int, int], normalisation: Normalisation, padding: int) -> None:
        self.open: Callable[[int], Image.Image]
        if isinstance(data.images, ImageArray):
            pixels = data.images.pixels
            self.open = lambda i: Image.fromarray(pixels[i])
        elif isinstance(data.images, ImageFiles):
            root, paths = data.images.root, data.images.paths
            self.open = lambda i: Image.open(root / paths[i]).convert("RGB")
        self.targets, self.size, self.padding = data.targets, size, padding
        self.mean, self.std = (torch.tensor(v).view(-1, 1, 1) for v in (normalisation.mean, normalisation.std))

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        image = self.open(index)
        height, width = self.size
        if image.size != (width, height):
            image = image.resize((width, height), Image.Resampling.BILINEAR)
        left, top = random.randint(0, 2 * self.padding), random.randint(0, 2 * self.padding)
        image = ImageOps.expand(image, self.padding).crop((left, top, left + width, top + height))
        if random.random() < 0.5:
            image = ImageOps.mirror(image)
        tensor = torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255
        return (tensor - self.mean) / self.std, self.targets[index]


def plain_loader(
    data: ImageData, size: tuple[int, int], normalisation: Normalisation, *, batch: int, workers: int, pin: bool
) -> DataLoader:
    return DataLoader(
        PlainDataset(data, size, normalisation, padding=4),
        batch,
        shuffle=True,
        num_workers=workers,
        pin_memory=pin,
        persistent_workers=workers > 0,
    )
