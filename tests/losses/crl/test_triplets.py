"""Triplets that are counted, by each algorithm, against the same triplets listed; and what chooses the algorithm."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from helpers.cases import Batch, make_batch
from rectifier.labels import columns
from rectifier.losses.crl import chunks, comparison, mining
from rectifier.losses.crl.bounds import bounds_of
from rectifier.losses.crl.closed_form import count_triplets
from rectifier.losses.crl.design import Design
from rectifier.losses.crl.pairs import ScorePairs, scored_classes
from rectifier.losses.crl.runs import list_triplets
from rectifier.losses.crl.scores import Scores
from rectifier.losses.crl.small_batch import all_triplets
from rectifier.losses.crl.triplets import Reading

Algorithm = Callable[[Scores, Tensor, tuple[int, ...], Design], Reading]
Result = tuple[Tensor, Tensor, Tensor, Tensor]

ALGORITHMS = {"few classes": count_triplets, "many classes": list_triplets}
SIZES = (2, 2, 5)
DESIGNS = {
    "paper": Design(),
    "all classes": Design(scope="all"),
    "rho 1": Design(rho=1.0),
    "rho 0.29": Design(rho=0.29),
    "log-probabilities": Design(scores="log-probability", margin=0.7),
}


def counted(algorithm: Algorithm, batch: Batch, design: Design) -> Result:
    logits, sizes = batch.logits.clone().requires_grad_(), tuple(batch.sizes)
    log_p, logarithmic = columns.log_softmax(logits, sizes), design.scores == "log-probability"
    scores = Scores(log_p, exponential=not logarithmic, negative=logarithmic)
    with torch.no_grad():
        reading = algorithm(scores, batch.targets, sizes, design)
    read = scores.of(*columns.take(log_p, [reading.places]))
    triplets = reading.triplets(read.detach())
    loss = triplets.loss(read, design.common_margin)
    (loss * torch.linspace(1, 2, len(sizes), dtype=loss.dtype)).sum().backward()
    return loss.detach(), logits.grad, triplets.number, reading.mined_classes()  # type: ignore[return-value]


def listed(batch: Batch, design: Design) -> Result:
    logits, sizes = batch.logits.clone().requires_grad_(), tuple(batch.sizes)
    scores = columns.log_softmax(logits, sizes)
    scores = scores if design.scores == "log-probability" else scores.exp()
    profile = mining.profile(batch.targets, sizes, design.rho, design.scope)
    pairs = ScorePairs(
        scored_classes(Scores(scores, negative=design.scores == "log-probability"), profile, sizes, design), profile
    )
    pairs.read(*columns.take(scores, [pairs.places]))
    sums = comparison.relative_sums(pairs(slice(None)), design.margins(sizes, logits))
    loss = comparison.relative_loss(sums)
    (loss * torch.linspace(1, 2, len(sizes), dtype=loss.dtype)).sum().backward()
    return loss.detach(), logits.grad, sums[1], columns.sum_by_label(profile.mined.long(), sizes)  # type: ignore[return-value]


def assert_same(found: Result, wanted: Result) -> None:
    exact = found[0].dtype == torch.float64
    for got, expected in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, expected, atol=1e-12 if exact else 1e-5, rtol=1e-9 if exact else 1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("kappa", [1, 2, 5, 40])
@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_counting_equals_listing(algorithm: str, design: str, kappa: int, ties: bool, dtype: torch.dtype) -> None:
    chosen = DESIGNS[design]._replace(kappa=kappa)
    for seed in range(5):
        batch = make_batch(list(SIZES), 40, seed, ties=ties, missing=0.1, dtype=dtype)
        wanted = listed(batch, chosen)
        assert wanted[0].max() > 0
        assert_same(counted(ALGORITHMS[algorithm], batch, chosen), wanted)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("sizes", [[4], [2, 2, 5], [30]])
def test_a_small_batch_equals_listing(sizes: list[int], design: str, ties: bool) -> None:
    for samples in (2, 3, 9, 25):
        for seed in range(5):
            batch = make_batch(sizes, samples, seed, ties=ties, missing=0.1)
            assert_same(counted(all_triplets, batch, DESIGNS[design]), listed(batch, DESIGNS[design]))


@pytest.mark.parametrize("mining", ["hard", "all"])
def test_chunks_change_nothing(mining: str, monkeypatch: pytest.MonkeyPatch) -> None:
    batch, design = make_batch([2, 3, 30], 50, ties=True, missing=0.1), Design(kappa=4, mining=mining)
    wanted = {name: counted(algorithm, batch, design) for name, algorithm in ALGORITHMS.items()}
    for limit in (1, 3_000, 20_000):
        monkeypatch.setattr(chunks, "CHUNK_BYTES", limit)
        for name, algorithm in ALGORITHMS.items():
            assert_same(counted(algorithm, batch, design), wanted[name])


def test_listed_by_hand() -> None:
    """Two anchors, each the other's positive, one negative: max(0, m + |p_a - p_+| - (p_a - p_-))."""
    scores, targets = torch.tensor([[0.7, 0.3], [0.4, 0.6], [0.6, 0.4]]), torch.tensor([[0], [0], [1]])
    by_hand = (0.5 + 0.3 - (0.7 - 0.6)) + (0.5 + 0.3 - (0.4 - 0.6))
    for algorithm in (*ALGORITHMS.values(), all_triplets):
        reading = algorithm(Scores(scores), targets, (2,), Design(scope="all"))
        (read,) = columns.take(scores, [reading.places])
        triplets = reading.triplets(read)
        assert triplets.loss(read, 0.5).item() == pytest.approx(by_hand / 2)
        assert triplets.number.tolist() == [2]
        assert reading.mined_classes().tolist() == [1]


