from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rectifier import LabelSpace
from rectifier.data.split import stratified_split, uncovered

SHARES = [(0.8, 0.1, 0.1), (0.6, 0.2, 0.2), (1, 1, 1), (0.9, 0.1, 0), (0.5, 0, 0.5), (0.1, 0.5, 0.4), (1, 0, 0)]


class Case(NamedTuple):
    targets: Tensor
    sizes: list[int]
    shares: tuple[float, ...]
    groups: list[int] | None
    seed: int

    def split(self) -> list[int]:
        options: dict[str, Any] = {"shares": self.shares, "groups": self.groups, "seed": self.seed}
        split = stratified_split(self.targets, self.sizes, **options)
        assert split.dtype == torch.int64
        assert split.shape == (len(self.targets),)
        return split.tolist()

    @property
    def used(self) -> list[int]:
        return [part for part in range(3) if self.shares[part] > 0]

    @property
    def units(self) -> list[int]:
        return list(range(len(self.targets))) if self.groups is None else self.groups

    def members(self) -> list[set[int]]:
        """The units that hold each class that has any, by loops."""
        held: dict[tuple[int, int], set[int]] = {}
        for row, unit in zip(self.targets.tolist(), self.units, strict=True):
            for label, value in enumerate(row):
                if value >= 0:
                    held.setdefault((label, value), set()).add(unit)
        return list(held.values())


