"""Training mode and evaluation mode of a network whose batch statistics may be fixed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm


def set_training(network: nn.Module, freeze_norm: bool = False) -> None:
    """Put a network into training mode, except batch-norm layers whose statistics are fixed.

    Those inside a module whose weights are all frozen are fixed always: a frozen trunk must not drift. ``freeze_norm``
    fixes all. A fixed layer normalises by its running statistics; its scale and shift train unless they are frozen.

    >>> network = nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), nn.BatchNorm1d(2))
    >>> _ = network[0].requires_grad_(False)
    >>> set_training(network)
    >>> network[0][1].training, network[1].training
    (False, True)
    """
    network.train()
    for module in [network] if freeze_norm else filter(_is_frozen, network.modules()):
        for layer in module.modules():
            if isinstance(layer, _BatchNorm):
                layer.eval()


def _is_frozen(module: nn.Module) -> bool:
    weights = list(module.parameters())
    return bool(weights) and not any(weight.requires_grad for weight in weights)


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Put a network into evaluation mode; afterwards each of its modules has its own mode back."""
    before = {module: module.training for module in network.modules()}
    network.eval()
    try:
        yield
    finally:
        for module, was_training in before.items():
            module.training = was_training
