"""Random batches to test on: any label layout, with ties, missing labels and absent classes."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor

DESIGNS = [(level, kind) for level in ("class", "instance") for kind in ("relative", "absolute", "distribution")]


def capture(run: Callable[[], Any]) -> tuple[torch.cuda.CUDAGraph, Any]:
    """Capture a function as a CUDA graph: the graph, and what it will write its results into."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run()
    return graph, captured


class Batch(NamedTuple):
    logits: Tensor
    targets: Tensor
    features: Tensor
    sizes: list[int]


def make_batch(
    sizes: list[int],
    samples: int,
    seed: int = 0,
    *,
    ties: bool = False,
    missing: float = 0.0,
    skew: float = 2.0,
    scale: float = 2.0,
    shared: bool = False,
    dtype: torch.dtype = torch.float64,
) -> Batch:
    """Class c of a label is drawn as size * u^skew, so larger ``skew`` is more imbalanced and leaves classes absent."""
    g = torch.Generator().manual_seed(seed)
    draw = torch.rand(samples, len(sizes), generator=g, dtype=torch.float64)
    targets = (draw**skew * torch.tensor(sizes)).long()
    targets[torch.rand(targets.shape, generator=g) < missing] = -1
    logits = scale * torch.randn(samples, sum(sizes), generator=g, dtype=torch.float64)
    shape = (samples, 3) if shared else (samples, len(sizes), 3)
    features = torch.randn(shape, generator=g, dtype=torch.float64)
    if ties:  # whole samples are repeated: equal scores and equal features, often with other labels
        pick = torch.randint(0, max(1, samples // 2), (samples,), generator=g)
        logits, features = logits[pick], features[pick]
    return Batch(logits.to(dtype), targets, features.to(dtype), sizes)


@st.composite
def batches(draw: Any, most_labels: int = 8, most_classes: int = 30, most_samples: int = 60) -> Batch:
    sizes = draw(st.lists(st.sampled_from([2, 2, 2, 3, 5, 9, most_classes]), min_size=1, max_size=most_labels))
    samples = draw(st.integers(1, most_samples if len(sizes) <= 2 else most_samples // 3))
    return make_batch(
        sizes,
        samples,
        draw(st.integers(0, 10**6)),
        ties=draw(st.booleans()),
        missing=draw(st.sampled_from([0.0, 0.0, 0.3])),
        skew=draw(st.sampled_from([1.0, 2.0, 5.0])),
        scale=draw(st.sampled_from([0.1, 2.0, 8.0])),
        shared=draw(st.booleans()),
    )


class StopsAfter:
    """An interrupt that comes after so many steps."""

    steps = 0

    def __init__(self) -> None:
        self._left = self.steps

    def __enter__(self) -> StopsAfter:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @property
    def signal(self) -> int | None:
        self._left -= 1
        return None if self._left > 0 else signal.SIGTERM
