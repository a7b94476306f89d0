from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Generator, Tensor

import oracles
from rectifier.losses.lmle import quintuplet_loss
from rectifier.samplers.lmle import clusters as rooms
from rectifier.samplers.lmle import kmeans
from rectifier.samplers.lmle.clusters import (
    NEVER,
    Clusters,
    balanced_anchors,
    cluster,
    cluster_label_scores,
    cluster_labels,
    cluster_scores,
    mine_quintuplets,
)


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
    with pytest.raises(ValueError, match=r"fitted_on to be a positive integer or None, but got 0"):
        cluster(features, torch.zeros(1200).long(), fitted_on=0)


def test_nobody_has_the_label() -> None:
    found = cluster(points(5), torch.full((5,), -1))
    assert found.centres.shape == (0, 3)
    assert found.class_of.dtype == torch.int64
    assert not cluster_scores(points(4), found, 3).any()


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
    scores = cluster_label_scores(features, found, [2, 5], nearest=3)
    by_label = [cluster_scores(own[0], found[0], 2, 3), cluster_scores(own[1], found[1], 5, 3)]
    assert torch.equal(scores, torch.cat(by_label, 1))


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
    expected = [oracles.quintuplet(features, assigned, class_of, a) for a in anchors.tolist()]
    found = mine_quintuplets(features, clusters, anchors)
    assert list(zip(*(part.tolist() for part in found), strict=True)) == expected
    # Enough candidates and every sample is drawn.
    drawn = mine_quintuplets(features, clusters, anchors, 3000, Generator().manual_seed(0))
    assert list(zip(*(part.tolist() for part in drawn), strict=True)) == expected


def test_what_does_not_exist_is_stood_in_for() -> None:
    """Class 0: clusters {0} and {1, 2}; class 1: one cluster {3, 4}; sample 5 has no label."""
    features = torch.tensor([[0.0], [1.0], [3.0], [10.0], [12.0], [0.5]])
    clusters = Clusters(torch.zeros(3, 1), torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1, 2, 2, -1]))
    for candidates in (None, 50):
        found = mine_quintuplets(features, clusters, torch.tensor([0, 3, 5]), candidates, Generator().manual_seed(0))
        rows = list(zip(*(part.tolist() for part in found), strict=True))
        assert rows == [(0, 0, 1, 2, 3, True), (3, 4, 4, 4, 2, True), (5, 5, 5, 5, 5, False)]
    alone = Clusters(torch.zeros(2, 1), torch.tensor([0, 0]), torch.tensor([0, 0, 1, 1, 1, 1]))
    assert not mine_quintuplets(features, alone, torch.arange(6)).valid.any()


def test_a_class_of_one_cluster_is_still_pushed_from_other_classes() -> None:
    features = torch.tensor([[1.0, 0.0], [0.9, 0.2], [0.9, -0.2]], requires_grad=True)
    clusters = Clusters(torch.zeros(2, 2), torch.tensor([0, 1]), torch.tensor([0, 0, 1]))
    found = mine_quintuplets(features.detach(), clusters, torch.tensor([0]))
    quintuplet_loss(*(features[part] for part in found[:5]), valid=found.valid).backward()
    assert features.grad[2].any()


@pytest.mark.parametrize("candidates", [1, 4])
def test_drawn_candidates_have_the_right_roles(candidates: int) -> None:
    features, clusters = points(400), random_clusters(400, 5, 3)
    anchors = torch.arange(400)
    found = mine_quintuplets(features, clusters, anchors, candidates, Generator().manual_seed(0))
    own_class = torch.where(clusters.assigned >= 0, clusters.class_of[clusters.assigned], -1)
    assert torch.equal(found.valid, own_class >= 0)
    a, near, nearer, farther, other = (part[found.valid] for part in found[:5])
    assert torch.equal(clusters.assigned[near], clusters.assigned[a])
    several = clusters.class_of.bincount()[own_class[a]] > 1
    for part in (nearer, farther):
        assert torch.equal(own_class[part], own_class[a])
        assert (clusters.assigned[part] != clusters.assigned[a])[several].all()
    assert (own_class[other] != own_class[a]).all()
    assert (own_class[other] >= 0).all()


def test_more_candidates_are_harder_and_draws_differ() -> None:
    features, clusters, anchors = points(400), random_clusters(400, 5, 3, missing=0.0), torch.arange(400)

    def distance(part: Tensor) -> float:
        return float((features[anchors] - features[part]).square().sum(1).mean())

    exact = mine_quintuplets(features, clusters, anchors)
    few, many = (mine_quintuplets(features, clusters, anchors, n, Generator().manual_seed(0)) for n in (2, 40))
    assert distance(few.near) < distance(many.near) < distance(exact.near)
    assert distance(few.other) > distance(many.other) > distance(exact.other)
    again, otherwise = (mine_quintuplets(features, clusters, anchors, 2, Generator().manual_seed(s)) for s in (0, 1))
    assert torch.equal(again.other, few.other)
    assert not torch.equal(otherwise.other, few.other)


