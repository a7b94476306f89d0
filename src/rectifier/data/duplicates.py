"""Find images that must stay in the same split: exact duplicates, and members of one group."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

_ENDS = 512  # bytes at either end that tell most files apart


def duplicate_groups(root: Path, paths: Sequence[str]) -> list[object]:
    """Return one entry per file, equal for files of equal content. An unreadable file is a group of its own.

    Lengths are compared first, then the first and last bytes. Only files that still look equal are read whole.
    """
    groups: list[object] = [None] * len(paths)  # all files look equal until they are compared
    for look in (_length, _ends, _content):
        files = Counter(groups)
        for position, path in enumerate(paths):
            if files[groups[position]] > 1:
                try:
                    groups[position] = look(root / path)
                except OSError:
                    groups[position] = path
    return groups


def merged_groups(*namings: Sequence[object]) -> list[int]:
    """Merge groupings: samples get equal numbers if any naming connects them, directly or through other samples.

    >>> merged_groups(["a", "a", "b", "c"], [1, 2, 2, 3])
    [0, 0, 0, 1]
    """
    from scipy.sparse import coo_array  # type: ignore[import-untyped]
    from scipy.sparse.csgraph import connected_components  # type: ignore[import-untyped]

    samples = len(namings[0])
    firsts = []
    for naming in namings:
        first: dict[object, int] = {}
        firsts += [first.setdefault(name, sample) for sample, name in enumerate(naming)]
    edges = ([1] * len(firsts), (firsts, [*range(samples)] * len(namings)))
    groups: list[int] = connected_components(coo_array(edges, (samples, samples)), directed=False)[1].tolist()
    return groups


def _length(path: Path) -> object:
    return path.stat().st_size


def _ends(path: Path) -> object:
    with path.open("rb") as file:
        first = file.read(_ENDS)
        length = file.seek(0, 2)
        file.seek(max(length - _ENDS, 0))
        return length, hashlib.sha256(first + file.read(_ENDS)).digest()


def _content(path: Path) -> object:
    return hashlib.sha256(path.read_bytes()).digest()
