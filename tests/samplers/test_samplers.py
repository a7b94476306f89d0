from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from math import ceil, floor
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.data import DataLoader

from helpers.cases import Batch, batches, make_batch
from rectifier import LabelSpace
from rectifier.samplers import (
    ClassBalancedSampler,
    ClassBatchSampler,
    CurriculumSampler,
    DownSampler,
    EpochSampler,
    OverSampler,
    ProgressiveSampler,
    SquareRootSampler,
    UniformSampler,
    class_batches,
)
from rectifier.samplers.lmle.quintuplets import QuintupletSampler


def mined(sampler: QuintupletSampler) -> QuintupletSampler:
    sampler.mine(torch.randn(90, 4, generator=torch.Generator().manual_seed(0), device="cpu"))
    return sampler


# A row here puts a new sampler under every contract below.
REGISTRY: dict[str, Callable[..., EpochSampler[Any]]] = {
    "uniform": UniformSampler,
    "over": OverSampler,
    "over, largest": lambda *args, **options: OverSampler(*args, combine="largest", **options),
    "down": DownSampler,
    "down, largest": lambda *args, **options: DownSampler(*args, combine="largest", **options),
    "class-balanced": ClassBalancedSampler,
    "square-root": SquareRootSampler,
    "progressive": lambda *args, **options: ProgressiveSampler(*args, epochs=5, **options),
    "curriculum": lambda *args, **options: CurriculumSampler(*args, epochs=5, **options),
    "class-batch": lambda *args, **options: ClassBatchSampler(
        *args, classes=3, samples=2, batch_size=7, batches=20, **options
    ),
    "quintuplets": lambda *args, **options: QuintupletSampler(*args, quintuplets=4, batches=20, **options),
    "quintuplets, mined": lambda *args, **options: mined(
        QuintupletSampler(*args, quintuplets=4, batches=20, size=10, **options)
    ),
}
SIZES = [3, 2, 9]
TARGETS = make_batch(SIZES, 90, seed=3, missing=0.3).targets


def shuffled_classes(counts: list[int]) -> Tensor:
    order = torch.randperm(sum(counts), generator=torch.Generator().manual_seed(0))
    return torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))[order]


every_sampler = pytest.mark.parametrize("make", REGISTRY.values(), ids=REGISTRY)


# ---------------------------------------------------------------------------------------------------- slow references


def slow_ratio(row: list[int], counts: list[Counter[int]], goal: Callable[..., int]) -> tuple[Fraction, int] | None:
    """The largest goal / n over the labels of a sample, and the first label that has it; None without any label."""
    found = [(Fraction(goal(counts[a].values()), counts[a][c]), -a) for a, c in enumerate(row) if c >= 0]
    return (max(found)[0], -max(found)[1]) if found else None


def slow_counts(targets: Tensor) -> list[Counter[int]]:
    return [Counter(c for c in column if c >= 0) for column in targets.T.tolist()]


def slow_probabilities(targets: Tensor, weight: Callable[[int, list[int]], float]) -> Tensor:
    """Each sample's probability: over its labels, that of the label, of its class there, and of it in the class."""
    counts = [label for label in slow_counts(targets) if label]
    labelled = [a for a, label in enumerate(slow_counts(targets)) if label]
    probability = [0.0] * len(targets)
    for a, label in zip(labelled, counts, strict=True):
        sizes = list(label.values())
        whole = sum(weight(n, sizes) for n in sizes)
        for i, c in enumerate(targets[:, a].tolist()):
            if c >= 0:
                probability[i] += weight(label[c], sizes) / whole / label[c] / len(labelled)
    return torch.tensor(probability, dtype=torch.float64)


def kept_promises(batch: list[int], targets: Tensor, samples: int) -> int:
    """How many classes have ``samples`` entries in the batch, different ones as far as the class has them."""
    kept = 0
    for a, label in enumerate(slow_counts(targets)):
        for c, n in label.items():
            own = [i for i in batch if targets[i, a] == c]
            kept += len(own) >= samples and len(set(own)) >= min(samples, n)
    return kept


# ------------------------------------------------------------------------------------------------- every sampler


