from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Generator, Tensor
from torch.nn.functional import normalize

import oracles
from rectifier import LabelSpace, class_balanced_accuracy
from rectifier.evaluation.by_features import DECISIONS, ClusterDecision, Decision, NeighbourDecision, SVMDecision
from rectifier.evaluation.by_features.clusters import NEARESTS, NEVER, cluster_label_scores
from rectifier.evaluation.by_features.neighbours import KS, choose_k, neighbour_scores
from rectifier.labels.columns import argmax
from rectifier.samplers.lmle.clusters import cluster_labels

LAYOUTS = [[4], [2] * 40, [2, 7, 3]]
every = pytest.mark.parametrize("name", list(DECISIONS))


def case(
    sizes: list[int], shared: bool = True, *, samples: int = 120, noise: float = 0.5, missing: float = 0.1
) -> tuple[Tensor, Tensor, LabelSpace]:
    """Samples around a direction for each class of each label, of any length, frequent classes first."""
    g = Generator().manual_seed(len(sizes))
    targets = (torch.rand(samples, len(sizes), generator=g) ** 1.5 * torch.tensor(sizes)).long()
    centres = [torch.randn(size, 12, generator=g) for size in sizes]
    features = torch.stack([centre[targets[:, a]] for a, centre in enumerate(centres)], 1)
    features = features + noise * torch.randn(features.shape, generator=g)
    features = features * (torch.rand(samples, 1, 1, generator=g) + 0.5)
    targets[torch.rand(targets.shape, generator=g) < missing] = -1
    return (features.mean(1) if shared else features), targets, LabelSpace.from_sizes(sizes)


def fitted(name: str, sizes: list[int], shared: bool = True) -> tuple[Decision, Tensor, Tensor]:
    """A decision fitted on 80 samples, and 20 it has not seen."""
    features, targets, space = case(sizes, shared)
    found = DECISIONS[name].fit(features[:80], targets[:80], space, features[80:100], targets[80:100])
    return found, features[100:], targets[100:]


@every
@pytest.mark.parametrize("sizes", LAYOUTS)
@pytest.mark.parametrize("shared", [True, False])
def test_saved_and_read_back_it_decides_the_same(name: str, sizes: list[int], shared: bool, tmp_path: Path) -> None:
    found, queries, _ = fitted(name, sizes, shared)
    scores = found(queries)
    assert scores.shape == (20, sum(sizes))
    assert scores.dtype == torch.float32
    assert scores.isfinite().all()
    assert not scores.requires_grad
    save_file(found.state(), tmp_path / "decision.safetensors")
    again = DECISIONS[name].from_state(load_file(tmp_path / "decision.safetensors"))
    assert torch.equal(again(queries), scores)
    assert again.sizes == found.sizes
    assert again.state().keys() == found.state().keys()
    assert torch.equal(found(queries.double().requires_grad_()), scores)


@every
@pytest.mark.parametrize("shared", [True, False])
def test_what_can_be_told_apart_is(name: str, shared: bool) -> None:
    features, targets, space = case([3, 2], shared, noise=0.05, missing=0.0)
    parts = features[:80], targets[:80], space, features[80:100], targets[80:100]
    found = DECISIONS[name].fit(*parts)
    assert class_balanced_accuracy(found(features[100:]), targets[100:], space) > 0.95
    mixed = DECISIONS[name].fit(features[:80], targets[:80].flip(0), space, features[80:100], targets[80:100])
    assert class_balanced_accuracy(mixed(features[100:]), targets[100:], space) < 0.8


@pytest.mark.parametrize("sizes", LAYOUTS)
@pytest.mark.parametrize("unit", [True, False])
def test_neighbours_are_the_direct_call(sizes: list[int], unit: bool) -> None:
    features, targets, space = case(sizes)
    found = NeighbourDecision.fit(features[:80], targets[:80], space, features[80:], targets[80:], unit=unit)
    ready = normalize(features, dim=-1).half() if unit else features
    k = choose_k(ready[80:], targets[80:], ready[:80], targets[:80], space.sizes, KS)
    assert found.k == k
    expected = neighbour_scores(ready[80:], ready[:80], targets[:80], space.sizes, k)
    assert torch.equal(found(features[80:]), expected)
    slow = oracles.neighbour_scores(ready[80:90].double(), ready[:80].double(), targets[:80], sizes, k)
    torch.testing.assert_close(found(features[80:90]), slow)
    assert found.references.dtype == (torch.float16 if unit else torch.float32)
    assert found.targets.dtype == torch.int8
    lengths = torch.linspace(0.5, 2, 40)[:, None]
    assert torch.equal(found(features[80:] * lengths), expected) == unit


