"""A pretrained network without its classifier, and how images are prepared for it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import torch
from torch import Tensor, nn

from rectifier._base import check
from rectifier.networks.pretrained.steps import Steps, WithInput, find_steps, groups, last_groups

TUNES = ("head", "last", "all")
"""What can be trained: only what follows the features, also the last stage, or everything."""

INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos")


@dataclass(frozen=True)
class Preprocessing:
    """How images are prepared: resized, scaled to 0..1, minus ``mean``, divided by ``std``, for each channel.

    It belongs to the weights, so it does not depend on the data.
    """

    size: tuple[int, int]  # height and width
    mean: tuple[float, ...]
    std: tuple[float, ...]
    interpolation: str  # one of INTERPOLATIONS

    def __post_init__(self) -> None:
        sides = len(self.size) == 2 and all(map(check.is_count, self.size))
        check.raise_all(
            [
                check.that("size", self.size, "a height and a width", sides),
                check.choice("interpolation", self.interpolation, INTERPOLATIONS),
                check.that("std", self.std, "as long as mean and positive", _divides(self.std, self.mean)),
            ]
        )


def _divides(std: Sequence[float], mean: Sequence[float]) -> bool:
    return len(std) == len(mean) and all(value > 0 for value in std)


@dataclass(frozen=True)
class Backbone:
    """A trunk that maps prepared images ``(N, 3, H, W)`` to features ``(N, width)``, and what is known of its weights.

    ``fitted`` is the sentence that says which tensors of a file were used. ``layers`` are those that the features
    consist of: the last one, or also the penultimate one (see ``with_penultimate``).
    """

    name: str
    trunk: nn.Module
    width: int
    preprocessing: Preprocessing
    licence: str
    weights: str  # where they come from, in words
    sha256: str  # of the file, or of the weights where there is not one file
    fitted: str = ""
    layers: tuple[str, ...] = ("last",)

    def with_penultimate(self) -> Backbone:
        """Return the backbone with the penultimate layer, averaged over positions, after the last one in its features.

        It is less specific to the classes that the weights were trained for. A network that does not run as a plain
        sequence stays as it is.
        """
        steps = self.steps
        if steps is None or not 0 < steps.before_last_stage() <= steps.before_last_layer():
            return self
        width = self.width + steps.channels_before_last_layer()
        return replace(self, width=width, layers=("last", "penultimate"))

    @property
    def features(self) -> nn.Module:
        """The function from prepared images to features. It shares its weights with the trunk."""
        return self.trunk if len(self.layers) == 1 else nn.Sequential(*self._to_features)

    @property
    def _to_features(self) -> tuple[nn.Module, ...]:
        """The steps from images to features."""
        modules = cast(Steps, self.steps).modules
        if len(self.layers) == 1:
            return modules
        place = cast(Steps, self.steps).before_last_layer()
        return *modules[:place], WithInput(*modules[place:])

    def cut(self, tune: str) -> tuple[nn.Module, nn.Module]:
        """Return what stays frozen and what is trained: ``above(below(images))`` equals ``features(images)``.

        ``head`` cuts at the features, ``last`` before the last stage, ``all`` at the images. The parts share their
        weights with the trunk: to train ``above`` is to train the trunk. A network that does not run as a plain
        sequence (a transformer) cannot be cut before its last stage. Then ``below`` is the identity, and
        ``trainable("last")`` says what to train from images.
        """
        _check_tune(tune)
        if tune == "head":
            return self.features, nn.Identity()
        if tune == "all" or self.steps is None:
            return nn.Identity(), self.features
        place = self.steps.before_last_stage()
        return nn.Sequential(*self._to_features[:place]), nn.Sequential(*self._to_features[place:])

    def trainable(self, tune: str) -> list[nn.Parameter]:
        """Return the parameters of the trunk that are trained with this ``tune``."""
        _check_tune(tune)
        if tune == "last" and self.steps is None:
            return last_groups(self.stages())
        return [] if tune == "head" else list(self.cut(tune)[1].parameters())

    def stages(self) -> list[list[nn.Parameter]]:
        """Return the parameters of each stage from the input to the output, for a learning rate per depth."""
        return groups(self.trunk) if self.steps is None else self.steps.stages()

    @cached_property
    def steps(self) -> Steps | None:
        """The trunk as a sequence of steps, or None where it is not one."""
        return find_steps(self.trunk, self._sample())

    def _sample(self) -> Tensor:
        like = next(self.trunk.parameters())
        shape = (1, len(self.preprocessing.mean), *self.preprocessing.size)
        return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(like.device, like.dtype)


def _check_tune(tune: str) -> None:
    check.raise_all([check.choice("tune", tune, TUNES)])


def digest(module: nn.Module) -> str:
    """Return the SHA-256 of all weights of a module with their names."""
    found = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        if not name.endswith("num_batches_tracked"):
            found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            found.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return found.hexdigest()


class GreyAsColour(nn.Module):
    """Repeat a grey channel three times, for networks that take only three channels."""

    def forward(self, images: Tensor) -> Tensor:
        return images.expand(-1, 3, -1, -1)