@every_sampler
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_shards_are_equal_and_together_exactly_the_plan(make: Any, ranks: int) -> None:
    alone = make(TARGETS, SIZES, seed=4)
    ranked = [make(TARGETS, SIZES, seed=4, num_replicas=ranks, rank=rank) for rank in range(ranks)]
    for epoch in range(3):
        for sampler in (alone, *ranked):
            sampler.set_epoch(epoch)
        plan = ranked[0].plan()
        assert plan.dtype == torch.int64
        assert 0 <= len(alone.plan()) - len(plan) < ranks
        assert torch.equal(plan, alone.plan()[: len(plan)])
        together = torch.empty_like(plan)
        for rank, sampler in enumerate(ranked):
            assert torch.equal(sampler.plan(), plan)
            assert len(sampler) == len(sampler.shard()) == len(plan) // ranks
            assert list(sampler) == sampler.shard().tolist()
            together[rank::ranks] = sampler.shard()
        assert torch.equal(together, plan)


@every_sampler
def test_the_plan_follows_seed_and_epoch_alone(make: Any) -> None:
    def plan(seed: int, epoch: int) -> list[Any]:
        sampler = make(TARGETS, SIZES, seed=seed)
        sampler.set_epoch(epoch)
        assert torch.equal(sampler.plan(), sampler.plan())
        return sampler.plan().tolist()

    plans = {(seed, epoch): plan(seed, epoch) for seed in range(4) for epoch in range(4)}
    torch.manual_seed(77)
    assert all(plan(*key) == order for key, order in plans.items())
    assert len(set(map(str, plans.values()))) == len(plans)


@every_sampler
def test_the_length_is_that_of_every_epoch(make: Any) -> None:
    sampler = make(TARGETS, SIZES)
    for epoch in range(20):
        sampler.set_epoch(epoch)
        assert len(sampler.draw(torch.Generator().manual_seed(epoch))) == sampler.total == len(sampler)


@every_sampler
def test_the_global_random_state_is_left_alone(make: Any) -> None:
    before = torch.get_rng_state()
    list(make(TARGETS, SIZES))
    assert torch.equal(before, torch.get_rng_state())


@every_sampler
def test_every_way_of_giving_the_labels(make: Any) -> None:
    plan = make(TARGETS, SIZES).plan()
    assert torch.equal(make(TARGETS.int(), np.array(SIZES)).plan(), plan)
    assert torch.equal(make(TARGETS, LabelSpace.from_sizes(SIZES)).plan(), plan)
    one = TARGETS[:, 2]
    assert torch.equal(make(one).plan(), make(one[:, None], [9]).plan())
    assert torch.equal(make(one).plan(), make(torch.where(one < 0, -100, one), [12]).plan())  # and absent classes


@every_sampler
def test_the_default_device_does_not_matter(make: Any) -> None:
    with torch.device("meta"):
        plan = make(TARGETS, SIZES).plan()
    assert torch.equal(plan, make(TARGETS, SIZES).plan())


@every_sampler
def test_it_drives_a_loader(make: Any) -> None:
    sampler = make(TARGETS, SIZES)
    batched = sampler.plan().dim() == 2
    loader = DataLoader(range(90), **({"batch_sampler": sampler} if batched else {"sampler": sampler}))  # type: ignore
    for epoch in range(2):
        sampler.set_epoch(epoch)
        expected = sampler.plan().tolist() if batched else [[i] for i in sampler.plan().tolist()]
        assert [batch.tolist() for batch in loader] == expected
        assert len(loader) == len(expected)


@every_sampler
def test_the_process_group_is_asked(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 3)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 2)
    asked = make(TARGETS, SIZES)
    assert (asked.num_replicas, asked.rank) == (3, 2)
    assert torch.equal(asked.shard(), make(TARGETS, SIZES, num_replicas=3, rank=2).shard())
    assert make(TARGETS, SIZES, num_replicas=4, rank=0).num_replicas == 4
    with pytest.raises(ValueError, match=r"rank to be .* below num_replicas \(4\), but got None"):
        make(TARGETS, SIZES, num_replicas=4)


@every_sampler
@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"seed": -1}, "seed to be an integer from 0, but got -1"),
        ({"seed": 0.5}, "seed to be an integer from 0, but got 0.5"),
        ({"num_replicas": 0}, "num_replicas to be a positive integer, but got 0"),
        ({"num_replicas": "two", "rank": 0}, "num_replicas to be a positive integer, but got 'two'"),
        ({"num_replicas": 2, "rank": 2}, r"rank to be .* below num_replicas \(2\), but got 2"),
        ({"num_replicas": 2, "rank": -1}, r"rank to be .* below num_replicas \(2\), but got -1"),
        ({"num_replicas": 2}, r"rank to be .* below num_replicas \(2\), but got None"),
        ({"rank": 1}, r"rank to be .* below num_replicas \(1\), but got 1"),
        ({"num_replicas": 2, "rank": 5, "seed": True}, "seed to be .*\n.*rank to be"),
        ({"num_replicas": 10**6, "rank": 3}, "epoch to be of at least one entry for each of the 1000000 ranks"),
    ],
)
def test_wrong_options(make: Any, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=f"(?s){complaint}"):
        make(TARGETS, SIZES, **options)


