from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Generator, Tensor
from torch.nn.functional import normalize

import oracles
from helpers.cases import make_batch
from rectifier.data.loader import Loader
from rectifier.data.readers.shapes import shapes
from rectifier.samplers import UniformSampler
from rectifier.samplers.lmle.clusters import balanced_anchors, cluster_labels
from rectifier.samplers.lmle.quintuplets import FITTED_ON, QuintupletSampler, Round

LAYOUTS = [([4], 7), ([2] * 40, 51), ([2, 7, 3], 8)]


def case(sizes: list[int], samples: int = 80, shared: bool = True, missing: float = 0.2) -> tuple[Tensor, Tensor]:
    batch = make_batch(sizes, samples, seed=1, shared=shared, missing=missing, skew=1.3, dtype=torch.float32)
    return batch.features, batch.targets


def mined(sizes: list[int], rows: int, *, shared: bool = True, samples: int = 80, **options: Any) -> QuintupletSampler:
    features, targets = case(sizes, samples, shared)
    sampler = QuintupletSampler(targets, sizes, quintuplets=rows, **{"batches": 6, "size": 8} | options)
    sampler.mine(features)
    return sampler


def slow_rows(sampler: QuintupletSampler, features: Tensor, targets: Tensor, anchors: Tensor) -> list[list[list[int]]]:
    """The quintuplets of anchors ``(batches, R)``, found among all samples one by one."""
    labels = targets.shape[1]
    half = normalize(features, dim=-1).half().float()
    own = [half if half.dim() == 2 else half[:, a] for a in range(labels)]
    found = cluster_labels(half, targets, sampler.size, sampler.seed, FITTED_ON)
    rows = []
    for batch in anchors.tolist():
        rows.append([])
        for r, i in enumerate(batch):
            a = r % labels
            clusters = found[a].assigned.tolist(), found[a].class_of.tolist()
            rows[-1].append(list(oracles.quintuplet(own[a], *clusters, i)[:5]))
    return rows


# Before the first round


@pytest.mark.parametrize("batches", [1, 3, 10])
def test_first_batches_are_the_order_of_the_uniform_sampler(batches: int) -> None:
    _, targets = case([2, 3])
    sampler, uniform = (
        QuintupletSampler(targets, [2, 3], quintuplets=5, batches=batches, seed=4),
        UniformSampler(80, seed=4),
    )
    for epoch in (0, 3):
        sampler.set_epoch(epoch)
        uniform.set_epoch(epoch)
        plan = sampler.plan()
        assert plan.shape == (batches, 25)
        order = plan.flatten()
        assert torch.equal(order[:80], uniform.plan()[: len(order)])
        passes = [order[i : i + 80].tolist() for i in range(0, len(order), 80)]
        assert all(len(set(one)) == len(one) for one in passes)  # a sample comes again when all have come
        assert len({*map(tuple, passes)}) == len(passes)


def test_length() -> None:
    _, targets = case([2, 3])
    assert len(QuintupletSampler(targets, [2, 3], quintuplets=5)) == 80 // 25
    assert len(QuintupletSampler(targets, [2, 3], quintuplets=50)) == 1
    sampler = QuintupletSampler(targets, [2, 3], quintuplets=5, batches=7, num_replicas=2, rank=1)
    assert len(sampler) == 3
    assert len(list(sampler)) == 3


# Mined


@pytest.mark.parametrize(("sizes", "rows"), LAYOUTS)
@pytest.mark.parametrize("shared", [True, False])
def test_rows_are_the_quintuplets_of_their_label(sizes: list[int], rows: int, shared: bool) -> None:
    features, targets = case(sizes, shared=shared)
    sampler = mined(sizes, rows, shared=shared)
    blocks = sampler.plan().view(6, 5, rows)
    assert blocks.transpose(1, 2).tolist() == slow_rows(sampler, features, targets, blocks[:, 0])


@pytest.mark.parametrize(("sizes", "rows"), LAYOUTS)
def test_anchors_of_a_label_are_balanced_over_the_epoch(sizes: list[int], rows: int) -> None:
    _, targets = case(sizes)
    anchors = mined(sizes, rows, batches=20).plan().view(20, 5, rows)[:, 0]
    for a, size in enumerate(sizes):
        own = targets[anchors[:, a :: len(sizes)].flatten(), a]
        counts = own.bincount(minlength=size)[targets[:, a][targets[:, a] >= 0].unique()]
        assert own.min() >= 0
        assert counts.max() - counts.min() <= 1


def test_a_pool_of_candidates() -> None:
    """Fewer candidates than samples: the roles are right, each epoch has another pool, and a larger one is harder."""
    features, targets = case([2, 3], 600)
    unit = normalize(features, dim=-1)
    distances = []
    for candidates in (20, 200, 600):
        sampler = mined([2, 3], 10, samples=600, candidates=candidates, size=40)
        state = sampler.state()
        blocks = sampler.plan().view(6, 5, 10)
        distances.append((unit[blocks[:, 0]] - unit[blocks[:, 4]]).square().sum(-1).mean())
        for a in range(2):
            anchor, near, nearer, farther, other = (targets[block, a] for block in blocks[:, :, a::2].unbind(1))
            assert (near == anchor).all()
            assert (nearer == anchor).all()
            assert (farther == anchor).all()
            assert ((other != anchor) & (other >= 0)).all()
            clusters = state["assigned"][blocks[:, :, a::2], a]
            assert (clusters[:, 0] == clusters[:, 1]).all()
        sampler.set_epoch(1)
        assert not torch.equal(sampler.plan().view(6, 5, 10), blocks)
    assert distances[0] > distances[1] > distances[2]


