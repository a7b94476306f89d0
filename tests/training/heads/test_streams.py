"""What heads see: every sample once, one view of each, and mixed samples whose targets keep their mass."""

from __future__ import annotations

import torch
from torch import Generator

from rectifier.labels.space import LabelSpace
from rectifier.training.heads import FeatureTable, HeadSpec
from rectifier.training.heads.prepared import Prepared
from rectifier.training.heads.streams import Stream, Streams, draws_alike

SPACE = LabelSpace.from_sizes([2, 3])


def made_data(views: int = 1) -> Prepared:
    x = torch.randn(views, 23, 5, generator=Generator().manual_seed(0))
    targets = torch.stack([torch.arange(23) % 2, torch.arange(23) % 3], 1)
    return Prepared(FeatureTable(x if views > 1 else x[0], targets, SPACE))


def test_an_epoch_has_every_sample_once_in_batches_of_equal_size() -> None:
    stream = Stream(HeadSpec(batch_size=10), made_data())
    assert stream.batches == [8, 8, 7]
    rows, donors = stream.plan(0)
    assert rows.sort().values.tolist() == list(range(23))
    assert donors is None


def test_each_sample_comes_in_one_view_and_the_views_change() -> None:
    stream = Stream(HeadSpec(), made_data(views=3))
    plans = torch.stack([stream.plan(epoch)[0] for epoch in range(60)])
    assert bool(((plans % 23).sort(1).values == torch.arange(23)).all())
    shares = (plans // 23).flatten().bincount() / plans.numel()
    torch.testing.assert_close(shares, torch.full((3,), 1 / 3), rtol=0, atol=0.04)


def test_the_features_of_a_row_belong_to_its_view() -> None:
    data = made_data(views=2)
    raw = data.rows * data.deviation + data.mean
    torch.testing.assert_close(raw.view(2, 23, 5), data.table.x)


def test_mixed_samples_lie_between_two_and_their_shares_add_up() -> None:
    data = made_data()
    streams = Streams([Stream(HeadSpec(seed=seed, mixup=1.0, batch_size=23), data) for seed in (0, 1)], data)
    streams.start(0)
    batch = streams.batch(0)
    assert batch.partner is not None
    partner, share = batch.partner
    assert bool(((share >= 0) & (share <= 1)).all())
    for x, targets, others, own, stream in zip(batch.x, batch.targets, partner, share, streams.streams, strict=True):
        rows = stream.plan(0)[0]
        torch.testing.assert_close(others, targets.roll(-1, 0))
        torch.testing.assert_close(x, torch.lerp(data.rows[rows].roll(-1, 0), data.rows[rows], own[:, :1]))
    assert not torch.equal(share[0], share[1])


def test_masks_of_dropout_keep_the_mean() -> None:
    data = made_data()
    streams = Streams([Stream(HeadSpec(dropout=0.25), data)], data)
    mask = streams.mask((500, 40))
    assert set(mask.unique().tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
    assert abs(mask.mean() - 1) < 0.02


def test_heads_that_draw_alike_share_a_stream() -> None:
    ce = HeadSpec()
    alike = [HeadSpec("focal"), HeadSpec("crl", {"eta": 0.5}, lr=0.5, weight_decay=0.0, hidden=3)]
    other = [HeadSpec("over-sampling"), HeadSpec("over-sampling", {"combine": "largest"}), HeadSpec(seed=1)]
    assert {draws_alike(spec, 0) for spec in alike} == {draws_alike(ce, 1)}
    assert len({draws_alike(spec, 0) for spec in [ce, *other]}) == 4
    assert draws_alike(HeadSpec("lmle", hidden=2), 0) != draws_alike(HeadSpec("lmle", hidden=2), 1)