@st.composite
def cases(draw: Any, most_samples: int, most_labels: int, most_classes: int = 6) -> Case:
    sizes = draw(st.lists(st.integers(1, most_classes), min_size=1, max_size=most_labels))
    samples = draw(st.integers(1, most_samples))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    skew = draw(st.sampled_from([1, 2, 6]))
    targets = (torch.rand(samples, len(sizes), generator=generator) ** skew * torch.tensor(sizes)).long()
    missing = draw(st.sampled_from([0, 0.3, 0.7]))
    targets[torch.rand(targets.shape, generator=generator) < missing] = draw(st.sampled_from([-1, -100]))
    many = draw(st.sampled_from([None, samples, samples // 2 + 1]))
    groups = None if many is None else torch.randint(many, (samples,), generator=generator).tolist()
    return Case(targets, sizes, draw(st.sampled_from(SHARES)), groups, draw(st.integers(0, 100)))


def can_be_covered(members: list[set[int]], units: int, parts: list[int]) -> bool:
    """Try every assignment. The first unit may be fixed: parts can be renamed."""
    return any(
        all(len({assigned[unit] for unit in held}) == len(parts) for held in members)
        for rest in itertools.product(parts, repeat=units - 1)
        for assigned in [(parts[0], *rest)]
    )


def check_promises(case: Case) -> bool:
    """Check all that holds without exception; say whether every class with units enough is in every used part."""
    split = case.split()
    assert set(split) <= set(case.used), "a part of share 0 is empty"
    part_of_unit = dict(zip(case.units, split, strict=True))
    assert [part_of_unit[unit] for unit in case.units] == split, "a group is not divided"
    members = case.members()
    units = list(part_of_unit.values())
    for part in range(3):
        wanted = case.shares[part] / sum(case.shares) * len(units)
        assert abs(units.count(part) - wanted) <= 2 * len(members) + 2, "two for each class, at most"
    if len(units) >= len(case.used):
        assert members or set(split) == set(case.used)
    rows = [{(a, v) for a, v in enumerate(row) if v >= 0} for row in case.targets.tolist()]
    seen: dict[tuple[int, int], set[int]] = {}
    for row, part in zip(rows, split, strict=True):
        for held in row:
            seen.setdefault(held, set()).add(part)
    offsets = [sum(case.sizes[:a]) for a in range(len(case.sizes))]
    bare = sorted(offsets[a] + v for (a, v), parts in seen.items() if parts != set(case.used))
    assert uncovered(case.targets, case.sizes, torch.tensor(split), case.used) == bare
    return all(
        len({part_of_unit[unit] for unit in held}) == len(case.used) for held in members if len(held) >= len(case.used)
    )


@settings(max_examples=150)
@given(cases(most_samples=7, most_labels=7, most_classes=3))
def test_a_hole_is_left_only_where_no_split_has_none(case: Case) -> None:
    if not check_promises(case):
        number = {unit: n for n, unit in enumerate(dict.fromkeys(case.units))}
        large = [{number[u] for u in held} for held in case.members() if len(held) >= len(case.used)]
        assert not can_be_covered(large, len(number), case.used)


@pytest.mark.parametrize("seed", range(20))
def test_tight_triples_are_untangled(seed: int) -> None:
    """Classes of three or four among eight samples: hardly any assignment serves all, and dealing alone fails often."""
    generator = torch.Generator().manual_seed(seed)
    targets = torch.full((8, 7), -1)
    for label in range(7):
        targets[torch.randperm(8, generator=generator)[: 3 + (label + seed) % 2], label] = 0
    case = Case(targets, [1] * 7, (0.8, 0.1, 0.1), None, seed)
    assert check_promises(case) or not can_be_covered(case.members(), 8, [0, 1, 2])


@settings(max_examples=100)
@given(cases(most_samples=300, most_labels=5, most_classes=12))
def test_promises_at_length(case: Case) -> None:
    covered = check_promises(case)
    if len(case.sizes) == 1 and case.groups is None:
        assert covered, "one label can always be covered"


@settings(max_examples=60)
@given(st.lists(st.integers(0, 60), min_size=1, max_size=12), st.sampled_from(SHARES), st.integers(0, 99))
def test_one_label_is_dealt_out_class_by_class(counts: list[int], shares: tuple[float, ...], seed: int) -> None:
    targets = torch.tensor([c for c, count in enumerate(counts) for _ in range(count)], dtype=torch.int64)
    split = stratified_split(targets, [len(counts)], shares=shares, seed=seed)
    for c, count in enumerate(counts):
        own = split[targets == c].tolist()
        for part in range(3):
            wanted = shares[part] / sum(shares) * count
            assert abs(own.count(part) - wanted) < 2
            if 0.1 * count >= 1 and wanted >= 1:
                assert abs(own.count(part) - wanted) < 1 + 1e-9, "a class that fills its parts is only rounded"


@pytest.mark.parametrize("count", [*range(3, 12), 39])
def test_one_to_four_thousand_with_few_in_the_rarest_class(count: int) -> None:
    targets = torch.tensor([0] * 4000 + [1] * count)
    split = stratified_split(targets, [2], seed=count)
    rare = torch.bincount(split[4000:], minlength=3).tolist()
    assert min(rare) >= 1
    assert abs(rare[0] - 0.8 * count) < 2
    assert torch.bincount(split[:4000]).tolist() == [3200, 400, 400]


@pytest.mark.parametrize("count", [1, 2])
def test_classes_too_small_for_every_part_go_to_train(count: int) -> None:
    targets = torch.tensor([0] * 50 + [1] * count)
    split = stratified_split(targets, [2])
    assert set(split[50:].tolist()) == {0}
    assert uncovered(targets, [2], split) == [1]


def test_many_labels_keep_their_shares() -> None:
    generator = torch.Generator().manual_seed(3)
    rates = torch.logspace(-3, -0.3, 12)
    targets = (torch.rand(6000, 12, generator=generator) < rates).long()
    targets[torch.rand(targets.shape, generator=generator) < 0.1] = -1
    split = stratified_split(targets, [2] * 12, shares=(0.7, 0.1, 0.2), seed=5)
    for part, share in enumerate((0.7, 0.1, 0.2)):
        assert abs(float((split == part).double().mean()) - share) < 0.005
        for label, value in itertools.product(range(12), range(2)):
            own = targets[:, label] == value
            assert abs(int((own & (split == part)).sum()) - share * int(own.sum())) <= max(2, 0.02 * int(own.sum()))


def test_what_rare_classes_took_is_made_up_for() -> None:
    """Twenty classes of three take as much of every part; the class that holds them all comes out even."""
    rare = [c for c in range(20) for _ in range(3)] + [-1] * 140
    split = stratified_split(torch.tensor([[c, 0] for c in rare]), [20, 1])
    assert torch.bincount(split[:60]).tolist() == [20, 20, 20]
    assert torch.bincount(split).tolist() == [160, 20, 20]


def test_the_seed_alone_decides() -> None:
    targets = torch.randint(-1, 4, (200, 3), generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    first = stratified_split(targets, [4, 4, 4], seed=7)
    torch.manual_seed(1)
    assert torch.equal(first, stratified_split(targets, [4, 4, 4], seed=7))
    others = [stratified_split(targets, [4, 4, 4], seed=seed) for seed in range(6)]
    assert all(not torch.equal(a, b) for a, b in itertools.combinations(others, 2))


def test_what_names_and_spellings_cannot_change() -> None:
    targets = torch.randint(-1, 3, (90, 2), generator=torch.Generator().manual_seed(0))
    space = LabelSpace.from_sizes([3, 3])
    plain = stratified_split(targets, [3, 3], seed=4)
    assert torch.equal(plain, stratified_split(targets, space, seed=4))
    assert torch.equal(plain, stratified_split(targets.int(), [3, 3], seed=4))
    assert torch.equal(plain, stratified_split(targets, [3, 3], seed=4, groups=range(90)))
    assert torch.equal(plain, stratified_split(targets, [3, 3], seed=4, shares=(8, 1, 1)))
    assert torch.equal(stratified_split(targets[:, 0], [3], seed=4), stratified_split(targets[:, :1], [3], seed=4))
    groups = torch.arange(90) // 4
    named = [f"patient {g}" for g in groups.tolist()]
    assert torch.equal(
        stratified_split(targets, [3, 3], groups=named), stratified_split(targets, [3, 3], groups=groups)
    ), "a tensor of groups is read by value"
    assert torch.equal(
        stratified_split(targets, [3, 3], groups=named), stratified_split(targets, [3, 3], groups=groups.numpy())
    )


def test_the_class_counts_of_parts_do_not_depend_on_the_order_of_samples() -> None:
    targets = torch.tensor([0] * 40 + [1] * 11 + [2] * 3)
    order = torch.randperm(54, generator=torch.Generator().manual_seed(1))
    for shuffled in (targets, targets[order], targets.flip(0)):
        split = stratified_split(shuffled, [3], seed=2)
        table = [torch.bincount(split[shuffled == c], minlength=3).tolist() for c in range(3)]
        assert table == [[32, 4, 4], [9, 1, 1], [1, 1, 1]]


@pytest.mark.parametrize("samples", [0, 1, 2, 3, 10])
def test_samples_without_any_label(samples: int) -> None:
    split = stratified_split(torch.full((samples, 2), -1), [2, 3])
    assert len(split) == samples
    assert set(split.tolist()) == ({0, 1, 2} if samples >= 3 else {0} if samples else set())
    assert uncovered(torch.full((samples, 2), -1), [2, 3], split) == []


@pytest.mark.parametrize(
    "shares", [(0.8, 0.2), (0.8, 0.1, 0.1, 0), (0, 0.5, 0.5), (0.8, -0.1, 0.3), (0.8, float("nan"), 0.2), (1, True, 0)]
)
def test_wrong_shares(shares: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="Expected shares to be three numbers for train, validation and test"):
        stratified_split(torch.zeros(5, dtype=torch.int64), [1], shares=shares)


def test_everything_wrong_is_said_at_once() -> None:
    with pytest.raises(ValueError, match=r"(?s)Expected shares .*Expected seed to be a non-negative integer"):
        stratified_split(torch.zeros(5, dtype=torch.int64), [1], shares=(1,), seed=-1)


def test_wrong_groups_and_targets() -> None:
    zeros = torch.zeros(5, dtype=torch.int64)
    with pytest.raises(ValueError, match="one entry for each of the 5 samples, but got 4"):
        stratified_split(zeros, [1], groups="abcd")
    with pytest.raises(ValueError, match=r"Expected targets to be below 2, .* but got 3 in row 1"):
        stratified_split(torch.tensor([0, 3]), [2])
    with pytest.raises(TypeError, match="Expected targets to be an integer tensor"):
        stratified_split(torch.zeros(5, 2), [2, 2])
