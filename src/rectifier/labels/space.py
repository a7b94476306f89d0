"""LabelSpace: the names of the labels and of their classes, and their columns in the logits."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import floor
from numbers import Real
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rectifier._base import check

Table = Any
"""A mapping of columns, a pandas DataFrame, a list of rows (mappings or sequences), or an array ``(N, A)``."""


@dataclass(frozen=True)
class LabelSpace:
    """The A labels of a data set and the classes of each.

    Label ``a`` owns the columns ``offsets[a] : offsets[a] + sizes[a]`` of every ``(N, K)`` tensor of logits.

    >>> space = LabelSpace.from_names({"colour": ["red", "green", "blue"], "striped": ["no", "yes"]})
    >>> space.sizes, space.offsets, space.columns
    ((3, 2), (0, 3), 5)
    >>> LabelSpace.from_json(space.to_json()) == space
    True
    """

    names: tuple[str, ...]
    classes: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        if not self.names:
            check.fail("a label space", "of at least one label", "none")
        if len(self.names) != len(self.classes):
            check.fail("classes", f"one list for each of the {len(self.names)} labels", f"{len(self.classes)}")
        _no_duplicates("label names", self.names)
        for name, classes in zip(self.names, self.classes, strict=True):
            if not classes:
                raise ValueError(f"Label {name!r} has no classes.")
            _no_duplicates(f"classes of label {name!r}", classes)

    @classmethod
    def from_sizes(cls, sizes: Sequence[int]) -> LabelSpace:
        """Name labels and classes by their numbers: ``label0``, ``label1``; ``0``, ``1``, ``2``."""
        sizes = sizes.tolist() if hasattr(sizes, "tolist") else sizes
        for position, size in enumerate(sizes):
            if not check.is_count(size):
                check.fail(f"sizes[{position}]", "a positive integer", repr(size))
        names = tuple(f"label{a}" for a in range(len(sizes)))
        return cls(names, tuple(tuple(map(str, range(size))) for size in sizes))

    @classmethod
    def from_names(cls, classes: Mapping[str, Sequence[object]]) -> LabelSpace:
        """Take label names and, for each, its class names in the order of their indices."""
        for name, listed in classes.items():
            if isinstance(listed, str):
                check.fail(f"classes of label {name!r}", "a list of names", f"the single string {listed!r}")
        return cls(tuple(map(str, classes)), tuple(tuple(map(class_name, listed)) for listed in classes.values()))

    @classmethod
    def infer(cls, table: Table) -> LabelSpace:
        """Read the classes of each label from a table. Without column names the labels are ``label0``, ``label1``.

        Blanks, ``None``, NaN and pandas' NA are missing. Any other value is a class, including -1. Whole numbers sort
        by value, everything else by name.

        >>> LabelSpace.infer({"size": [10, 2, None, 10], "kind": ["b", "a", "", "b"]}).classes
        (('2', '10'), ('a', 'b'))
        """
        columns = _columns(table)
        found = {name: {class_name(v) for v in column if not is_missing(v)} for name, column in columns.items()}
        if empty := [name for name, classes in found.items() if not classes]:
            check.fail(f"column {empty[0]!r}", "a label with at least one value", "missing values only")
        return cls(tuple(found), tuple(tuple(sorted(classes, key=numbers_first)) for classes in found.values()))

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of classes of each label."""
        return tuple(map(len, self.classes))

    @property
    def offsets(self) -> tuple[int, ...]:
        """The first column of each label."""
        return first_columns(self.sizes)

    @property
    def columns(self) -> int:
        """K, the number of columns of the logits, one for each class of each label."""
        return sum(self.sizes)

    def __len__(self) -> int:
        return len(self.names)

    def encode(self, table: Table) -> Tensor:
        """Turn a table of values into targets: int64 ``(N, A)``, -1 where a value is missing.

        >>> LabelSpace.from_names({"kind": ["cat", "dog"]}).encode({"kind": ["dog", None, "cat"]}).tolist()
        [[1], [-1], [0]]
        """
        columns = _columns(table)
        if absent := [name for name in self.names if name not in columns]:
            wanted = f"a table with the columns {', '.join(self.names)}"
            problem = check.sentence("table", wanted, f"none named {absent[0]!r}")
            raise ValueError(problem + check.nearest(absent[0], columns))
        encoded = [self._encode_column(a, columns[name]) for a, name in enumerate(self.names)]
        if len(set(map(len, encoded))) > 1:
            check.fail("every column", "of one length", f"lengths {list(map(len, encoded))}")
        return torch.tensor(encoded, dtype=torch.int64).T.contiguous()

    def _encode_column(self, label: int, column: Iterable[object]) -> list[int]:
        index = {name: k for k, name in enumerate(self.classes[label])}
        names = [None if is_missing(value) else class_name(value) for value in column]
        for row, name in enumerate(names):
            if name is not None and name not in index:
                wanted = f"one of its {len(index)} classes"
                problem = check.sentence(f"label {self.names[label]!r}", wanted, f"{name!r} in row {row}")
                raise ValueError(problem + check.nearest(name, index))
        return [-1 if name is None else index[name] for name in names]

    def to_json(self, path: str | Path | None = None) -> str:
        """Return the label space as JSON text, and write it to ``path`` if given."""
        labels = [{"name": n, "classes": list(c)} for n, c in zip(self.names, self.classes, strict=True)]
        text = json.dumps({"labels": labels}, ensure_ascii=False, indent=1)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    @classmethod
    def from_json(cls, source: str | Path) -> LabelSpace:
        """Read the output of ``to_json``: a path, or the text itself."""
        is_text = isinstance(source, str) and source.lstrip().startswith("{")
        content: Any = json.loads(str(source) if is_text else Path(source).read_text(encoding="utf-8"))
        try:
            labels = content["labels"]
            return cls(tuple(label["name"] for label in labels), tuple(tuple(label["classes"]) for label in labels))
        except (KeyError, TypeError) as error:
            wanted = '{"labels": [{"name": ..., "classes": [...]}, ...]}'
            raise ValueError(check.sentence("label space JSON", wanted, f"a bad entry ({error!r})")) from error


