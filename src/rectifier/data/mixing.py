"""Mix images: blend each with the next one of its batch, and give it the labels of both.

Batches come in random order, so the next image is a random one; the last image is followed by the first. Drawing and
blending happen on the images' device without synchronisation, so a CUDA graph can capture a step that mixes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rectifier._base import check
from rectifier.labels import columns
from rectifier.labels.columns import Sizes
from rectifier.labels.counts import Counts, as_count_list

# Mixed images, and their ``partner`` for an objective: targets of the other images, share of their own.
Mixed = tuple[Tensor, tuple[Tensor, Tensor]]


class Mixup(torch.nn.Module):
    """Blend every image with the next one of its batch (Zhang et al. 2018).

    image = share * image + (1 - share) * next image. Each sample's share, float32 ``(N,)``, comes from Beta(strength,
    strength), drawn by torch's own generator. Its labels get this weight, those of the next image the rest. With a
    ``strength`` near 0, almost every image stays itself or becomes the next. At 1 all shares are equally likely. With
    larger values the shares approach one half.

    >>> images, targets = torch.stack([torch.zeros(3, 8, 8), torch.ones(3, 8, 8)]), torch.tensor([[0], [1]])
    >>> mixed, (partner, share) = Mixup(strength=0.2)(images, targets)
    >>> partner.flatten().tolist(), bool((mixed[0] == 1 - share[0]).all()), share.shape
    ([1, 0], True, torch.Size([2]))
    """

    def __init__(self, strength: float = 1.0) -> None:
        super().__init__()
        check.raise_all([check.positive("strength", strength)])
        self.strength = strength

    def forward(self, images: Tensor, targets: Tensor) -> Mixed:
        """Return the mixed images, of the same type and memory format, and (partner targets ``(N, A)``, share)."""
        if not isinstance(images, Tensor) or not images.is_floating_point():
            kind = f"a {images.dtype} tensor" if isinstance(images, Tensor) else type(images).__name__
            raise TypeError(check.sentence("images", "a floating point tensor", kind))
        check.same_length("targets", targets, "images", images)
        share = _drawn_shares(len(images), self.strength, images.device)
        own = share.to(images.dtype).view(-1, *[1] * (images.dim() - 1))
        return torch.lerp(images, _next(images), 1 - own), (_next(targets), share)

    def extra_repr(self) -> str:
        return f"strength={self.strength}"


class Remix(Mixup):
    """Mixup whose labels favour the rarer class (Chou et al. 2020). Each label has its own share, ``(N, A)``.

    Images are blended as in ``Mixup``. With n the training samples of a class, the share of a label is

    - 0 where n_own >= kappa * n_next and share < tau: the next image's class is rarer and visible enough;
    - 1 where n_next >= kappa * n_own and 1 - share < tau: the own class is rarer and visible enough;
    - the share of the images otherwise, and if one of the two images lacks the label.

    Args:
        counts: Training samples of each class: a 1-d tensor for one label, a list of them for several. A class without
            samples counts as half a sample.
        sizes: Classes of each label, or a LabelSpace.
        strength: As in ``Mixup``.
        kappa: How many times rarer a class must be, above 1.
        tau: Share below which the more frequent class loses its weight, from 0 (never: Mixup) to 1.

    >>> remix = Remix(torch.tensor([90, 10]), [2])
    >>> remix.label_share(torch.tensor([0.4, 0.6]), torch.tensor([[0], [0]]), torch.tensor([[1], [1]])).flatten()
    tensor([0.0000, 0.6000])
    """

    counts: Tensor

    def __init__(
        self, counts: Counts, sizes: Sizes, strength: float = 1.0, kappa: float = 3.0, tau: float = 0.5
    ) -> None:
        super().__init__(strength)
        complaints = [
            check.that("kappa of remix", kappa, "a number above 1", check.is_real(kappa) and kappa > 1),
            check.that("tau of remix", tau, "a number from 0 to 1", check.is_real(tau) and 0 <= tau <= 1),
        ]
        check.raise_all(complaints)
        labels, _ = as_count_list(counts)
        self.sizes, self.names = columns.as_sizes(sizes), columns.label_names(sizes)
        if tuple(map(len, labels)) != self.sizes:
            check.fail("counts", f"those of labels of sizes {self.sizes}", f"of sizes {tuple(map(len, labels))}")
        self.kappa, self.tau = kappa, tau
        # Known from the training split, so not saved; a buffer, so that it is on the device before a capture.
        self.register_buffer("counts", torch.cat(labels).float().clamp(min=0.5), persistent=False)

    def forward(self, images: Tensor, targets: Tensor) -> Mixed:
        """Return the mixed images and (partner targets ``(N, A)``, share ``(N, A)``)."""
        canonical = columns.as_targets(targets, self.sizes, self.names)
        mixed, (partner, share) = super().forward(images, canonical)
        return mixed, (partner, self.label_share(share, canonical, partner))

    def label_share(self, share: Tensor, targets: Tensor, partner: Tensor) -> Tensor:
        """Return the share of each own label ``(N, A)``, given the share of the own images ``(N,)``."""
        by_label = share[:, None].expand(-1, len(self.sizes))
        own, other = (self.counts[columns.own_columns(each, self.sizes).clamp(min=0)] for each in (targets, partner))
        both = (targets >= 0) & (partner >= 0)
        gives_way = both & (own >= self.kappa * other) & (by_label < self.tau)
        takes_all = both & (other >= self.kappa * own) & (1 - by_label < self.tau)
        return by_label.masked_fill(gives_way, 0).masked_fill(takes_all, 1)

    def extra_repr(self) -> str:
        return f"strength={self.strength}, kappa={self.kappa}, tau={self.tau}"


def _next(values: Tensor) -> Tensor:
    """Return the rows moved up by one, the first one last. Unlike ``roll`` this keeps the memory format."""
    return torch.cat([values[1:], values[:1]])


def _drawn_shares(samples: int, strength: float, device: torch.device) -> Tensor:
    """Draw float32 ``(N,)`` from Beta(strength, strength): x / (x + y) of two draws from Gamma(strength).

    In logarithms, because most draws of a small strength are below the smallest float, where a ratio means nothing. x
    is distributed as g * u^(1 / strength), with g from Gamma(strength + 1), u uniform, and so -log u exponential.
    """
    shape = torch.full((2, samples), strength + 1.0, device=device)
    drawn = torch.distributions.Gamma(shape, torch.ones_like(shape), validate_args=False).sample().log()
    waited = torch.empty_like(shape).exponential_()
    return torch.sigmoid(drawn[0] - drawn[1] - (waited[0] - waited[1]) / strength)
