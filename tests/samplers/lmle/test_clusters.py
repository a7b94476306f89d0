from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Generator

import oracles
from helpers.clusters import cluster, points, random_clusters
from rectifier.losses.lmle import quintuplet_loss
from rectifier.samplers.lmle import clusters as rooms
from rectifier.samplers.lmle import kmeans
from rectifier.samplers.lmle.clusters import Clusters, balanced_anchors, cluster_labels, mine_quintuplets

# k-means


def test_groups_far_apart_are_found() -> None:
    """Class 0 in three groups, class 1 in one, mixed up with missing labels; in any order of drawing."""
    g = Generator().manual_seed(0)
    group = torch.randint(0, 4, (200,), generator=g)
    features = torch.eye(4)[group] + 0.02 * torch.randn(200, 4, generator=g)
    targets = (group == 3).long()
    targets[::10] = -1
    for seed in range(10):
        found = cluster(features, targets, size=int((targets == 0).sum()) // 3, seed=seed)
        assert found.class_of.tolist() == [0, 0, 0, 1]
        labelled = targets >= 0
        assert (found.assigned[~labelled] == -1).all()
        assert len(torch.stack([group, found.assigned])[:, labelled].unique(dim=1).T) == 4  # one to one
        torch.testing.assert_close(
            found.centres[found.assigned[labelled]], torch.eye(4)[group[labelled]], atol=0.05, rtol=0
        )


@pytest.mark.parametrize(("samples", "size", "expected"), [(10, 200, 1), (299, 200, 1), (301, 200, 2), (100, 10, 10)])
def test_clusters_of_roughly_the_size(samples: int, size: int, expected: int) -> None:
    found = cluster(points(samples), torch.full((samples,), 2), size=size)
    assert found.class_of.tolist() == [2] * expected
    assert found.assigned.unique().tolist() == list(range(expected))


def test_clusters_keep_to_classes_and_centres_are_means() -> None:
    features, targets = points(300, 1), (torch.rand(300, generator=Generator().manual_seed(1)) * 4).long() - 1
    found = cluster(features, targets, size=20)
    labelled = targets >= 0
    assert torch.equal(found.class_of[found.assigned[labelled]], targets[labelled])
    assert torch.equal(found.class_of, found.class_of.sort().values)
    assert torch.equal(found.assigned < 0, ~labelled)
    for j in range(len(found.class_of)):
        torch.testing.assert_close(found.centres[j], features[found.assigned == j].mean(0))


def test_seed_and_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    features, targets = points(300, 1), torch.arange(300) % 2
    first, same, other = (cluster(features, targets, size=15, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first.assigned, same.assigned)
    assert torch.equal(first.centres, same.centres)
    assert not torch.equal(first.assigned, other.assigned)
    monkeypatch.setattr(kmeans, "CHUNK", 50)
    assert torch.equal(cluster(features, targets, size=15, seed=1).assigned, first.assigned)


def test_equal_samples_are_one_cluster() -> None:
    found = cluster(torch.ones(50, 3), torch.zeros(50, dtype=torch.int64), size=5)
    assert found.class_of.tolist() == [0]
    assert not found.assigned.any()


def test_fitted_on_some_samples() -> None:
    """Groups far apart are found from a few samples of each; every sample is assigned, centres are means of all."""
    g = Generator().manual_seed(0)
    group = torch.randint(0, 6, (1200,), generator=g)
    features = torch.eye(6)[group] + 0.02 * torch.randn(1200, 6, generator=g)
    found = cluster(features, torch.zeros(1200).long(), size=200, fitted_on=30)
    whole = cluster(features, torch.zeros(1200).long(), size=200)
    assert len(torch.stack([group, found.assigned]).unique(dim=1).T) == 6  # one to one
    for j in range(6):
        torch.testing.assert_close(found.centres[j], features[found.assigned == j].mean(0))
    many, few = (cluster(features, torch.arange(1200) % 2, size=30, fitted_on=n) for n in (30, 2))
    exact = cluster(features, torch.arange(1200) % 2, size=30)
    assert torch.equal(many.assigned, exact.assigned)  # all samples are as many as that
    assert not torch.equal(few.assigned, exact.assigned)
    assert whole.class_of.tolist() == found.class_of.tolist()


def test_no_sample_has_the_label() -> None:
    found = cluster(points(5), torch.full((5,), -1))
    assert found.centres.shape == (0, 3)
    assert found.class_of.dtype == torch.int64


@pytest.mark.parametrize("numbers", [1, 2**26])  # clustered label by label, and all together
@pytest.mark.parametrize("shared", [True, False])
def test_several_labels(shared: bool, numbers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms, "NUMBERS", numbers)
    g = Generator().manual_seed(0)
    features = points(60) if shared else torch.randn(60, 2, 3, generator=g)
    targets = torch.stack([torch.arange(60) % 2, torch.arange(60) % 3 - 1], 1)
    found = cluster_labels(features, targets, size=10, seed=4)
    own = [features if shared else features[:, a] for a in range(2)]
    for a, clusters in enumerate(found):
        assert clusters.class_of.tolist() == ([0, 0, 0, 1, 1, 1], [0, 0, 1, 1])[a]
        known = targets[:, a] >= 0
        assert torch.equal(clusters.assigned >= 0, known)
        assert torch.equal(clusters.class_of[clusters.assigned[known]], targets[known, a])
        for j in range(len(clusters.class_of)):
            torch.testing.assert_close(clusters.centres[j], own[a][clusters.assigned == j].mean(0))


# Anchors


def test_anchors_are_balanced_and_each_sample_comes_once_before_any_comes_twice() -> None:
    targets = torch.tensor([5] * 50 + [2] * 3 + [0] * 10 + [-1] * 7)
    drawn = balanced_anchors(targets, 30, Generator().manual_seed(0))
    assert targets[drawn].bincount().tolist() == [10, 0, 10, 0, 0, 10]
    times = drawn.bincount(minlength=len(targets))
    assert times[:50].max() == 1
    assert sorted(times[50:53].tolist()) == [3, 3, 4]
    assert times[53:63].tolist() == [1] * 10
    in_turn = [len(set(three)) for three in targets[drawn].view(10, 3).tolist()]
    assert set(in_turn) != {3}  # in random order, not class after class


def test_anchors_that_do_not_go_round_are_shared_out_by_chance() -> None:
    targets, g = torch.arange(30) % 3, Generator().manual_seed(0)
    counts = torch.stack([targets[balanced_anchors(targets, 4, g)].bincount(minlength=3) for _ in range(300)])
    assert (counts.sum(1) == 4).all()
    assert counts.min() == 1
    torch.testing.assert_close(counts.double().mean(0), torch.full((3,), 4 / 3).double(), atol=0.1, rtol=0)
    same = [balanced_anchors(targets, 9, Generator().manual_seed(seed)).tolist() for seed in (1, 1, 2)]
    assert same[0] == same[1] != same[2]


# Quintuplets


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(2, 30), st.integers(1, 4), st.booleans())
def test_quintuplets_equal_the_loop_version(seed: int, samples: int, classes: int, ties: bool) -> None:
    features, clusters = points(samples, seed, ties), random_clusters(samples, classes, seed)
    anchors = torch.randint(0, samples, (12,), generator=Generator().manual_seed(seed))
    assigned, class_of = clusters.assigned.tolist(), clusters.class_of.tolist()
    expected = [list(oracles.quintuplet(features, assigned, class_of, a)[:5]) for a in anchors.tolist()]
    assert mine_quintuplets(features, clusters, anchors).T.tolist() == expected


def test_what_does_not_exist_is_stood_in_for() -> None:
    """Class 0: clusters {0} and {1, 2}; class 1: one cluster {3, 4}; sample 5 has no label."""
    features = torch.tensor([[0.0], [1.0], [3.0], [10.0], [12.0], [0.5]])
    clusters = Clusters(torch.zeros(3, 1), torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1, 2, 2, -1]))
    found = mine_quintuplets(features, clusters, torch.tensor([0, 3, 5]))
    assert found.T.tolist() == [[0, 0, 1, 2, 3], [3, 4, 4, 4, 2], [5, 5, 5, 5, 5]]
    alone = Clusters(torch.zeros(2, 1), torch.tensor([0, 0]), torch.tensor([0, 0, 1, 1, 1, 1]))
    assert (mine_quintuplets(features, alone, torch.arange(6)) == torch.arange(6)).all()


def test_a_class_of_one_cluster_is_still_pushed_from_other_classes() -> None:
    features = torch.tensor([[1.0, 0.0], [0.9, 0.2], [0.9, -0.2]], requires_grad=True)
    clusters = Clusters(torch.zeros(2, 2), torch.tensor([0, 1]), torch.tensor([0, 0, 1]))
    found = mine_quintuplets(features.detach(), clusters, torch.tensor([0]))
    quintuplet_loss(*(features[part] for part in found)).backward()
    assert features.grad[2].any()


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    features, clusters, anchors = points(100), random_clusters(100, 4, 3), torch.arange(0, 100, 3)
    expected = mine_quintuplets(features, clusters, anchors)
    monkeypatch.setattr(rooms, "CHUNK", 700)
    assert torch.equal(mine_quintuplets(features, clusters, anchors), expected)


def test_wrong_size() -> None:
    with pytest.raises(ValueError, match=r"size to be a positive integer, but got 0"):
        cluster(points(6), torch.arange(6) % 2, size=0)
