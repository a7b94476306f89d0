"""Split data into train, validation and test: seeded, and stratified over all labels at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rectifier._base import check
from rectifier.data.dataset import PARTS, ImageFiles, Ints
from rectifier.data.duplicates import duplicate_groups, merged_groups
from rectifier.labels import columns
from rectifier.labels.counts import class_counts
from rectifier.labels.space import LabelSpace

SHARES = (0.8, 0.1, 0.1)
# Spellings of the parts in columns and folder names, in lower case.
PART_NAMES = {"train": 0, "training": 0, "val": 1, "valid": 1, "validation": 1, "dev": 1, "test": 2, "testing": 2}
Floats = NDArray[np.float64]
Groups = Sequence[object] | None  # equal entries stay in one part
_MOST_TRIED = 256  # moves compared to fill one hole
_MOST_MOVES = 20_000  # of a repair
_ANY_MOVE = 0.2  # share of the moves that are random
_SPARED = 1e-3  # weight in train of a class too small for every part, where a hole counts 1


def stratified_split(
    targets: Tensor,
    sizes: Sequence[int] | LabelSpace,
    *,
    shares: Sequence[float] = SHARES,
    seed: int = 0,
    groups: Groups = None,
) -> Tensor:
    """Assign every sample to train, validation or test: int64 ``(N,)``, 0, 1 or 2. Every class keeps the shares.

    Every class with three or more samples has at least one in each part, as far as the labels allow. Other rare
    classes can make that impossible; ``uncovered`` lists such classes. A class of one or two samples goes to the part
    with the largest share, usually train. A part of share 0 stays empty. Samples with equal entries in ``groups``
    (duplicates, one patient's images) stay in one part, and classes are then counted in groups.

    Classes are assigned from the rarest to the most frequent, each in the proportions that it still lacks.

    >>> targets = torch.tensor([[0]] * 20 + [[1]] * 3)
    >>> split = stratified_split(targets, [2])
    >>> [sorted(split[targets[:, 0] == c].unique().tolist()) for c in (0, 1)]
    [[0, 1, 2], [0, 1, 2]]
    """
    valid = len(shares) == len(PARTS) and all(check.is_real(s) and s >= 0 for s in shares) and shares[0] > 0
    complaints = [
        check.that("shares", shares, "three numbers for train, validation and test, the first above 0", valid),
        check.that("seed", seed, "a non-negative integer", check.is_natural(seed)),
    ]
    check.raise_all(complaints)
    units = _units(len(targets), groups)
    by_unit, by_class = _incidence(targets, columns.as_sizes(sizes), units)
    random = np.random.default_rng(seed)
    wanted = np.asarray(shares, float) / sum(shares)
    part = _deal(by_class, wanted, random)
    part = _repair(part, by_unit, by_class, wanted > 0, random)
    return torch.from_numpy(part[units])


def uncovered(
    targets: Tensor, sizes: Sequence[int] | LabelSpace, split: Tensor, parts: Sequence[int] = range(len(PARTS))
) -> list[int]:
    """Return the columns of the classes that have samples, but none in at least one of ``parts``."""
    resolved = columns.as_sizes(sizes)
    own = columns.own_columns(columns.as_targets(targets, resolved), resolved)
    seen = torch.zeros(len(PARTS), sum(resolved) + 1, dtype=torch.bool)
    seen[split[:, None].expand_as(own), own] = True  # a missing label is -1, the extra last column
    somewhere, everywhere = seen.any(0), seen[list(parts)].all(0)
    return (somewhere & ~everywhere)[:-1].nonzero()[:, 0].tolist()


def drawn_split(
    files: ImageFiles,
    targets: Tensor,
    space: LabelSpace,
    shares: str | Sequence[float],
    seed: int,
    groups: Groups = None,
    copies: Groups = None,
) -> tuple[Tensor, list[str]]:
    """Split image files and say how: stratified, with groups and exact duplicates (``copies``) kept together."""
    wanted = _as_shares(shares)
    copies = duplicate_groups(files.root, files.paths) if copies is None else copies
    units = copies if groups is None else merged_groups(groups, copies)
    split = stratified_split(targets, space, shares=wanted, seed=seed, groups=units)
    parts = "/".join(f"{share / sum(wanted):.3g}" for share in wanted)
    notes = [f"Split drawn with seed {seed}, stratified over all labels: {parts}."]
    kind = "duplicate image" if groups is None else "duplicate or grouped image"
    if together := len(units) - len(set(units)):
        verb, twins = ("was", "its twin") if together == 1 else ("were", "their twins")
        notes.append(f"{check.amount(together, kind)} {verb} kept in the same split as {twins}.")
    notes += _label_conflicts(files, targets, copies)
    if bare := uncovered(targets, space, split, [part for part, share in enumerate(wanted) if share]):
        few = "Too rare" if groups is None else "In too few groups"
        notes.append(f"{few} to be in every split: {_listed_classes(bare, targets, space)}.")
    return split, notes


def _label_conflicts(files: ImageFiles, targets: Tensor, copies: Sequence[object]) -> list[str]:
    """Note how many groups of identical images have different labels, and name two such images."""
    first: dict[object, int] = {}
    rows = targets.tolist()
    pairs = [(first.setdefault(group, sample), sample) for sample, group in enumerate(copies)]
    odd = {one: other for one, other in reversed(pairs) if rows[one] != rows[other]}
    groups = f"{check.amount(len(odd), 'group')} of identical images {'has' if len(odd) == 1 else 'have'}"
    example = " and ".join(files.paths[sample] for sample in min(odd.items(), default=()))
    return [f"{groups} different labels, e.g. {example}. Check them."] if odd else []


def _listed_classes(bare: list[int], targets: Tensor, space: LabelSpace) -> str:
    """Name up to three of the classes in these columns, with their numbers of images."""
    names = [f"{name}={c}" for name, classes in zip(space.names, space.classes, strict=True) for c in classes]
    counts = torch.cat(class_counts(targets, space)).tolist()
    shown = ", ".join(f"{names[k]} ({check.amount(counts[k], 'image')})" for k in bare[:3])
    return shown + (f" and {check.amount(len(bare) - 3, 'other class')}" if len(bare) > 3 else "")


def with_validation(
    split: Tensor, files: ImageFiles, targets: Tensor, space: LabelSpace, seed: int, note: str, groups: Groups = None
) -> tuple[Tensor, list[str]]:
    """Draw a validation part from train if a given split has none. Choosing on the test part would spoil it."""
    notes = [note] if bool((split == 2).any()) else [note, "There is no test part."]
    if bool((split == 1).any()):
        return split, notes
    train = (split == 0).nonzero()[:, 0]
    own = None if groups is None else [groups[i] for i in train.tolist()]
    drawn, _ = drawn_split(files.select(train.numpy()), targets[train], space, (0.9, 0.1, 0), seed, own)
    if not bool((drawn == 1).any()):
        return split, [*notes, "There is no validation part, and train is too small to draw one."]
    note = f"There was no validation part: a tenth of train was drawn for it with seed {seed}."
    return split.scatter(0, train, drawn), [*notes, note]


def _as_shares(value: str | Sequence[float]) -> list[float]:
    """Bring ``0.7/0.1/0.2``, ``0.7,0.1,0.2`` or a list to a list of numbers."""
    try:
        return [float(part) for part in (value.replace("/", ",").split(",") if isinstance(value, str) else value)]
    except (TypeError, ValueError):
        check.fail("shares", "three numbers for train, validation and test", repr(value))


def _incidence(targets: Tensor, sizes: tuple[int, ...], units: Ints) -> tuple[Any, Any]:
    """Return which unit (group of samples) has which class, ``(units, K)``, as sparse matrices by row and by column."""
    from scipy.sparse import coo_array  # type: ignore[import-untyped]

    own = columns.own_columns(columns.as_targets(targets, sizes), sizes).numpy()
    sample, label = np.nonzero(own >= 0)
    place, shape = (units[sample], own[sample, label]), (int(units.max(initial=-1)) + 1, sum(sizes))
    by_class = coo_array((np.ones(len(sample), bool), place), shape).tocsr().tocsc()
    return by_class.tocsr(), by_class  # the round trip sorts the indices of both


def _members(matrix: Any, number: int) -> Ints:
    """Return the units of a class, or the classes of a unit."""
    found: Ints = matrix.indices[matrix.indptr[number] : matrix.indptr[number + 1]]
    return found


def _units(samples: int, groups: Groups) -> Ints:
    """Number the groups from 0 in the order of their first samples; without groups every sample is a unit."""
    if groups is None:
        return np.arange(samples)
    groups = groups.tolist() if hasattr(groups, "tolist") else groups  # a tensor's elements are never equal as keys
    if len(groups) != samples:
        check.fail("groups", f"one entry for each of the {samples} samples", f"{len(groups)}")
    number: dict[object, int] = {}
    return np.fromiter((number.setdefault(g, len(number)) for g in groups), np.int64, samples)


def _deal(by_class: Any, wanted: Floats, random: np.random.Generator) -> Ints:
    part = np.full(by_class.shape[0], -1)
    rarest_first = np.argsort(np.diff(by_class.indptr), kind="stable")
    unlabelled_last = np.arange(len(part))
    for members in (*(_members(by_class, c) for c in rarest_first), unlabelled_last):
        dealt = part[members]
        free = members[dealt < 0]
        if len(free):
            placed = np.bincount(dealt[dealt >= 0], minlength=len(PARTS))
            part[random.permutation(free)] = _parts_of(len(free), placed, wanted)
    return part


def _parts_of(free: int, placed: Ints, wanted: Floats) -> Ints:
    """Return the parts of ``free`` units, ascending. Together with those ``placed`` they approach ``wanted``."""
    total = free + placed.sum()
    lacking = np.maximum(wanted * total - placed, 0)
    exact = lacking * (free / lacking.sum())
    count = np.floor(exact).astype(np.int64)
    count[np.argsort(count - exact, kind="stable")[: free - count.sum()]] += 1  # the largest remainders
    if total >= (wanted > 0).sum():
        for empty in np.flatnonzero((wanted > 0) & (placed + count == 0)):
            giver = np.where(count > 0, placed + count, 0).argmax()
            if count[giver] > 0 and placed[giver] + count[giver] > 1:
                count[giver] -= 1
                count[empty] += 1
    return np.repeat(np.arange(len(PARTS)), count)


def _repair(part: Ints, by_unit: Any, by_class: Any, used: NDArray[np.bool_], random: np.random.Generator) -> Ints:
    """Fill the holes. A hole is a class with no unit in a part, although it has enough for all ``used`` parts.

    One unit moves at a time: the one that fills a hole and opens the fewest. Sometimes a random one moves instead, or
    the search would cycle. Among equal moves, classes too small for every part stay in train. Returns the parts with
    the fewest holes seen.
    """
    large = np.diff(by_class.indptr) >= used.sum()
    needed = large[:, None] & used
    worth = needed.astype(np.float64)
    worth[~large, 0] = _SPARED
    counts: Ints = by_class.T.astype(np.int64) @ np.eye(len(PARTS), dtype=np.int64)[part]  # units: (K, parts)
    best, fewest = part.copy(), counts.size
    for _ in range(min(1000 + 20 * len(counts), _MOST_MOVES)):
        holes = np.argwhere(needed & (counts == 0))
        if len(holes) < fewest:
            best, fewest = part.copy(), len(holes)
        if not len(holes):
            break
        label_class, goal = holes[random.integers(len(holes))]
        candidates = random.permutation(_members(by_class, label_class))[:_MOST_TRIED]
        if random.random() >= _ANY_MOVE:
            losses = [_loss(_members(by_unit, u), part[u], goal, counts, worth) for u in candidates]
            candidates = candidates[[int(np.argmin(losses))]]
        unit = candidates[0]
        held = _members(by_unit, unit)
        counts[held, part[unit]] -= 1
        counts[held, goal] += 1
        part[unit] = goal
    return best


def _loss(held: Ints, source: int, goal: int, counts: Ints, worth: Floats) -> float:
    """Return the cost of moving a unit with these classes: the holes it opens, minus those it fills."""
    opened = worth[held, source] @ (counts[held, source] == 1)
    filled = worth[held, goal] @ (counts[held, goal] == 0)
    return float(opened - filled)
