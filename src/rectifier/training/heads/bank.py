"""Bank: H heads of one shape as stacked weights, computed together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import relu

from rectifier._base.distances import unit
from rectifier.networks.head import SCALE, LabelClassifier, LabelCosine
from rectifier.training.heads.initial import first_weights
from rectifier.training.heads.prepared import Prepared
from rectifier.training.heads.spec import HeadSpec


class Answer(NamedTuple):
    """Logits of all heads, and the features that their classifiers read, if the heads have layers."""

    logits: Tensor  # (B, H, K)
    features: Tensor | None  # (B, H, U), or (B, H, A, U) with branches


class Bank:
    """H heads of one shape. Head h reads stream ``h // (H / S)`` of the S streams of samples.

    A weight of all heads is one tensor ``(H, ...)`` in ``weights``, under its name in ``FeatureHead``. A first layer
    multiplies each stream once by the rows of all its heads. Whatever comes after it is one batched product.
    """

    def __init__(self, specs: Sequence[HeadSpec], data: Prepared) -> None:
        self.specs, self.shape, self.heads = list(specs), specs[0], len(specs)
        self.sizes = data.table.space.sizes
        made = [first_weights(spec, data) for spec in specs]
        self.weights = {name: torch.stack([each[name] for each in made]).requires_grad_() for name in made[0]}
        logs = torch.tensor([math.log(spec.scale / SCALE) for spec in specs], dtype=torch.float64).to(data.rows)
        if self.shape.scale_learned:
            self.weights["log_scale"] = logs.clone().requires_grad_()
        self.fixed = logs if bool(logs.any()) else None
        self.classifier: LabelClassifier | None = None
        if self.shape.branch:
            kind = LabelCosine if self.shape.classifier == "cosine" else LabelClassifier
            self.classifier = kind(1, self.sizes * self.heads).to(data.rows.device)

    def __call__(self, x: Tensor, masks: dict[str, Tensor] | None = None) -> Answer:
        """Return the answer for standardised features ``(S, B, D)``. ``masks`` drop inputs of the later layers."""
        masks, features = masks or {}, None
        if self.shape.hidden:
            hidden = relu(self._shared_input(x, "hidden")).transpose(0, 1)  # (H, B, U)
            features = hidden.transpose(0, 1)
            x = _dropped(hidden, masks.get("hidden"))
        if self.shape.branch:
            entered = relu(self._layer(x, "entry"))
            features = entered.unflatten(2, (len(self.sizes), -1))
            logits = self._by_label(_dropped(features.transpose(0, 1), masks.get("entry")).transpose(0, 1))
        elif self.shape.classifier == "cosine":
            logits = self._cosine(x)
        else:
            logits = self._layer(x, "classifier")
        return Answer(self._scaled(logits), features)

    def _layer(self, x: Tensor, name: str) -> Tensor:
        """Return ``(B, H, out)`` from the streams ``(S, B, D)``, or from each head's own layer ``(H, B, U)``."""
        if not (self.shape.hidden and name != "hidden"):
            return self._shared_input(x, name)
        weight, bias = self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias")
        product = x @ weight.transpose(1, 2) if bias is None else torch.baddbmm(bias[:, None], x, weight.mT)
        return product.transpose(0, 1)

    def _shared_input(self, x: Tensor, name: str, weight: Tensor | None = None) -> Tensor:
        """Return ``(B, H, out)``. Weights come first in the product: with few rows that is twice as fast both ways."""
        weight, bias = self.weights[f"{name}.weight"] if weight is None else weight, self.weights.get(f"{name}.bias")
        rows = weight.reshape(len(x), -1, weight.shape[-1])  # (S, heads of a stream * out, D)
        if len(x) == 1:
            product = rows[0] @ x[0].T if bias is None else torch.addmm(bias.reshape(-1, 1), rows[0], x[0].T)
        else:
            product = rows @ x.mT if bias is None else torch.baddbmm(bias.reshape(len(x), -1, 1), rows, x.mT)
            product = product.flatten(0, 1)
        return product.T.view(x.shape[1], self.heads, -1)

    def _cosine(self, x: Tensor) -> Tensor:
        weight = unit(self.weights["classifier.weight"])
        if self.shape.hidden:
            return SCALE * (unit(x) @ weight.mT).transpose(0, 1)
        return SCALE * self._shared_input(unit(x), "classifier", weight)

    def _by_label(self, features: Tensor) -> Tensor:
        """Return ``(B, H, K)`` from the branches ``(B, H, A, U)``: H heads of A labels are one of H * A labels."""
        own = {name: self.weights[f"classifier.{name}"].flatten(0, 1) for name in self._classifier_weights()}
        logits: Tensor = functional_call(self.classifier, own, (features.flatten(1, 2),))  # type: ignore[arg-type]
        return logits.view(len(features), self.heads, -1)

    def _classifier_weights(self) -> tuple[str, ...]:
        return ("weight",) if self.shape.classifier == "cosine" else ("weight", "bias")

    def _scaled(self, logits: Tensor) -> Tensor:
        logs = self.weights.get("log_scale", self.fixed)
        return logits if logs is None else logits * logs.exp()[:, None]

    def state(self, head: int, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the state of one head for ``FeatureHead``, from the stacked weights of some epoch."""
        own = {name: weight[head].detach().clone() for name, weight in weights.items() if name != "log_scale"}
        logs = weights.get("log_scale", self.fixed)
        spec = self.specs[head]
        if logs is not None and (spec.scale_learned or spec.scale != SCALE):
            own["factor"] = logs[head].detach().exp()
        return own


def _dropped(inputs: Tensor, mask: Tensor | None) -> Tensor:
    return inputs if mask is None else inputs * mask
