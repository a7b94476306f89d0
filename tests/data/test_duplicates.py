from __future__ import annotations

from pathlib import Path

import torch

from rectifier.data.duplicates import duplicate_groups, merged_groups


def test_joined_groups_by_loops() -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        one, two = torch.randint(12, (2, 15), generator=generator).tolist()
        found = merged_groups(one, two)
        reach = [{i} for i in range(15)]
        for _ in range(15):
            reach = [{k for k in range(15) for j in near if one[j] == one[k] or two[j] == two[k]} for near in reach]
        assert [[a == b for b in found] for a in found] == [[k in near for k in range(15)] for near in reach]


def test_duplicate_groups(tmp_path: Path) -> None:
    for name, content in {"a": b"12", "b": b"12", "c": b"34", "d": b"567", "e": b"567", "f": b"1"}.items():
        (tmp_path / name).write_bytes(content)
    groups = duplicate_groups(tmp_path, [*"abcdef", "gone", "gone too"])
    assert groups[0] == groups[1]
    assert groups[3] == groups[4]
    assert len(set(groups)) == 6


def test_files_that_differ_only_in_the_middle(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_bytes(b"x" * 600 + (b"m" if name == "c" else b"x") + b"x" * 600)
    groups = duplicate_groups(tmp_path, "abc")
    assert groups[0] == groups[1] != groups[2]
