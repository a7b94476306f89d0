"""TunedNetwork: what is trained of a pretrained network, with its head; and how a run keeps and finds it again."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from rectifier.data.dataset import ImageData, as_size
from rectifier.labels.columns import Sizes
from rectifier.labels.space import LabelSpace
from rectifier.methods import build_objective, needed_of_network
from rectifier.networks.head import Output
from rectifier.networks.network import redraw
from rectifier.networks.pretrained import Backbone, load_backbone
from rectifier.training.config import Config
from rectifier.training.engine.modes import evaluating
from rectifier.training.heads import FeatureHead, HeadSpec
from rectifier.training.heads.joint_loss import check_layers
from rectifier.training.recipe import HEAD
from rectifier.training.run.folder import Run

SPEC_OPTIONS = ("hidden", "branch", "classifier", "scale", "scale_learned", "init", "dropout")


class TunedNetwork(nn.Module):
    """The trained part of a pretrained network: ``trunk``, which lies above the cut, and ``head``.

    It reads what lies below the cut: features ``(N, D)``, maps ``(N, C, h, w)``, or images. In training a random row
    of ``noise`` ``(R, D)``, if there is any, is added to the features of each sample.
    """

    def __init__(self, backbone: Backbone, tune: str, head: FeatureHead) -> None:
        super().__init__()
        own = deepcopy(backbone)  # several runs share what was loaded
        self.trunk, self.head = own.cut(tune)[1], head
        trained = {id(weight) for weight in own.trainable(tune)}
        for weight in self.trunk.parameters():
            weight.requires_grad_(id(weight) in trained)
        self._stages = [[w for w in stage if id(w) in trained] for stage in own.stages()]
        self._whole = [own.trunk]  # in a list, so that its weights are not counted twice
        self.noise: Tensor | None = None  # no buffer: it is not saved, nor sent to other processes at every step

    def forward(self, inputs: Tensor) -> Output:
        features = self.trunk(inputs)
        if self.training and self.noise is not None:
            drawn = torch.randint(len(self.noise), (len(features),), device=features.device)
            features = features + self.noise[drawn].to(features.dtype)
        output: Output = self.head(features)
        return output

    def stages(self) -> list[list[nn.Parameter]]:
        """Return the trained weights from the input to the output, for a rate per depth. The head is last."""
        return [*filter(None, self._stages), list(self.head.parameters())]

    def reset_classifier(self, seed: int | None = None) -> None:
        """Redraw the weights of the classifier, as ``Network.reset_classifier`` does."""
        redraw(self.head.classifier, seed)

    def whole_state(self) -> dict[str, Tensor]:
        """Return the weights of the whole network, also of what lies below the cut."""
        return whole_state(self._whole[0], self.head)


class WholeNetwork(nn.Module):
    """A pretrained network with its head, from prepared images ``(N, 3, H, W)``."""

    def __init__(self, trunk: nn.Module, head: FeatureHead) -> None:
        super().__init__()
        self.trunk, self.head = trunk, head

    def forward(self, images: Tensor) -> Output:
        output: Output = self.head(self.trunk(images))
        return output


def whole_state(trunk: nn.Module, head: nn.Module) -> dict[str, Tensor]:
    """Return the weights of a network as a run keeps them."""
    parts = {"trunk": trunk, "head": head}
    return {f"{part}.{name}": weight for part, own in parts.items() for name, weight in own.state_dict().items()}


def head_spec(config: Config, seed: int, epochs: int = 1) -> HeadSpec:
    """Return the head that a settled config describes. ``seed`` draws its first weights."""
    options = needed_of_network(config.method, config.network_options)
    given: dict[str, Any] = {name: options[name] for name in SPEC_OPTIONS if name in options}
    return HeadSpec(
        method=config.method,
        method_options=config.method_options,
        seed=seed,
        order_seed=config.seed,
        epochs=epochs,
        batch_size=config.batch_size or 128,
        lr=config.lr if config.tune == "head" and config.lr else HEAD["lr"],
        optimizer=config.optimizer if config.tune == "head" else "adamw",
        momentum=config.momentum,
        weight_decay=config.weight_decay or 0.0,
        schedule="constant" if config.schedule == "constant" else "cosine",
        warmup=min(config.warmup / epochs, 0.9),
        noise=config.noise or 0.0,
        smoothing=config.smoothing,
        **given,
    )


def check_head(config: Config, data: ImageData) -> None:
    """Refuse a head that cannot be built or trained, before anything is decoded."""
    spec = head_spec(config, config.seed)
    objective = build_objective(config.method, data.counts("train"), data.space, **config.method_options)
    check_layers(spec, objective)


def head_from(state: Mapping[str, Tensor], sizes: Sizes) -> FeatureHead:
    """Build the head that has these weights: their names and shapes say what it is."""
    labels = len(sizes.sizes) if isinstance(sizes, LabelSpace) else len(list(sizes))  # type: ignore[arg-type]
    hidden = len(state["hidden.weight"]) if "hidden.weight" in state else 0
    branch = len(state["entry.weight"]) // labels if "entry.weight" in state else 0
    first = next(state[n] for n in ("hidden.weight", "entry.weight", "classifier.weight") if n in state)
    head = FeatureHead(
        first.shape[1],
        sizes,
        hidden=hidden,
        branch=branch,
        classifier="linear" if "classifier.bias" in state else "cosine",
        scaling="scaling.mean" in state,
        factor="factor" in state,
    )
    head.load_state_dict(dict(state))
    return head.eval()


def saved_network(run: Run) -> tuple[Backbone, FeatureHead]:
    """Return backbone and head of a run on a pretrained network, both with the weights of the run."""
    config = run.config
    size = as_size(config.size)
    backbone = load_backbone(config.network, run.path, size=size).with_penultimate()
    state = {n.removeprefix("head."): w for n, w in run.weights().items() if n.startswith("head.")}
    return backbone, head_from(state, run.space)


def tune_of(backbone: Backbone, tune: str) -> str:
    """Return where the network is cut: a network that cannot be cut before its last stage is trained from images."""
    below, _ = backbone.cut(tune)
    return "all" if isinstance(below, nn.Identity) else tune


@torch.no_grad()
def features_above(network: TunedNetwork, inputs: Tensor) -> Tensor:
    """Return the features that the trunk gives in evaluation mode."""
    with evaluating(network.trunk):
        return torch.cat([network.trunk(part) for part in inputs.split(256)])
