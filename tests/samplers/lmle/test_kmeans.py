"""k-means of many groups at once is k-means of each of them."""

from __future__ import annotations

import pytest
import torch
from sklearn.cluster import KMeans
from torch import Generator, Tensor

from rectifier.samplers.lmle import kmeans
from rectifier.samplers.lmle.kmeans import Groups, k_means, lloyd

SIZES, CLUSTERS = [200, 31, 7, 120, 1], [7, 4, 7, 5, 1]


def groups(seed: int = 0, dimensions: int = 3) -> list[Tensor]:
    g = Generator().manual_seed(seed)
    return [torch.randn(samples, dimensions, generator=g, dtype=torch.float64) for samples in SIZES]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("chunk", [7, 2**24])
def test_lloyd_of_filled_groups_is_that_of_scikit_learn(seed: int, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kmeans, "CHUNK", chunk)
    points = groups(seed)
    start = [own[:k] for own, k in zip(points, CLUSTERS, strict=True)]
    begun = torch.nn.utils.rnn.pad_sequence(start, batch_first=True)
    centres, nearest = lloyd(Groups.join(points, CLUSTERS), begun)
    for number, (own, k) in enumerate(zip(points, CLUSTERS, strict=True)):
        theirs = KMeans(k, init=start[number].numpy(), n_init=1, max_iter=30, tol=0, algorithm="lloyd").fit(own.numpy())
        torch.testing.assert_close(centres[number, :k], torch.from_numpy(theirs.cluster_centers_))
        assert nearest[number, : len(own)].tolist() == theirs.labels_.tolist()


def test_rounds_beyond_the_end_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    joined = Groups.join(groups(), CLUSTERS)
    begun = joined.points[:, : max(CLUSTERS)]
    found = []
    for every in (1, 7):
        monkeypatch.setattr(kmeans, "_LOOK_EVERY", every)
        found.append(lloyd(joined, begun, rounds=200))  # so many that all end by themselves
    torch.testing.assert_close(found[0], found[1])


@pytest.mark.parametrize("fitted_on", [None, 3])
@pytest.mark.parametrize("numbers", [1, 100, 2**26])
def test_every_group_is_clustered(fitted_on: int | None, numbers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Points are nearest to their own centre, and centres are means, whatever else is clustered in the same call."""
    monkeypatch.setattr(kmeans, "NUMBERS", numbers)
    points = groups()
    found = k_means(points, CLUSTERS, Generator().manual_seed(0), fitted_on)
    for own, k, (centres, nearest) in zip(points, CLUSTERS, found, strict=True):
        assert centres.shape == (k, 3)
        assert nearest.shape == (len(own),)
        assert torch.equal(torch.cdist(own, centres).argmin(1), nearest)
        for j in range(k) if fitted_on is None else ():  # else they are those of the round before the last
            torch.testing.assert_close(centres[j], own[nearest == j].mean(0))


def test_groups_of_about_one_size_are_clustered_together() -> None:
    sizes = [10, 170, 18, 120, 1, 21]
    batches = list(kmeans._batches([torch.zeros(size, 2) for size in sizes]))
    assert [[sizes[g] for g in batch] for batch in batches] == [[1], [10], [18, 21], [120, 170]]


def test_centres_are_drawn_like_their_squared_distance() -> None:
    """Of the points 0, 1 and 3: the first with equal chances; after 0, the second is 1 or 3 with chances 1 and 9."""
    same = [torch.tensor([[0.0], [1.0], [3.0]])] * 6_000
    drawn = kmeans._first_centres(Groups.join(same, [2] * len(same)), Generator().manual_seed(0)).squeeze(2)
    for point in (0, 1, 3):
        assert abs(float((drawn[:, 0] == point).float().mean()) - 1 / 3) < 0.02
    second = drawn[drawn[:, 0] == 0, 1]
    assert abs(float((second == 3).float().mean()) - 0.9) < 0.02
    assert not (second == 0).any()
