"""The weights that an optimizer trains, in groups: smaller rates far from the head, decay where it belongs."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn import Parameter

from rectifier._base import check
from rectifier.training.engine.options import Options


def weight_groups(network: nn.Module, options: Options) -> list[dict[str, Any]]:
    """Return the trainable weights in groups with their ``weight_decay`` and the ``scale`` of their rate.

    A network with ``stages()``, lists of its weights from the input to the head, trains the stage that is n stages from
    the head with scale = rate_decay^n, and without decay of biases and the scales and shifts of norms. Frozen weights
    are left out. A network without stages is one group; all of its weights decay.

    >>> network = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    >>> [group["scale"] for group in weight_groups(network, Options(rate_decay=0.1))]
    [1.0]
    >>> network.stages = lambda: [list(layer.parameters()) for layer in network]
    >>> [(each["scale"], each["weight_decay"]) for each in weight_groups(network, Options(rate_decay=0.1))]
    [(0.1, 0.0005), (0.1, 0.0), (1.0, 0.0005), (1.0, 0.0)]
    """
    trained = [weight for weight in network.parameters() if weight.requires_grad]
    groups: dict[tuple[float, float], list[Parameter]] = {}
    stages = _stages(network)
    if stages is None:
        groups[1.0, options.weight_decay] = trained
    else:
        _check_complete(stages, trained)
        for distance, stage in reversed(list(enumerate(reversed(stages)))):
            for weight in stage:
                if weight.requires_grad:
                    decay = options.weight_decay if weight.dim() > 1 else 0.0
                    groups.setdefault((options.rate_decay**distance, decay), []).append(weight)
    return [{"params": own, "scale": scale, "weight_decay": decay} for (scale, decay), own in groups.items()]


def _stages(network: nn.Module) -> list[list[Parameter]] | None:
    found = getattr(network, "stages", None)
    return None if found is None or isinstance(found, nn.Module) else found()  # a network may call its layers so


def _check_complete(stages: list[list[Parameter]], trained: list[Parameter]) -> None:
    listed = [weight for stage in stages for weight in stage if weight.requires_grad]
    if sorted(map(id, listed)) != sorted(map(id, trained)):
        got = f"{len(listed)} of {len(trained)}"
        check.fail("stages() of the network", "lists that hold each trainable weight once", got)