def test_float16_changes_hardly_a_decision() -> None:
    features, targets, space = case([2, 7, 3], samples=2000, noise=2.0)
    found = NeighbourDecision.fit(features[:1500], targets[:1500], space, features[1500:], targets[1500:])
    exact = normalize(features, dim=-1)
    scores = neighbour_scores(exact[1500:], exact[:1500], targets[:1500], space.sizes, found.k)
    same = argmax(found(features[1500:]), space.sizes) == argmax(scores, space.sizes)
    assert same.float().mean() > 0.99


def partly_mislabelled() -> tuple[Tensor, Tensor, LabelSpace, Tensor, Tensor]:
    """Training samples, a quarter of them with another's label, and validation, where what fits those fails."""
    features, targets, space = case([3], samples=400)
    trained_on = targets[:300].clone()
    trained_on[::4] = trained_on[::4].roll(1, 0)
    return features[:300], trained_on, space, features[300:], targets[300:]


def test_k_is_chosen_on_validation() -> None:
    features, trained_on, space, others, answers = parts = partly_mislabelled()
    found = NeighbourDecision.fit(*parts)
    assert found.k in KS
    by_k = [class_balanced_accuracy(NeighbourDecision.fit(*parts, ks=(k,))(others), answers) for k in KS]
    assert found.k == KS[by_k.index(max(by_k))]
    assert len(set(map(float, by_k))) > 3
    assert NeighbourDecision.fit(features, trained_on, space, features, trained_on).k == 1 < found.k


@pytest.mark.parametrize("classes", [127, 128, 129, 300])
def test_neighbours_know_every_class_however_many_there_are(classes: int) -> None:
    features = torch.randn(classes, 12, generator=Generator().manual_seed(0))
    targets, space = torch.arange(classes)[:, None], LabelSpace.from_sizes([classes])
    found = NeighbourDecision.fit(features, targets, space, features, targets)
    assert torch.equal(found(features).argmax(1), targets[:, 0])
    assert torch.equal(found.targets.long(), targets)


@pytest.mark.parametrize("sizes", LAYOUTS)
@pytest.mark.parametrize("shared", [True, False])
def test_clusters_are_the_direct_call(sizes: list[int], shared: bool) -> None:
    features, targets, space = case(sizes, shared)
    found = ClusterDecision.fit(features[:80], targets[:80], space, features[80:], targets[80:], size=8, seed=2)
    unit = normalize(features, dim=-1)
    clusters = cluster_labels(unit[:80], targets[:80], size=8, seed=2)  # so few samples are all looked at
    scores = cluster_label_scores(unit[80:], clusters, space.sizes, found.nearest)
    assert torch.equal(found(features[80:]), scores)
    assert found.clusters == tuple(len(own.class_of) for own in clusters)
    a = len(sizes) - 1
    own, class_of = (unit if shared else unit[:, a]), clusters[a].class_of.tolist()
    slow = oracles.cluster_scores(own[80:], clusters[a].centres, class_of, sizes[a], found.nearest, NEVER)
    torch.testing.assert_close(found(features[80:])[:, -sizes[a] :], torch.tensor(slow), atol=1e-5, rtol=1e-5)


def test_nearest_is_chosen_on_validation() -> None:
    features, trained_on, space, others, answers = parts = partly_mislabelled()
    found = ClusterDecision.fit(*parts, size=3)
    most = found.clusters[0]
    assert most > max(NEARESTS)
    state = found.state()
    tried = [*NEARESTS, most]
    accuracy = []
    for nearest in tried:
        other = ClusterDecision.from_state(state | {"nearest": torch.tensor(nearest)})
        accuracy.append(float(class_balanced_accuracy(other(others), answers)))
    assert found.nearest == tried[accuracy.index(max(accuracy))]
    assert len(set(accuracy)) > 3
    assert ClusterDecision.fit(features, trained_on, space, features, trained_on, size=3).nearest == 1 < found.nearest
    one = ClusterDecision.fit(*parts, size=3, nearests=(1,))
    assert one.nearest in (1, most)
    sparse = ClusterDecision.fit(*parts)
    assert sparse.nearest <= sum(sparse.clusters)


