from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import KNeighborsClassifier
from torch import Generator, Tensor

import oracles
from helpers.cases import make_batch
from rectifier import class_balanced_accuracy
from rectifier.evaluation.by_features import neighbours
from rectifier.evaluation.by_features.neighbours import KS, choose_k, neighbour_scores

LAYOUTS = [(4,), (2,) * 40, (2, 7, 3)]


def case(
    sizes: tuple[int, ...], seed: int = 0, *, ties: bool = False, missing: float = 0.2, shared: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    batch = make_batch(list(sizes), 40, seed, ties=ties, missing=missing, shared=shared, skew=1.0, dtype=torch.float32)
    queries = make_batch(list(sizes), 15, seed + 1, shared=shared, dtype=torch.float32).features
    queries[:5] = batch.features[:5]  # distance 0 too
    return queries, batch.features, batch.targets


@settings(max_examples=40)
@given(st.sampled_from(LAYOUTS), st.integers(0, 10**6), st.booleans(), st.booleans(), st.integers(1, 60))
def test_scores_equal_the_loop_version(sizes: tuple[int, ...], seed: int, ties: bool, shared: bool, k: int) -> None:
    queries, references, targets = case(sizes, seed, ties=ties, shared=shared, missing=seed % 2 * 0.2)
    found = neighbour_scores(queries[:6], references, targets, sizes, k)
    torch.testing.assert_close(found, oracles.neighbour_scores(queries[:6], references, targets, list(sizes), k))


@pytest.mark.parametrize("k", [1, 4, 7])
def test_the_majority_as_in_scikit_learn(k: int) -> None:
    for seed in range(5):
        queries, references, targets = case((5,), seed, missing=0.0)
        theirs = KNeighborsClassifier(k, algorithm="brute").fit(references.numpy(), targets[:, 0].numpy())
        scores = neighbour_scores(queries, references, targets, (5,), k)
        assert scores.argmax(1).tolist() == theirs.predict(queries.numpy()).tolist()
        shares = torch.from_numpy(theirs.predict_proba(queries.numpy())).float()
        torch.testing.assert_close(scores.exp(), (shares * k + 0.2)[:, : scores.shape[1]] / (k + 1))


def test_equal_distances_go_to_the_lower_number() -> None:
    references = torch.tensor([[1.0], [-1.0], [1.0], [-1.0]])
    for targets in ([0, 1, 1, 1], [1, 0, 0, 0]):
        scores = neighbour_scores(torch.zeros(1, 1), references, torch.tensor(targets)[:, None], (2,), 1)
        assert scores.argmax() == targets[0]


def test_equal_features_tie_wherever_they_stand() -> None:
    """Copies of one sample all over many references: the lowest numbers vote."""
    g = Generator().manual_seed(0)
    references = torch.randn(300, 24, generator=g)
    copies = torch.arange(3, 300, 11)
    references[copies] = references[3].clone()
    targets = torch.zeros(300, 1, dtype=torch.int64)
    targets[copies[:4]] = 1
    assert neighbour_scores(references[3:4], references, targets, (2,), 4).argmax() == 1
    assert neighbour_scores(references[3:4] + 0.5, references, targets, (2,), 300).argmax() == 0


def test_scores_are_log_shares_that_add_up_to_one() -> None:
    queries, references, targets = case((2, 7, 3))
    scores = neighbour_scores(queries, references, targets, (2, 7, 3), 5)
    assert scores.isfinite().all()
    assert scores.dtype == torch.float32
    for block in scores.exp().split([2, 7, 3], 1):
        torch.testing.assert_close(block.sum(1), torch.ones(15))


def test_references_without_a_label_do_not_vote_on_it() -> None:
    queries, references, targets = case((2, 3), missing=0.4)
    scores = neighbour_scores(queries, references, targets, (2, 3), 5)
    for a, block in enumerate(scores.split([2, 3], 1)):
        has = targets[:, a] >= 0
        alone = neighbour_scores(queries, references[has], targets[has, a : a + 1], (block.shape[1],), 5)
        torch.testing.assert_close(block, alone)
    missing = torch.full_like(targets, -1)
    torch.testing.assert_close(
        neighbour_scores(queries, references, missing, (2, 3), 5).exp(),
        torch.tensor([0.5, 0.5, *[1 / 3] * 3]).expand(15, 5),
    )


@pytest.mark.parametrize("shared", [True, False])
def test_chunks_and_blocks_change_nothing(shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    queries, references, targets = case((2, 5), ties=True, shared=shared)
    expected = neighbour_scores(queries, references, targets, (2, 5), 9)
    for chunk, block in ((1, 40), (4, 7), (15, 1), (100, 3)):
        monkeypatch.setattr(neighbours, "_BLOCK", block)
        monkeypatch.setattr(neighbours, "CHUNK", chunk)
        assert torch.equal(neighbour_scores(queries, references, targets, (2, 5), 9), expected)


def test_many_references_are_compared_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole numbers, so that many distances are equal: the nearest of all blocks are those of one."""
    g = Generator().manual_seed(0)
    references, queries = (torch.randint(-9, 10, (n, 2), generator=g).float() for n in (20_000, 6))
    targets = torch.randint(3, (20_000, 1), generator=g)
    compared: list[int] = []
    distances = neighbours.squared_distances
    monkeypatch.setattr(neighbours, "squared_distances", lambda x, y: compared.append(len(y)) or distances(x, y))
    found = neighbour_scores(queries, references, targets, (3,), 200)
    assert sum(compared) == 20_000
    assert max(compared) * 1024 * 4 <= 2**26  # bytes of a chunk's distances, however many references there are
    monkeypatch.setattr(neighbours, "_BLOCK", 20_000)
    assert torch.equal(neighbour_scores(queries, references, targets, (3,), 200), found)
    assert compared[-1] == 20_000


def test_labels_that_share_features_and_samples_are_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searched = []
    nearest = neighbours._nearest
    monkeypatch.setattr(neighbours, "_nearest", lambda *args: searched.append(1) or nearest(*args))
    queries, references, targets = case((2,) * 40, missing=0.0)
    neighbour_scores(queries, references, targets, (2,) * 40, 3)
    assert len(searched) == 1
    targets[0, 7] = -1
    neighbour_scores(queries, references, targets, (2,) * 40, 3)
    assert len(searched) == 3


# k


@pytest.mark.parametrize("sizes", LAYOUTS)
@pytest.mark.parametrize("shared", [True, False])
def test_k_is_the_best_of_all(sizes: tuple[int, ...], shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = set()
    for seed in range(6):
        queries, references, targets = case(sizes, seed, shared=shared)
        answers = make_batch(list(sizes), 15, seed + 1, missing=0.2, skew=1.0).targets
        ks = (5, 1, 3, 21)
        accuracy = {
            k: class_balanced_accuracy(neighbour_scores(queries, references, targets, sizes, k), answers, sizes).item()
            for k in ks
        }
        best = min(k for k in ks if accuracy[k] == max(accuracy.values()))
        assert choose_k(queries, answers, references, targets, sizes, ks) == best
        with monkeypatch.context() as patched:
            patched.setattr(neighbours, "CHUNK", 4)
            assert choose_k(queries, answers, references, targets, sizes, ks) == best
        chosen.add(best)
    assert len(chosen) > 1


def test_ties_go_to_the_smaller_k() -> None:
    references, targets = torch.arange(60.0)[:, None], torch.zeros(60, 1, dtype=torch.int64)
    assert choose_k(references[:5], targets[:5], references, targets, (2,)) == 1
    assert choose_k(references[:5], targets[:5], references, targets, (2,), ks=(9, 5, 7)) == 5
    assert KS[:3] == (1, 3, 5)
    assert KS[-1] == 49


def test_ties_of_votes_go_to_the_lower_class() -> None:
    references, targets = torch.tensor([[1.0], [-1.0]]), torch.tensor([[1], [0]])
    scores = neighbour_scores(torch.zeros(1, 1), references, targets, (2,), 2)
    assert scores[0, 0] == scores[0, 1]
    assert neighbour_scores(torch.zeros(1, 1), references, targets, (2,), 1).argmax() == 1  # the lower index is nearer
