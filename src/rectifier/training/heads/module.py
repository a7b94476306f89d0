"""FeatureHead and TrainedHead: a head as a network on raw features, and what its training gave."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from rectifier.labels.columns import Sizes
from rectifier.labels.space import LabelSpace
from rectifier.networks.head import SCALE, MultiLabelHead, Output
from rectifier.networks.layers import seeded
from rectifier.training.heads.spec import HeadSpec


class Scaling(nn.Module):
    """Subtract a mean from every feature and divide by a deviation."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, features: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("deviation", torch.ones(features))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.deviation


class FeatureHead(MultiLabelHead):
    """A ``MultiLabelHead`` after an optional hidden layer that all labels share.

    Without ``hidden``, ``scaling`` and ``factor`` its state dict is that of ``MultiLabelHead``.

    Args:
        in_features: D, the number of features.
        sizes: Number of classes of each label, or a LabelSpace.
        hidden: Width of the shared hidden layer. 0 is none.
        branch: Width of the hidden layer of each label. 0 is none.
        classifier: ``"linear"`` or ``"cosine"``.
        dropout: Share dropped of the input of every layer.
        scaling: Whether features are scaled first. A linear first layer includes the scaling, a cosine cannot.
        factor: Whether the cosines have a scale other than ``SCALE``.

    >>> head = FeatureHead(8, [3], hidden=4)
    >>> head(torch.zeros(2, 8)).features.shape
    torch.Size([2, 4])
    """

    factor: Tensor | None

    def __init__(
        self,
        in_features: int,
        sizes: Sizes,
        *,
        hidden: int = 0,
        branch: int = 0,
        classifier: str = "linear",
        dropout: float = 0.0,
        scaling: bool = False,
        factor: bool = False,
    ) -> None:
        super().__init__(hidden or in_features, sizes, hidden=branch, dropout=dropout, classifier=classifier)
        self.scaling = Scaling(in_features) if scaling else None
        self.hidden = nn.Linear(in_features, hidden) if hidden else None
        self.register_buffer("factor", torch.ones(()) if factor else None)

    @classmethod
    def of(cls, spec: HeadSpec, in_features: int, sizes: Sizes) -> FeatureHead:
        """Return the head of a spec with its first random weights."""
        first_is_cosine = spec.classifier == "cosine" and not spec.has_layers
        with seeded(spec.seed):
            return cls(
                in_features,
                sizes,
                hidden=spec.hidden,
                branch=spec.branch,
                classifier=spec.classifier,
                dropout=spec.dropout,
                scaling=first_is_cosine,
                factor=spec.scale_learned or spec.scale != SCALE,
            )

    def forward(self, shared: Tensor) -> Output:
        if self.scaling is not None:
            shared = self.scaling(shared)
        if self.hidden is not None:
            shared = relu(self.hidden(self.dropout(shared)))
        found = super().forward(shared)
        return found if self.factor is None else found._replace(logits=self.factor * found.logits)


@dataclass(frozen=True, eq=False)
class TrainedHead:
    """A head with the weights of the epoch that is kept, for raw features.

    ``weights`` is the state dict of ``module()``. ``losses`` and ``scores`` have one number per epoch: the mean
    training loss, and the class-balanced accuracy on validation (none without validation). ``epoch`` counts from 1.
    """

    spec: HeadSpec
    space: LabelSpace
    width: int
    weights: dict[str, Tensor]
    losses: tuple[float, ...] = ()
    scores: tuple[float, ...] = ()
    epoch: int = 0

    @property
    def score(self) -> float | None:
        """The validation score of the epoch that is kept."""
        return self.scores[self.epoch - 1] if self.scores else None

    def module(self) -> FeatureHead:
        """Return the head as a network in evaluation mode."""
        made = FeatureHead.of(self.spec, self.width, self.space).to(next(iter(self.weights.values())))
        made.load_state_dict(self.weights)
        return made.eval()

    @torch.no_grad()
    def logits(self, x: Tensor) -> Tensor:
        """Return the logits ``(N, K)`` of raw features ``(N, D)``."""
        found: Output = self.module()(x)
        return found.logits

    @torch.no_grad()
    def features(self, x: Tensor) -> Tensor:
        """Return what the classifier reads of raw features: ``(N, U)``, or ``(N, A, U)`` with branches."""
        found: Output = self.module()(x)
        return found.features