@pytest.mark.parametrize(
    ("sizes", "samples", "algorithm"),
    [
        ([4], 24, "small batch"),
        ([2] * 40, 256, "few classes"),
        ([6, 9, 11, 14, 16, 18, 20, 29, 55], 128, "many classes"),
        ([100], 256, "many classes"),
        ([1000], 1024, "many classes"),
        ([2] * 40, 24, "few classes"),
        ([2], 26, "few classes"),
        ([2], 256, "few classes"),
    ],
)
def test_the_shape_chooses_the_algorithm(sizes: list[int], samples: int, algorithm: str) -> None:
    assert bounds_of(samples, tuple(sizes), Design()).algorithm == algorithm


@pytest.mark.parametrize("rho", [0.1, 0.29, 0.5, 0.58, 0.999, 1 - 2**-53, 1.0])
@pytest.mark.parametrize("scope", ["minority", "all"])
def test_bounds_hold(rho: float, scope: str) -> None:
    """Also where each class has two samples, so that most classes are mined, and where rho * n rounds up."""
    design = Design(rho=rho, scope=scope)
    for samples in (2, 3, 7, 20, 50, 100):
        pairs = torch.arange(samples)[:, None] // 2
        for targets in (pairs, pairs % 3, *(make_batch([60], samples, seed).targets for seed in range(3))):
            bounds = bounds_of(samples, (60,), design)
            mined = mining.profile(targets, (60,), rho, scope).mined
            assert mined.sum() <= bounds.mined
            assert mined[targets].sum() <= bounds.anchors


def test_bounds_are_reached() -> None:
    """A batch of pairs mines as many classes, with as many anchors, as the bounds allow; two classes mine one."""
    for samples, design in ((40, Design()), (40, Design(scope="all"))):
        mined = mining.profile(torch.arange(samples)[:, None] // 2, (60,), design.rho, design.scope).mined
        bounds = bounds_of(samples, (60,), design)
        assert (int(mined.sum()), 2 * int(mined.sum())) == (bounds.mined, bounds.anchors)
    assert bounds_of(40, (2, 2), Design()).mined == 2
    assert bounds_of(40, (2, 2), Design(scope="all")).mined == 4
