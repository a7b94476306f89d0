from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Generator

import oracles
from helpers.clusters import cluster, points, random_clusters
from rectifier.evaluation.by_features import clusters as decision
from rectifier.evaluation.by_features.clusters import NEVER, cluster_label_scores, cluster_scores
from rectifier.samplers.lmle.clusters import Clusters, cluster_labels


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 5), st.sampled_from([1, 2, 4, 100]))
def test_scores_equal_the_loop_version(seed: int, classes: int, nearest: int) -> None:
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
    assert cluster_scores(query, clusters, 2, nearest=3).argmax() == 1
    assert cluster_scores(query, clusters, 2, nearest=2).argmax() == 0


def test_clusters_classify_what_they_were_made_from() -> None:
    g = Generator().manual_seed(0)
    group = torch.randint(0, 6, (300,), generator=g)
    features = torch.nn.functional.normalize(torch.eye(6)[group] + 0.1 * torch.randn(300, 6, generator=g))
    targets = group // 2
    features.requires_grad_()  # like the output of a network
    found = cluster(features, targets, size=50)
    assert not found.centres.requires_grad
    assert (cluster_scores(features, found, 3, nearest=2).argmax(1) == targets).float().mean() > 0.95


@pytest.mark.parametrize("shared", [True, False])
def test_labels_are_scored_one_by_one(shared: bool) -> None:
    features = points(60) if shared else torch.randn(60, 2, 3, generator=Generator().manual_seed(0))
    targets = torch.stack([torch.arange(60) % 2, torch.arange(60) % 3 - 1], 1)
    found = cluster_labels(features, targets, size=10, seed=4)
    own = [features if shared else features[:, a] for a in range(2)]
    by_label = [cluster_scores(own[0], found[0], 2, 3), cluster_scores(own[1], found[1], 5, 3)]
    assert torch.equal(cluster_label_scores(features, found, (2, 5), nearest=3), torch.cat(by_label, 1))


def test_a_label_without_samples_scores_0() -> None:
    assert not cluster_scores(points(4), cluster(points(5), torch.full((5,), -1)), 3, nearest=1).any()


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    features, clusters = points(100), random_clusters(100, 4, 3)
    scores = cluster_scores(features, clusters, 4, 3)
    monkeypatch.setattr(decision, "CHUNK", 700)
    assert torch.equal(cluster_scores(features, clusters, 4, 3), scores)