def test_drawn_evenly() -> None:
    """One candidate: each sample of the role is as likely as any other, on both sides of what is left out."""
    clusters = Clusters(torch.zeros(4, 3), torch.tensor([0, 1, 1, 2]), torch.arange(8) // 2)
    anchors = torch.full((6000,), 3)  # in cluster 1, {2, 3}; its class's other cluster is {4, 5}
    found = mine_quintuplets(points(8), clusters, anchors, 1, Generator().manual_seed(0))
    for part, members in ((found.near, [2, 3]), (found.far_cluster_near, [4, 5]), (found.other, [0, 1, 6, 7])):
        counts = part.bincount(minlength=8)
        assert counts.nonzero().squeeze(1).tolist() == members
        torch.testing.assert_close(
            counts[members] / 6000, torch.full((len(members),), 1 / len(members)), atol=0.03, rtol=0
        )


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    features, clusters, anchors = points(100), random_clusters(100, 4, 3), torch.arange(0, 100, 3)
    expected, scores = mine_quintuplets(features, clusters, anchors), cluster_scores(features, clusters, 4, 3)
    monkeypatch.setattr(rooms, "CHUNK", 700)
    for got, want in zip(mine_quintuplets(features, clusters, anchors), expected, strict=True):
        assert torch.equal(got, want)
    assert torch.equal(cluster_scores(features, clusters, 4, 3), scores)


# Decision


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 5), st.sampled_from([None, 1, 2, 4, 100]))
def test_scores_equal_the_loop_version(seed: int, classes: int, nearest: int | None) -> None:
    queries, clusters = points(10, seed).double(), random_clusters(10, classes, seed)
    clusters = clusters._replace(centres=clusters.centres.double())
    found = cluster_scores(queries, clusters, classes + 1, nearest)  # the last class has no cluster
    class_of = clusters.class_of.tolist()
    expected = oracles.cluster_scores(queries, clusters.centres, class_of, classes + 1, nearest, NEVER)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


def test_the_nearest_centre_decides_where_one_is_asked() -> None:
    queries, clusters = points(50, 1), random_clusters(50, 5, 1)
    nearest = torch.cdist(queries, clusters.centres).argmin(1)
    assert torch.equal(cluster_scores(queries, clusters, 5, nearest=1).argmax(1), clusters.class_of[nearest])
    assert cluster_scores(queries, clusters, 5, nearest=1).isfinite().all()


def test_all_clusters_of_a_spread_class_count_against_it() -> None:
    """Nearest to the query is class 0, but another of its clusters is far; among two centres it is not seen."""
    clusters = Clusters(torch.tensor([[0.0], [9.0], [1.0]]), torch.tensor([0, 0, 1]), torch.zeros(0).long())
    query = torch.tensor([[0.2]])
    assert cluster_scores(query, clusters, 2).argmax() == 1
    assert cluster_scores(query, clusters, 2, nearest=2).argmax() == 0


def test_clusters_classify_what_they_were_made_from() -> None:
    g = Generator().manual_seed(0)
    group = torch.randint(0, 6, (300,), generator=g)
    features = torch.nn.functional.normalize(torch.eye(6)[group] + 0.1 * torch.randn(300, 6, generator=g))
    targets = group // 2
    features.requires_grad_()  # as they come from a network
    found = cluster(features, targets, size=50)
    assert not found.centres.requires_grad
    assert (cluster_scores(features, found, 3, nearest=2).argmax(1) == targets).float().mean() > 0.95


def test_wrong_input() -> None:
    features, targets = points(6), torch.arange(6) % 2
    found = cluster(features, targets)
    with pytest.raises(ValueError, match=r"size to be a positive integer, but got 0"):
        cluster(features, targets, size=0)
    with pytest.raises(ValueError, match=r"features to be as long as targets \(5 samples\), but got 6"):
        cluster(features, targets[:5])
    with pytest.raises(ValueError, match=r"features to be floating point of shape \(N, D\)"):
        cluster(features[:, None], targets)
    with pytest.raises(ValueError, match=r"features and targets to be of shapes"):
        cluster_labels(torch.zeros(6, 3, 2), targets[:, None])
    for wrong, what in ((features.long(), "floating point"), (features[:5], "as long as")):  # as for one label
        with pytest.raises(ValueError, match=what):
            cluster_labels(wrong, targets[:, None])
    with pytest.raises(ValueError, match=r"count to be a positive integer"):
        balanced_anchors(targets, 0)
    with pytest.raises(ValueError, match=r"targets to be of at least one sample that has the label"):
        balanced_anchors(targets - 2, 3)
    with pytest.raises(ValueError, match=r"candidates to be a positive integer or None"):
        mine_quintuplets(features, found, torch.arange(2), 0)
    with pytest.raises(ValueError, match=r"anchors to be int64 sample numbers \(R,\)"):
        mine_quintuplets(features, found, torch.ones(2))
    with pytest.raises(ValueError, match=r"features to be as long as clusters.assigned"):
        mine_quintuplets(features[:4], found, torch.arange(2))
    with pytest.raises(ValueError, match=r"(?s)classes to be at least 2.*nearest to be a positive integer or None"):
        cluster_scores(features, found, 1, nearest=0)
    with pytest.raises(ValueError, match=r"clusters to be one for each of the 2 labels, but got 1"):
        cluster_label_scores(features, [found], [2, 2])
