"""Which part each image belongs to, for readers: drawn where nothing says it, filled up where one is missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor

from rectifier._base import check
from rectifier.data.dataset import ImageFiles
from rectifier.data.split import duplicate_groups, joined, stratified_split, uncovered
from rectifier.labels.space import LabelSpace

PART_NAMES = {
    "train": 0,
    "training": 0,
    "val": 1,
    "valid": 1,
    "validation": 1,
    "dev": 1,
    "test": 2,
    "testing": 2,
}


def listed(value: object) -> list[str]:
    """Bring a list, text with commas between, or a single value to a list."""
    if value is None:
        return []
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return [str(part) for part in value] if isinstance(value, Iterable) else [str(value)]


def as_shares(value: str | Sequence[float]) -> list[float]:
    """Bring ``0.7/0.1/0.2`` or a list to a list of numbers."""
    try:
        return [float(part) for part in (listed(value.replace("/", ",")) if isinstance(value, str) else value)]
    except (TypeError, ValueError):
        check.fail("shares", "three numbers for train, validation and test", repr(value))


def drawn_split(
    files: ImageFiles,
    targets: Tensor,
    space: LabelSpace,
    shares: str | Sequence[float],
    seed: int,
    groups: Sequence[object] | None = None,
) -> tuple[Tensor, list[str]]:
    """Draw a stratified split that keeps groups, and exact duplicates, on one side; and say what was done."""
    wanted = as_shares(shares)
    groups = duplicate_groups(files.root, files.paths) if groups is None else groups
    split = stratified_split(targets, space, shares=wanted, seed=seed, groups=groups)
    parts = "/".join(f"{share / sum(wanted):.3g}" for share in wanted)
    notes = [f"Split drawn by seed {seed}, stratified over all labels, {parts}."]
    together = len(groups) - len(set(groups))
    if together:
        moved = "stays" if together == 1 else "stay"
        notes.append(f"{check.amount(together, 'image')} {moved} with another that is equal, or of one group with it.")
    if odd := _contradictions(groups, targets):
        notes.append(f"Equal or grouped images with different labels: {check.amount(odd, 'group')}.")
    if bare := uncovered(targets, space, split, [part for part, share in enumerate(wanted) if share]):
        notes.append(f"Too rare to be in every part: {check.amount(len(bare), 'class')}.")
    return split, notes


def _contradictions(groups: Sequence[object], targets: Tensor) -> int:
    """Count the groups whose images do not all have the same targets."""
    first: dict[object, tuple[int, ...]] = {}
    rows = zip(groups, map(tuple, targets.tolist()), strict=True)
    return len({group for group, row in rows if first.setdefault(group, row) != row})


def together(files: ImageFiles, groups: Sequence[object] | None) -> list[object]:
    """Return one entry per file, equal where the content or the group is."""
    copies = duplicate_groups(files.root, files.paths)
    return copies if groups is None else joined(groups, copies)


def fill_validation(
    split: Tensor,
    files: ImageFiles,
    targets: Tensor,
    space: LabelSpace,
    seed: int,
    note: str,
    groups: Sequence[object] | None = None,
) -> tuple[Tensor, list[str]]:
    """Draw a validation part from train where a split has none; choosing on the test part would spoil it."""
    notes = [note] if bool((split == 2).any()) else [note, "There is no test part."]
    if bool((split == 1).any()):
        return split, notes
    train = (split == 0).nonzero()[:, 0]
    inside = ImageFiles(files.root, tuple(files.paths[i] for i in train.tolist()))
    chosen = None if groups is None else [groups[i] for i in train.tolist()]
    drawn, _ = drawn_split(inside, targets[train], space, (0.9, 0.1, 0), seed, together(inside, chosen))
    split = split.clone()
    split[train] = drawn
    if not bool((drawn == 1).any()):
        return split, [*notes, "There is no validation part, and train is too small to draw one from it."]
    return split, [*notes, f"No validation part: a tenth of train was drawn for it by seed {seed}."]