@every_sampler
def test_wrong_epoch_and_unknown_option(make: Any) -> None:
    with pytest.raises(ValueError, match="epoch to be an integer from 0, but got -1"):
        make(TARGETS, SIZES).set_epoch(-1)
    with pytest.raises(TypeError, match="shuffle"):
        make(TARGETS, SIZES, shuffle=True)


@pytest.mark.parametrize("name", [name for name in REGISTRY if name != "uniform"])
def test_wrong_targets(name: str) -> None:
    make = REGISTRY[name]
    with pytest.raises(ValueError, match="at least one sample with a label, but got 2 samples without"):
        make(torch.full((2, 2), -1), [2, 2])
    with pytest.raises(ValueError, match="at least one sample with a label, but got 0 samples without"):
        make(torch.empty(0, dtype=torch.int64))
    with pytest.raises(TypeError, match="integer tensor of class indices"):
        make([0, 1])
    with pytest.raises(ValueError, match="below 2, its number of classes"):
        make(torch.tensor([[0, 2]]), [2, 2])


@pytest.mark.parametrize("seeds", [range(1000), range(10**9, 10**9 + 1000)])
def test_no_epoch_of_one_seed_is_an_epoch_of_another(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds up to a thousand apart stay more than a million epochs apart, on the circle of 32 bits."""
    seen = []
    sampler = UniformSampler(1)
    monkeypatch.setattr(sampler, "draw", lambda generator: seen.append(generator.initial_seed()) or torch.zeros(1))
    for sampler.seed in seeds:
        sampler.plan()
    steps = sorted(seen)
    assert min(b - a for a, b in zip(steps, [*steps[1:], steps[0] + 2**32], strict=True)) > 10**6
    sampler.epoch = 1
    sampler.plan()
    assert seen[-1] == (seen[-2] + 1) % 2**32


# ---------------------------------------------------------------------------------------------- uniform, over, down


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_uniform_shards_share_no_sample(ranks: int) -> None:
    shards = [set(UniformSampler(91, num_replicas=ranks, rank=rank)) for rank in range(ranks)]
    assert len(set.union(*shards)) == sum(map(len, shards)) == 91 // ranks * ranks


def test_uniform_takes_targets_or_their_number() -> None:
    assert torch.equal(UniformSampler(TARGETS).plan(), UniformSampler(np.int64(90)).plan())  # type: ignore[arg-type]
    for wrong in (0, -2, 1.5, torch.empty(0), torch.tensor(3)):
        with pytest.raises(ValueError, match="targets to be a tensor of at least one row, or a positive number"):
            UniformSampler(wrong)  # type: ignore[arg-type]


@given(sizes=st.lists(st.integers(0, 40), min_size=1, max_size=6).filter(any), epoch=st.integers(0, 50))
def test_one_label_is_balanced_exactly(sizes: list[int], epoch: int) -> None:
    targets = shuffled_classes(sizes)
    cases = [(OverSampler, max(sizes)), (DownSampler, min(filter(None, sizes)))]
    for (make, goal), combine in product(cases, ("largest", "mean")):
        sampler = make(targets, [len(sizes)], combine=combine)
        sampler.set_epoch(epoch)
        drawn = sampler.plan().bincount(minlength=len(targets))
        for c, n in enumerate(sizes):
            copies = drawn[targets == c]
            assert copies.sum() == (goal if n else 0)
            assert all(goal // n <= k <= -(-goal // n) for k in copies.tolist())


@settings(max_examples=200)
@given(batch=batches(), epoch=st.integers(0, 5))
def test_several_labels_equal_the_loop_version(batch: Batch, epoch: int) -> None:
    """The samples driven by one class have ceil(g * ratio) copies together, each floor(ratio) or ceil(ratio)."""
    counts = slow_counts(batch.targets)
    if not any(counts):
        return
    for make, goal, unlabelled in ((OverSampler, max, 1), (DownSampler, min, 0)):
        sampler = make(batch.targets, batch.sizes, combine="largest")
        sampler.set_epoch(epoch)
        copies = sampler.plan().bincount(minlength=len(batch.targets)).tolist()
        driven: dict[Any, list[int]] = {}
        ratios: dict[Any, Fraction] = {}
        for row, times in zip(batch.targets.tolist(), copies, strict=True):
            found = slow_ratio(row, counts, goal)
            if found is None:
                assert times == unlabelled
                continue
            ratio, label = found
            assert floor(ratio) <= times <= ceil(ratio)
            driven.setdefault((label, row[label]), []).append(times)
            ratios[label, row[label]] = ratio
        assert {k: sum(times) for k, times in driven.items()} == {
            k: ceil(len(driven[k]) * r) for k, r in ratios.items()
        }


def test_several_labels_by_hand() -> None:
    """Label 0 counts 4, 1 and label 1 counts 1, 3; the last sample has no label."""
    targets = torch.tensor([[0, 0], [0, 1], [0, 1], [0, -1], [1, 1], [-1, -1]])
    assert OverSampler(targets, [2, 2], combine="largest").plan().bincount(minlength=6).tolist() == [3, 1, 1, 1, 4, 1]
    down = DownSampler(targets, [2, 2], combine="largest")
    kept = torch.stack([down.plan().bincount(minlength=6) for epoch in range(40) if not down.set_epoch(epoch)])
    assert (kept[:, [0, 4]] == 1).all()  # the rarest of a label
    assert (kept[:, 1] + kept[:, 2] == 1).all()  # two of three are driven by a class with n_min / n = 1/3
    assert (kept[:, 3] == 1).all()  # alone driven by the largest class: a part of a copy is a whole one
    assert (kept[:, 5] == 0).all()
    assert 0 < kept[:, 1].sum() < 40


@settings(max_examples=100)
@given(batch=batches(), epoch=st.integers(0, 5))
def test_the_mean_over_labels_equals_the_loop_version(batch: Batch, epoch: int) -> None:
    counts = slow_counts(batch.targets)
    if not any(counts):
        return
    for make, goal, unlabelled in ((OverSampler, max, 1), (DownSampler, min, 0)):
        sampler = make(batch.targets, batch.sizes)
        sampler.set_epoch(epoch)
        copies = sampler.plan().bincount(minlength=len(batch.targets)).tolist()
        driven: dict[Any, Fraction] = {}
        for row, times in zip(batch.targets.tolist(), copies, strict=True):
            ratios = [Fraction(goal(counts[a].values()), counts[a][c]) for a, c in enumerate(row) if c >= 0]
            factor = sum(ratios) / len(ratios) if ratios else Fraction(unlabelled)
            assert floor(factor) <= times <= ceil(factor)
            found = slow_ratio(row, counts, goal)
            key = found and (found[1], row[found[1]])
            driven[key] = driven.get(key, Fraction(0)) + factor
        assert sum(copies) == sum(map(ceil, driven.values()))


def test_samples_come_in_no_order_of_theirs() -> None:
    """Copies of one sample and samples of one class are scattered over the epoch."""
    plan = OverSampler(torch.tensor([0] * 300 + [1] * 3)).plan()
    for half in plan.split(300):
        assert 100 < (half < 300).sum() < 200
        assert set(half[half >= 300].tolist()) == {300, 301, 302}
    assert not torch.equal(plan, plan.sort().values)


def test_combine_is_one_of_two() -> None:
    with pytest.raises(ValueError, match=r"combine to be one of 'largest', 'mean', but got 'largets'\. Did you mean"):
        OverSampler(TARGETS, SIZES, combine="largets")


@pytest.mark.parametrize(("make", "goal"), [(OverSampler, max), (DownSampler, min)])
def test_extra_copies_go_round(make: Any, goal: Callable[..., int]) -> None:
    """Over many epochs every sample has its share of copies, and no class of any label stays below the goal."""
    epochs = 400
    sampler, counts = make(TARGETS, SIZES, combine="largest"), slow_counts(TARGETS)
    total = torch.zeros(len(TARGETS))
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        total += sampler.plan().bincount(minlength=len(TARGETS))
    mean = total / epochs
    for i, row in enumerate(TARGETS.tolist()):
        found = slow_ratio(row, counts, goal)
        if found is not None:  # a copy more or less has a standard deviation of at most 1/2, in the mean 1/40
            assert mean[i] > float(found[0]) - 5 / 40
    for a, label in enumerate(counts):
        for c in label:
            assert mean[TARGETS[:, a] == c].sum() > goal(label.values()) - 1


# -------------------------------------------------------------------------------------------- drawn by class weights


def natural(n: int, sizes: list[int]) -> float:
    return n / sum(sizes)


def balanced(n: int, sizes: list[int]) -> float:
    return 1 / len(sizes)


WEIGHTED = {
    "class-balanced": (ClassBalancedSampler, {}, 0, balanced),
    "square-root": (SquareRootSampler, {}, 0, lambda n, sizes: n**0.5),
    "progressive, first": (ProgressiveSampler, {"epochs": 5}, 0, natural),
    "progressive, second": (
        ProgressiveSampler,
        {"epochs": 5},
        1,
        lambda n, sizes: 0.75 * natural(n, sizes) + 0.25 * balanced(n, sizes),
    ),
    "progressive, last": (ProgressiveSampler, {"epochs": 5}, 4, balanced),
    "progressive, later": (ProgressiveSampler, {"epochs": 5}, 9, balanced),
    "progressive, only": (ProgressiveSampler, {"epochs": 1}, 0, natural),
    "curriculum, third of four": (CurriculumSampler, {"epochs": 4}, 2, lambda n, sizes: n**0.5),
}


@pytest.mark.parametrize(("make", "options", "epoch", "weight"), WEIGHTED.values(), ids=WEIGHTED)
@pytest.mark.parametrize("case", ["one label", "several", "a label never given"])
def test_samples_are_drawn_with_their_probability(make: Any, options: Any, epoch: int, weight: Any, case: str) -> None:
    targets, sizes = {
        "one label": (TARGETS[:, 2:], [9]),
        "several": (TARGETS, SIZES),
        "a label never given": (torch.cat([torch.full((90, 1), -1), TARGETS], 1), [4, *SIZES]),
    }[case]
    draws = 200_000
    sampler = make(targets, sizes, samples=draws, **options)
    sampler.set_epoch(epoch)
    drawn = sampler.plan().bincount(minlength=len(targets))
    expected = draws * slow_probabilities(targets, weight)
    assert drawn.sum() == draws
    assert (drawn[expected == 0] == 0).all()
    assert ((drawn - expected).abs() <= 5 * expected.sqrt()).all()


def test_the_three_are_told_apart() -> None:
    """The tolerance above would find one in place of another: their probabilities differ by far more."""
    first, *others = (slow_probabilities(TARGETS, weight) for weight in (balanced, natural, lambda n, _: n**0.5))
    for other in others:
        assert ((first - other).abs() * 200_000 > 10 * (first * 200_000).sqrt()).any()


def test_an_epoch_is_as_long_as_asked() -> None:
    assert len(ClassBalancedSampler(TARGETS, SIZES)) == 90
    assert len(SquareRootSampler(TARGETS, SIZES, samples=np.int64(1000))) == 1000  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"(?s)epochs to be a positive.*samples to be a positive .* 0.*seed"):
        ProgressiveSampler(TARGETS, SIZES, epochs=0, samples=0, seed=-1)


# ------------------------------------------------------------------------------------------------------ class batches


@settings(max_examples=150)
@given(batch=batches(most_labels=4), data=st.data())
def test_every_batch_keeps_its_promise(batch: Batch, data: Any) -> None:
    present = sum(map(len, slow_counts(batch.targets)))
    if not present:
        return
    classes, samples = data.draw(st.integers(1, min(present, 7))), data.draw(st.integers(1, 4))
    batch_size = classes * samples + data.draw(st.integers(0, 3))
    options = {"batch_size": batch_size, "batches": data.draw(st.integers(1, 12))}
    sampler = ClassBatchSampler(batch.targets, batch.sizes, classes=classes, samples=samples, **options)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        assert sampler.plan().shape == (options["batches"], batch_size)
        for drawn in sampler:
            assert kept_promises(drawn[: classes * samples], batch.targets, samples) >= classes


@given(present=st.integers(1, 12), data=st.data(), batches=st.integers(1, 60), seed=st.integers(0, 10**6))
def test_classes_take_turns(present: int, data: Any, batches: int, seed: int) -> None:
    classes = data.draw(st.integers(1, present))
    turns = class_batches._turns(batches, classes, present, torch.Generator().manual_seed(seed)).tolist()
    assert len(turns) == batches
    seen = [0] * present
    for row in turns:
        assert len(set(row)) == classes
        for c in row:
            assert seen[c] == min(seen)  # nobody has a turn before all others had as many
            seen[c] += 1


def test_all_allowed_turns_are_equally_likely() -> None:
    """Two of three classes a batch: the first two are a free choice of 6 and the third the one left over, who then
    meets either of the first two, before the others come in either free order."""
    found = Counter(str(class_batches._turns(3, 2, 3, torch.Generator().manual_seed(s)).tolist()) for s in range(2400))
    assert len(found) == 6 * 2 * 2
    assert all(abs(n - 100) < 50 for n in found.values())


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_samples_of_a_class_go_round(ranks: int) -> None:
    """One label of classes with 1, 2, 7 and 30 samples, 3 at a time: none is used twice before all are used once."""
    targets = shuffled_classes([1, 2, 7, 30])
    sampler = ClassBatchSampler(targets, classes=3, samples=3, batches=31, num_replicas=ranks, rank=0)
    used = [0] * len(targets)
    for batch in sampler.plan().tolist():
        for start in (0, 3, 6):
            own = batch[start : start + 3]
            classes = targets[own].unique()
            assert len(classes) == 1
            members = (targets == classes).nonzero().flatten().tolist()
            assert len(set(own)) == min(3, len(members))
            for i in own:
                assert used[i] == min(used[j] for j in members)
                used[i] += 1


def test_the_cycle_of_a_class_is_shuffled() -> None:
    """Each of 6 samples is as often the first of its class as any other."""
    targets = torch.tensor([0] * 6 + [1] * 3)
    sampler = ClassBatchSampler(targets, [2], classes=2, samples=2, batches=1)
    first: Counter[int] = Counter()
    for epoch in range(600):
        sampler.set_epoch(epoch)
        first[min(i for i in sampler.plan()[0].tolist() if i < 6)] += 1
    assert [first[i] for i in range(6)] == pytest.approx([200, 160, 120, 80, 40, 0], abs=60)


def test_larger_batches_are_filled_with_everybody() -> None:
    targets = torch.tensor([0] * 17 + [1] * 2 + [-1])
    sampler = ClassBatchSampler(targets, [2], classes=2, samples=1, batch_size=7, batches=8)
    assert sampler.plan()[:, 2:].flatten().bincount(minlength=20).tolist() == [2] * 20


def test_the_number_of_batches() -> None:
    options: dict[str, Any] = {"classes": 2, "samples": 3}
    assert len(ClassBatchSampler(TARGETS, SIZES, **options)) == 15
    assert len(ClassBatchSampler(TARGETS, SIZES, **options, batch_size=20)) == 4
    assert len(ClassBatchSampler(TARGETS, SIZES, **options, num_replicas=4, rank=0)) == 3
    assert len(ClassBatchSampler(TARGETS[:7], SIZES, **options, num_replicas=4, rank=0)) == 1
    assert ClassBatchSampler(TARGETS, SIZES, classes=np.int64(2), samples=np.int64(3)).plan().shape == (15, 6)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"classes": 3}, "classes to be from 1 to 2, the number of classes that have samples, but got 3"),
        ({"classes": 0}, "classes to be from 1 to 2, .* but got 0"),
        ({"samples": 0}, "samples to be a positive integer, but got 0"),
        ({"batch_size": 5}, r"batch_size to be at least classes \* samples = 6, but got 5"),
        ({"batches": 0}, "batches to be a positive integer, but got 0"),
        ({"batches": 1, "num_replicas": 2, "rank": 0}, "epoch to be of at least one entry for each of the 2 ranks"),
        ({"classes": "a", "samples": -1, "seed": -1}, "(?s)classes to be.*samples to be.*seed to be"),
    ],
)
def test_wrong_class_batches(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        ClassBatchSampler(torch.tensor([0, 2, 2, 0, -1]), [4], **{"classes": 2, "samples": 3, **options})


def test_one_complaint_for_one_mistake() -> None:
    with pytest.raises(ValueError, match=r"^Expected samples to be a positive integer, but got 'a'\.$"):
        ClassBatchSampler(torch.tensor([0, 1]), classes=2, samples="a")  # type: ignore[arg-type]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@every_sampler
def test_targets_on_a_gpu(make: Any) -> None:
    assert torch.equal(make(TARGETS.cuda(), SIZES).plan(), make(TARGETS, SIZES).plan())