@pytest.mark.parametrize("nearests", [(2, 3), (3, 2)])
def test_the_smallest_of_equally_good_numbers_of_centres_is_chosen(nearests: tuple[int, ...]) -> None:
    features, targets, space = case([2], noise=0.01, missing=0.0)
    found = ClusterDecision.fit(features, targets, space, features, targets, size=10, nearests=nearests)
    assert found.nearest == 2


@pytest.mark.parametrize("sizes", LAYOUTS)
@pytest.mark.parametrize("shared", [True, False])
def test_machines_are_linear_and_contain_the_scaling(sizes: list[int], shared: bool) -> None:
    features, targets, space = case(sizes, shared)
    found = SVMDecision.fit(features[:80], targets[:80], space, features[80:], targets[80:], strength=0.3)
    scores = found(features[80:])
    for a in (0, len(sizes) - 1):
        column = space.offsets[a]
        x = features[80] if shared else features[80, a]
        by_hand = sum(float(w * v) for w, v in zip(found.weight[column], x, strict=True)) + float(found.bias[column])
        assert scores[0, column].item() == pytest.approx(by_hand, abs=1e-4)
    shifted = SVMDecision.fit(100 * features[:80] + 7, targets[:80], space, features[80:], targets[80:], strength=0.3)
    torch.testing.assert_close(shifted(100 * features[80:] + 7), scores, atol=0.05, rtol=0.05)  # scaling is inside


@every
def test_labels_and_classes_without_samples_are_scored(name: str) -> None:
    features, targets, _ = case([3], missing=0.0)
    space = LabelSpace.from_sizes([5, 2, 2])
    several = torch.cat([targets, torch.full_like(targets, -1), torch.zeros_like(targets)], 1)
    found = DECISIONS[name].fit(features, several, space, features[:50], several[:50])
    scores = found(features)
    assert scores.isfinite().all()
    assert scores[:, :5].argmax(1).max() < 3
    assert (scores[:, 5] == scores[:, 6]).all()
    assert (scores[:, 7] > scores[:, 8]).all()


@every
def test_wrong_input(name: str) -> None:
    features, targets, space = case([2, 3])
    decision = DECISIONS[name]
    with pytest.raises(ValueError, match=r"features and validation_features to be both of shape"):
        decision.fit(features, targets, space, features[:, :3], targets)
    with pytest.raises(ValueError, match=r"features and validation_features to be both of shape"):
        decision.fit(features[:, None], targets, space, features[:, None], targets)
    with pytest.raises(ValueError, match=r"features and validation_features to be floating point"):
        decision.fit(features.long(), targets, space, features, targets)
    with pytest.raises(ValueError, match=r"validation_features to be as long as validation_targets \(9 samples\)"):
        decision.fit(features, targets, space, features, targets[:9])
    with pytest.raises(ValueError, match=r"validation_targets to be of at least one sample that has a label, but got"):
        decision.fit(features, targets, space, features, targets * 0 - 1)
    with pytest.raises(ValueError, match=r"targets of label 'label0' to be below 2"):
        decision.fit(features, targets + 2, space, features, targets)
    for wrong in (torch.nan, torch.inf):
        broken = torch.where(torch.eye(120, 1).bool(), wrong, features)
        with pytest.raises(ValueError, match=r"validation_features to be finite, but got NaN or infinity"):
            decision.fit(features, targets, space, broken, targets)
    found = decision.fit(features, targets, space, features, targets)
    for wrong in (features[:, :3], features[:, None], features.long()):
        with pytest.raises(ValueError, match=r"features to be floating point of shape \(N, 12\), as in fit"):
            found(wrong)
    state = found.state()
    del state["sizes"]
    with pytest.raises(ValueError, match=rf"the state of {decision.__name__} to be of sizes, shape, .*but got shape"):
        decision.from_state(state)


def test_wrong_options() -> None:
    features, targets, space = case([2, 3])
    parts = features, targets, space, features, targets
    with pytest.raises(ValueError, match=r"nearests to be positive integers, but got \(0,\)"):
        ClusterDecision.fit(*parts, nearests=(0,))
    with pytest.raises(ValueError, match=r"strength to be a positive number"):
        SVMDecision.fit(*parts, strength=0)
    for ks in ((), (1, 0)):
        with pytest.raises(ValueError, match=r"ks to be positive integers, at least one"):
            NeighbourDecision.fit(*parts, ks=ks)
