"""Class counts from anything: numbers, counts by name, targets, data sets and loaders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral, Number
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset

from rectifier._base import check
from rectifier.labels import columns
from rectifier.labels.columns import Sizes
from rectifier.labels.space import LabelSpace, class_name, numbers_first

Counts = Any
"""Training samples of each class: numbers (a list, array or tensor), a Counter or another mapping by class index or
name, for several labels a list or mapping of these; or a data set or DataLoader to count."""

COLUMNS = ("targets", "target", "labels", "label")
"""Where a data set or one of its samples has its targets, if it names them."""


def class_counts(source: Any, sizes: Sizes | None = None, *, ignore_index: int = -100) -> list[Tensor]:
    """Count the samples of each class, label by label. Missing labels (negative targets) do not count.

    ``source`` is the targets, class names, a data set or a ``DataLoader``; a Counter or another mapping is counted
    already. Of a loader all samples of its data set count, whatever its sampler draws. A data set gives its ``targets``
    (through its ``target_transform``); one without them is read once, and the second part of each sample counts.
    ``sizes`` None means one label: with the ``classes`` of the data set, or with the largest target as its last class.
    Targets of ``ignore_index`` do not count, as negative ones.

    >>> [counts.tolist() for counts in class_counts(torch.tensor([[0, 1], [2, -1], [0, 1]]), [3, 2])]
    [[2, 0, 1], [0, 2]]
    >>> class_counts([0, 1, 1])
    [tensor([1, 2])]
    """
    if isinstance(source, Mapping):
        return as_count_list(source, sizes)[0]
    if sizes is None and is_data(source):
        sizes = _named_classes(source)
    targets = targets_of(source) if is_data(source) else source
    if _are_names(targets):
        space = sizes if isinstance(sizes, LabelSpace) else LabelSpace.infer({"label": list(targets)})
        targets, sizes = space.encode({space.names[0]: list(targets)}), space
    if ignore_index >= 0:
        known = check.as_tensor("targets", targets).long()
        targets = known.masked_fill(known == ignore_index, -1)
    counts, resolved = counts_of_targets(targets, sizes)
    return list(counts.split(list(resolved)))


def counts_of_targets(targets: Any, sizes: Sizes | None) -> tuple[Tensor, tuple[int, ...]]:
    """Return the counts ``(K,)`` of checked targets, and the sizes."""
    if sizes is None:
        single = check.targets(targets, 1)
        sizes = (max(int(single.max()) + 1, 1) if len(single) else 1,)
    known = columns.as_sizes(sizes)
    canonical = columns.as_targets(targets, known, columns.label_names(sizes))
    return column_counts(columns.own_columns(canonical, known), sum(known)).long(), known


def column_counts(own: Tensor, total: int) -> Tensor:
    """Count the samples of each of ``total`` columns: int32 ``(K,)``, from ``columns.own_columns``."""
    slots = torch.where(own >= 0, own, total).flatten()  # missing labels go to a slot after the last column
    one = torch.ones((), dtype=torch.int32, device=own.device)  # GPUs add int32 atomically, int64 only after a sort
    return torch.zeros(total + 1, dtype=torch.int32, device=own.device).index_add(0, slots, one.expand_as(slots))[:-1]


def as_count_list(counts: Counts, sizes: Sizes | None = None) -> tuple[list[Tensor], bool]:
    """Return counts in any form as a list with one 1-d tensor per label, and whether they came as a single label.

    ``sizes`` gives names their order and absent classes their place. Without it, names are sorted as in
    ``LabelSpace.infer``. Counts are whole numbers: shares such as 0.9 are refused, because a class of less than one
    sample would count as half a sample.

    >>> as_count_list({"dog": 1, "cat": 3})
    ([tensor([3, 1])], True)
    """
    wanted = "one count per class, or a list with one such list per label"
    if is_data(counts):
        found = class_counts(counts, sizes)
        return found, len(found) == 1
    if is_mapping(counts):
        counts = _from_mapping(counts, sizes)
    if isinstance(counts, str) or not (isinstance(counts, (Tensor, Sequence)) or hasattr(counts, "__array__")):
        raise TypeError(check.sentence("class_counts", wanted, repr(counts)))
    if isinstance(counts, Tensor):
        single = counts.dim() <= 1
    else:
        single = len(counts) > 0 and all(isinstance(n, Number) or getattr(n, "ndim", None) == 0 for n in counts)
    given = [counts] if single else counts
    labels = [torch.as_tensor(_from_mapping(c, None) if is_mapping(c) else c) for c in given]
    if not labels:
        check.fail("class_counts", wanted, "an empty list")
    for position, label in enumerate(labels):
        _check_counts("class_counts" if single else f"class_counts[{position}]", label)
    return labels, single


def fitting_counts(counts: Counts, sizes: Sizes | None) -> tuple[Tensor, Sizes]:
    """Return counts ``(K,)`` and the sizes of a loss that is made from them. Given sizes must agree with the counts."""
    labels, _ = as_count_list(counts, sizes)
    known = tuple(map(len, labels))
    sizes = known if sizes is None else columns.kept_sizes(sizes)
    if columns.as_sizes(sizes) != known:
        check.fail("sizes", f"those of class_counts, {known}", columns.as_sizes(sizes))
    return torch.cat(labels), sizes


def is_mapping(counts: Any) -> bool:
    """Tell whether counts come by class: a mapping, or a Series of pandas, whose index are the classes."""
    return isinstance(counts, Mapping) or (hasattr(counts, "index") and hasattr(counts, "items"))


def is_data(source: Any) -> bool:
    """Tell whether the source holds samples, rather than targets or counts."""
    named = any(hasattr(source, name) for name in ("targets", "column_names"))
    return isinstance(source, (Dataset, DataLoader)) or named


def targets_of(data: Any) -> Any:
    """Return the targets of a data set or loader, without reading its images where it holds targets apart."""
    if isinstance(data, DataLoader):
        return targets_of(data.dataset)
    if isinstance(data, Subset):
        return _as_tensor(targets_of(data.dataset))[torch.as_tensor(data.indices, dtype=torch.int64)]
    if isinstance(data, ConcatDataset):
        return torch.cat([_as_tensor(targets_of(part)) for part in data.datasets])
    if isinstance(data, TensorDataset):
        return data.tensors[1 if len(data.tensors) > 1 else 0]
    if hasattr(data, "indices") and hasattr(data, "part"):  # ImageData: only its training part counts
        return data.part("train").targets
    for name in COLUMNS:
        if name in getattr(data, "column_names", ()):
            return data[name]
        if hasattr(data, name):
            return _transformed(data, name)
    samples = data if not hasattr(data, "__len__") else (data[i] for i in range(len(data)))
    return torch.stack([torch.as_tensor(_target_of(sample)) for sample in samples])


def _transformed(data: Any, name: str) -> Any:
    """Return an attribute with the targets as the samples have them."""
    targets, transform = getattr(data, name), getattr(data, "target_transform", None)
    if hasattr(data, "__len__") and len(data) != len(targets):
        check.fail(f"{name} of {type(data).__name__}", f"as long as the data set ({len(data)})", len(targets))
    return targets if transform is None else [transform(target) for target in targets]


def _named_classes(data: Any) -> int | None:
    """Return the number of classes that a data set names, as ImageFolder does: the last may have no sample."""
    while isinstance(data, (DataLoader, Subset)):
        data = data.dataset
    return len(data.classes) if hasattr(data, "classes") else None


def _are_names(targets: Any) -> bool:
    listed = isinstance(targets, (list, tuple)) or getattr(targets, "ndim", 0) == 1
    return listed and len(targets) > 0 and isinstance(next(iter(targets)), str)


def _as_tensor(targets: Any) -> Tensor:
    return torch.as_tensor(targets if isinstance(targets, Tensor) else list(targets))


def _target_of(sample: Any) -> Any:
    if isinstance(sample, Mapping):
        for name in COLUMNS:
            if name in sample:
                return sample[name]
    elif isinstance(sample, (tuple, list)) and len(sample) > 1:
        return sample[1]
    wanted = f"pairs (image, target), or mappings with one of {', '.join(COLUMNS)}"
    raise TypeError(check.sentence("the samples of a data set", wanted, type(sample).__name__))


def _from_mapping(counts: Mapping[Any, Any], sizes: Sizes | None) -> list[Any]:
    """Return counts by class, or counts by label, as a list in the order of the columns."""
    space = sizes if isinstance(sizes, LabelSpace) else None
    if not all(isinstance(n, Number) or getattr(n, "ndim", None) == 0 for _, n in counts.items()):
        given = {str(name): label for name, label in counts.items()}
        names = list(given) if space is None else list(space.names)
        _check_names("labels", given, names, complete=True)
        known = [None] * len(names) if space is None else space.classes
        return [_of_label(given[name], own) for name, own in zip(names, known, strict=True)]
    several = space is not None and len(space) > 1
    if several:
        check.fail(
            "class_counts", "counts for each label, by the label's name", f"one count for {next(iter(counts.keys()))!r}"
        )
    if space is None and sizes is not None and all(isinstance(key, Integral) for key in counts.keys()):  # noqa: SIM118
        return _by_index(dict(counts.items()), columns.as_sizes(sizes)[0])
    return _of_label(counts, None if space is None else space.classes[0])


def _of_label(counts: Any, classes: tuple[str, ...] | None) -> list[Any]:
    """Return the counts of one label in the order of its classes. Counts that come without names stay."""
    if not is_mapping(counts):
        return list(counts)
    named: dict[str, Any] = {}
    for key, n in counts.items():  # elements of a tensor are different keys for the same class
        named[class_name(key)] = named.get(class_name(key), 0) + n
    numbers = {int(name): n for name, n in named.items() if name.isdecimal()}
    numbered = len(numbers) == len(named) and not any(isinstance(key, str) for key in counts.keys())  # noqa: SIM118
    if numbered and not (classes and set(named) <= set(classes)):
        return _by_index(numbers, len(classes) if classes else max(numbers, default=0) + 1)
    classes = tuple(sorted(named, key=numbers_first)) if classes is None else classes
    _check_names("classes", named, classes)
    return [named.get(name, 0) for name in classes]


def _by_index(counts: Mapping[Any, Any], size: int) -> list[Any]:
    if outside := [key for key in counts if not 0 <= int(key) < size]:
        check.fail("class_counts", f"counts of classes from 0 to {size - 1}", f"class {outside[0]}")
    return [counts.get(index, 0) for index in range(size)]


def _check_names(what: str, given: Mapping[str, Any], valid: Sequence[str], complete: bool = False) -> None:
    for name in given:
        if name not in valid:
            problem = check.sentence(f"the {what} of class_counts", f"among {', '.join(valid)}", repr(name))
            raise ValueError(problem + check.nearest(name, valid))
    if complete and (absent := [name for name in valid if name not in given]):
        check.fail(f"the {what} of class_counts", f"all of {', '.join(valid)}", f"none named {absent[0]!r}")


def _check_counts(what: str, label: Tensor) -> None:
    if label.dim() != 1 or label.numel() == 0:
        check.fail(what, "a 1-d tensor with one count per class", f"shape {tuple(label.shape)}")
    if torch.compiler.is_compiling():  # a graph cannot read values
        return
    if not bool((label >= 0).all()):
        check.fail(what, "non-negative", f"{label.min().item()}")
    whole = (label == label.round()) & label.isfinite()
    if not bool(whole.all()):
        problem = check.sentence(what, "whole numbers of training samples", f"{label[~whole][0].item():g}")
        raise ValueError(f"{problem} For shares, pass the shares times the number of samples, rounded.")