def first_columns(sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the first column of each label."""
    return (0, *accumulate(sizes))[:-1]


def _columns(table: Table) -> dict[str, list[object]]:
    """Return a table in any form as named columns."""
    if isinstance(table, Mapping) or hasattr(table, "items"):
        return {str(name): list(column) for name, column in table.items()}
    rows: list[Any] = table.tolist() if hasattr(table, "tolist") else list(table)
    if rows and isinstance(rows[0], Mapping):
        return {str(name): [row.get(name) for row in rows] for name in rows[0]}
    if not all(isinstance(row, Sequence) and not isinstance(row, str) for row in rows) or len(set(map(len, rows))) != 1:
        check.fail("table", "columns by name, or rows of one length", type(table).__name__)
    return {f"label{a}": list(column) for a, column in enumerate(zip(*rows, strict=True))}


def is_missing(value: object) -> bool:
    """Tell whether a table's value means no label: None, NaN, NaT, pandas' NA or a blank string."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return True
    try:
        return bool(value != value)
    except TypeError:  # pandas' NA has no truth value
        return True


def class_name(value: object) -> str:
    if isinstance(value, Tensor):
        value = value.item()
    # pandas turns a column of whole numbers with a blank into floats: 3.0 is the class "3".
    if isinstance(value, Real) and not isinstance(value, bool) and value == value // 1:
        return str(floor(value))
    return str(value).strip()


def numbers_first(name: str) -> tuple[int, int, str]:
    try:
        return (0, int(name), name)
    except ValueError:
        return (1, 0, name)


def _no_duplicates(what: str, names: Sequence[str]) -> None:
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        check.fail(what, "all different", f"{twice[0]!r} twice")
