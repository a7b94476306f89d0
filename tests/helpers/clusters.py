"""Random features and clusters, shared by the tests of clustering and of the decision by cluster centres."""

from __future__ import annotations

from typing import Any

import torch
from torch import Generator, Tensor

from rectifier.samplers.lmle.clusters import Clusters, cluster_labels


def points(samples: int, seed: int = 0, ties: bool = False, dimensions: int = 3) -> Tensor:
    g = Generator().manual_seed(seed)
    drawn = torch.nn.functional.normalize(torch.randn(samples, dimensions, generator=g))
    return drawn[torch.randint(0, max(1, samples // 2), (samples,), generator=g)] if ties else drawn


def random_clusters(samples: int, classes: int, seed: int, missing: float = 0.1) -> Clusters:
    """Samples in any clusters: up to three a class, some of one sample, some classes of one cluster."""
    g = Generator().manual_seed(seed)
    class_of = torch.arange(classes).repeat_interleave(torch.randint(1, 4, (classes,), generator=g))
    assigned = (torch.rand(samples, generator=g) ** 2 * len(class_of)).long()
    assigned[torch.rand(samples, generator=g) < missing] = -1
    return Clusters(torch.randn(len(class_of), 3, generator=g), class_of, assigned)


def cluster(features: Tensor, targets: Tensor, **options: Any) -> Clusters:
    """Cluster one label."""
    return cluster_labels(features, targets[:, None], **options)[0]