def test_the_pool_holds_anchors_and_candidates_of_every_class_alike() -> None:
    own = torch.tensor([0] * 900 + [1] * 50 + [-1] * 50)
    sampler = QuintupletSampler(own, quintuplets=3, candidates=80)
    anchors = balanced_anchors(own, 6, Generator().manual_seed(1))
    pool = sampler._pool(own, anchors, Generator().manual_seed(0))
    assert set(anchors.tolist()) <= set(pool.tolist())
    assert torch.equal(pool, pool.sort().values)
    counts = own[pool].bincount().tolist()
    assert len(counts) == 2
    assert all(40 <= count <= 43 for count in counts)


def test_what_has_no_quintuplet_repeats_its_anchor() -> None:
    """Label 0 has one class, no sample has label 1, label 2 is as it should be."""
    targets = torch.stack([torch.zeros(60).long(), torch.full((60,), -1), torch.arange(60) % 2], 1)
    sampler = QuintupletSampler(targets, [2, 2, 2], quintuplets=7, batches=4)
    sampler.mine(torch.randn(60, 4, generator=Generator().manual_seed(0)))
    blocks = sampler.plan().view(4, 5, 7)
    for a in (0, 1):
        assert (blocks[:, :, a::3] == blocks[:, :1, a::3]).all()
    assert (targets[blocks[:, 4, 2::3], 2] != targets[blocks[:, 0, 2::3], 2]).all()


def test_length_of_features_does_not_matter_and_the_features_do() -> None:
    features, targets = case([2, 3], missing=0.0)
    plans = []
    for given in (features, features * (torch.rand(80, 1) + 0.5), features.flip(0)):
        sampler = QuintupletSampler(targets, [2, 3], quintuplets=6, batches=4)
        before = sampler.plan()
        sampler.mine(given.requires_grad_())
        plans.append(sampler.plan())
        assert not torch.equal(before, plans[-1])
    same = (plans[0] == plans[1]).float().mean()
    assert same > 0.97  # the last bits of a float16 may differ
    assert (plans[0] == plans[2]).float().mean() < 0.9


# Resuming


def test_a_stopped_run_resumes_exactly(tmp_path: Any) -> None:
    from safetensors.torch import load_file, save_file

    sampler = mined([2, 7, 3], 8, shared=False, samples=300, candidates=50, seed=3)
    save_file(sampler.state(), tmp_path / "round.safetensors")
    _, targets = case([2, 7, 3], 300, shared=False)
    other = QuintupletSampler(targets, [2, 7, 3], quintuplets=8, batches=6, size=8, candidates=50, seed=3)
    other.load(load_file(tmp_path / "round.safetensors"))
    for epoch in (0, 5):
        sampler.set_epoch(epoch)
        other.set_epoch(epoch)
        assert torch.equal(sampler.plan(), other.plan())
    assert other.state().keys() == set(Round._fields)
    assert other.state()["features"].dtype == torch.float16


def test_a_state_of_no_round() -> None:
    sampler = mined([2, 3], 5)
    fresh = QuintupletSampler(case([2, 3])[1], [2, 3], quintuplets=5, batches=6)
    assert fresh.state() == {}
    assert not torch.equal(sampler.plan(), fresh.plan())
    sampler.load(fresh.state())
    assert torch.equal(sampler.plan(), fresh.plan())


def test_the_loader_takes_it_and_follows_its_rounds() -> None:
    data = shapes(samples=60, size=16, ratio=4)
    train = data.part("train")
    sampler = QuintupletSampler(train.targets, data.space, quintuplets=len(data.space), batches=3)
    loader = Loader(data, "train", sampler=sampler)
    assert len(loader) == 3
    first = loader.positions(0)
    sampler.mine(torch.randn(len(train.targets), 4, generator=Generator().manual_seed(0)))
    assert not torch.equal(loader.positions(0), first)  # though the epoch is the same
    expected = sampler.plan()
    batches = list(loader)
    assert torch.equal(torch.stack([batch.positions for batch in batches]), expected)
    assert torch.equal(batches[1].targets, train.targets[expected[1]])
    assert loader.epoch == 1


def test_wrong_input() -> None:
    features, targets = case([2, 3])
    with pytest.raises(ValueError, match=r"(?s)quintuplets to be at least 2.*batches.*size.*candidates.*seed"):
        QuintupletSampler(targets, [2, 3], quintuplets=1, batches=0, size=0, candidates=0, seed=-1)
    sampler = QuintupletSampler(targets, [2, 3], quintuplets=2)
    for wrong in (features[:79], features[:, None], features.long(), features[:, 0]):
        with pytest.raises(ValueError, match=r"features to be floating point of shape \(80, D\) or \(80, 2, D\)"):
            sampler.mine(wrong)
    with pytest.raises(ValueError, match=r"features to be finite"):
        sampler.mine(features / 0)
    sampler.mine(features)
    state = sampler.state()
    with pytest.raises(ValueError, match=r"state to be of features, assigned, class_of, clusters, or empty, but got f"):
        sampler.load({"features": features})
    with pytest.raises(ValueError, match=r"the state's clusters to be of shape \(80, 2\).*\(80, 1\)"):
        sampler.load(state | {"assigned": state["assigned"][:, :1]})
    with pytest.raises(ValueError, match=r"features to be floating point of shape \(80"):
        sampler.load(state | {"features": features[:9]})
