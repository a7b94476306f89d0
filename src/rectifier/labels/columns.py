"""How A labels of unequal sizes share the K columns of one ``(N, K)`` tensor.

Tables are built once per label layout and device. Copying a list to a GPU inside a loss would stall it and could not be
captured in a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from itertools import chain
from numbers import Integral
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from rectifier._base import check
from rectifier.labels.space import LabelSpace, first_columns

Sizes = LabelSpace | Sequence[int] | int
"""The number of classes of each label: a list, one number for a single label, or the LabelSpace itself."""


def table(build: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Cache what ``build`` returns for each layout and device. A compiled graph reads it as a constant input."""

    @lru_cache(maxsize=256)
    def kept(*key: Any) -> Tensor:
        with torch.inference_mode(False):  # so that training can use a table first needed in evaluation
            return build(*key)

    def place(*key: Any) -> str:
        name = f"{build.__name__}{key}"
        setattr(_TABLES, name, kept(*key))
        return name

    # What torch.compiler.assume_constant_result does, without its import of the compiler: that takes almost a second.
    place._dynamo_marked_constant = True  # type: ignore[attr-defined]

    @wraps(build)
    def lookup(*key: Any) -> Tensor:
        if not torch.compiler.is_compiling() and not torch._C._are_functorch_transforms_active():
            return kept(*key)
        if not torch.compiler.is_dynamo_compiling():  # torch.func and torch.export: a tensor made here dies with them
            return build(*key)
        # A graph can read a tensor from an attribute, but cannot call a cache or hold two constants of one name.
        found: Tensor = getattr(_TABLES, place(*key))
        return found

    return lookup


_TABLES = SimpleNamespace()


def as_sizes(sizes: Sizes | None, columns: int | None = None) -> tuple[int, ...]:
    """Return sizes in any form as a tuple. None is one label with all columns."""
    if isinstance(sizes, LabelSpace):
        return sizes.sizes
    if sizes is None:
        return (columns,) if columns is not None else ()
    wanted = "a positive integer, a list of them, or a LabelSpace"
    if isinstance(sizes, (str, bool)):
        raise TypeError(check.sentence("sizes", wanted, repr(sizes)))
    listed: Any = [sizes] if isinstance(sizes, Integral) or getattr(sizes, "ndim", None) == 0 else sizes
    given = tuple(int(size) if hasattr(size, "__index__") else size for size in listed)
    if not given or not all(map(check.is_count, given)):
        check.fail("sizes", wanted, repr(sizes))
    return given


def kept_sizes(sizes: Sizes) -> Sizes:
    """Return checked sizes for a module to keep: a LabelSpace, which knows the label names, or a tuple."""
    return sizes if isinstance(sizes, LabelSpace) else as_sizes(sizes)


def label_names(sizes: Sizes | None) -> tuple[str, ...] | None:
    return sizes.names if isinstance(sizes, LabelSpace) else None


def as_targets(targets: object, sizes: tuple[int, ...], names: Sequence[str] | None = None) -> Tensor:
    """Check targets and return them as int64 ``(N, A)``."""
    canonical = check.targets(targets, len(sizes))
    check.target_range(canonical, label_sizes(sizes, canonical.device), names)
    return canonical


def targets_beside(
    logits: Tensor, targets: object, sizes: tuple[int, ...], names: Sequence[str] | None = None
) -> Tensor:
    """Check that logits and targets fit the sizes and each other. Return targets as int64 ``(N, A)``."""
    check.logits_columns(logits, sizes)
    canonical = as_targets(targets, sizes, names)
    check.same_length("targets", canonical, "logits", logits)
    check.same_device("targets", canonical, "logits", logits)
    return canonical


def own_columns(targets: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Return ``(N, A)``: the column of each sample's class, -1 where its label is missing."""
    return torch.where(targets >= 0, targets + offsets(sizes, targets.device), -1)


def softmax(logits: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Return ``(N, K)`` probabilities, one softmax per label.

    >>> softmax(torch.zeros(1, 6), (4, 2)).tolist()
    [[0.25, 0.25, 0.25, 0.25, 0.5, 0.5]]
    """
    return _on_each_label(torch.softmax, logits, sizes)


def log_softmax(logits: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Return ``(N, K)`` log-probabilities, one softmax per label."""
    return _on_each_label(torch.log_softmax, logits, sizes)


def take(values: Tensor, places: Sequence[Tensor]) -> list[Tensor]:
    """Return the entries of ``values`` ``(N, K)`` at places ``row * K + column`` of any shape.

    One indexing serves all of them, because its gradient is as large as ``values``.

    >>> take(torch.tensor([[1, 2], [3, 4]]), [torch.tensor([0, 3]), torch.tensor([[2]])])
    [tensor([1, 4]), tensor([[3]])]
    """
    flat = values.reshape(-1)
    if len(places) == 1:
        return [flat.index_select(0, places[0].reshape(-1)).view(places[0].shape)]
    taken = flat.index_select(0, torch.cat([place.reshape(-1) for place in places]))
    parts = taken.split([place.numel() for place in places])
    return [part.reshape(place.shape) for part, place in zip(parts, places, strict=True)]


def own_places(targets: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Return ``(N, A)``: the place of each sample's own class, for ``take``; any place of its row where it is missing.

    >>> own_places(torch.tensor([[1], [-1], [0]]), (2,)).tolist()
    [[1], [2], [4]]
    """
    row = torch.arange(targets.shape[0], device=targets.device)[:, None]
    return own_columns(targets, sizes).clamp(min=0) + row * sum(sizes)


def _on_each_label(function: Callable[[Tensor, int], Tensor], logits: Tensor, sizes: tuple[int, ...]) -> Tensor:
    if len(sizes) == 1:
        return function(logits, -1)
    if len(set(sizes)) == 1:
        return function(logits.reshape(-1, len(sizes), sizes[0]), -1).flatten(1)
    blocks = [function(block, -1).flatten(1) for block in _padded_blocks(logits, sizes)]
    there, back = padded_to_plain(sizes, logits.device), _plain_to_padded(sizes, logits.device)
    return _rearrange(torch.cat(blocks, 1), there, back)


def argmax(logits: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Return ``(N, A)``: the best class of every label."""
    if len(set(sizes)) == 1:
        return logits.reshape(-1, len(sizes), sizes[0]).argmax(-1)
    best = [block.argmax(-1) for block in _padded_blocks(logits, sizes)]
    return torch.cat(best, 1)[:, _label_order(sizes, logits.device)]


def sum_by_label(values: Tensor, sizes: tuple[int, ...], label: Tensor | None = None) -> Tensor:
    """Sum over the columns of each label: ``(A,)`` from ``(K,)``, or from some columns with their labels ``(M,)``.

    >>> sum_by_label(torch.tensor([1, 2, 3]), (2, 1))
    tensor([3, 3])
    """
    if len(set(sizes)) == 1 and len(values) == sum(sizes):
        return values.reshape(len(sizes), -1).sum(1, dtype=values.dtype)
    label = label_of_column(sizes, values.device) if label is None else label
    return values.new_zeros(len(sizes)).index_add(0, label, values)


def of_label(features: Tensor, a: int) -> Tensor:
    """Return the features ``(N, D)`` of a label: its own from ``(N, A, D)``, or the shared ones."""
    return features if features.dim() == 2 else features[:, a]


def count_up(length: int, device: torch.device) -> Tensor:
    """Return 0, 1, 2 and so on, made once for each length and device, unless the length is symbolic."""
    return torch.arange(length, device=device) if torch.compiler.is_compiling() else _count_up(length, device)


@table
def _count_up(length: int, device: torch.device) -> Tensor:
    return torch.arange(length, device=device)


@table
def label_sizes(sizes: tuple[int, ...], device: torch.device) -> Tensor:
    """Return ``(A,)``: the number of classes of each label."""
    return _on_device(sizes, device)


@table
def offsets(sizes: tuple[int, ...], device: torch.device) -> Tensor:
    """Return ``(A,)``: the first column of each label."""
    return _on_device(first_columns(sizes), device)


@table
def label_of_column(sizes: tuple[int, ...], device: torch.device) -> Tensor:
    """Return ``(K,)``: the label of each column."""
    return _on_device(tuple(a for a, size in enumerate(sizes) for _ in range(size)), device)


# Labels of unequal sizes are padded to a common width, so that one softmax serves many labels. Where one long label
# would waste memory, labels are first grouped by size (within a factor of two).

_MOST_PADDING = 4


def _padded_blocks(logits: Tensor, sizes: tuple[int, ...]) -> list[Tensor]:
    """Return the labels as ``(N, labels, width)`` tensors, one per group of similar sizes, padded with -inf."""
    there, back = _plain_to_padded(sizes, logits.device), padded_to_plain(sizes, logits.device)
    shapes = [(len(group), max(sizes[label] for label in group)) for group in size_groups(sizes)]
    blocks = _rearrange(logits, there, back, float("-inf")).split([labels * width for labels, width in shapes], dim=1)
    return [block.reshape(-1, *shape) for block, shape in zip(blocks, shapes, strict=True)]


def _rearrange(columns: Tensor, there: Tensor, back: Tensor, fill: float = 0.0) -> Tensor:
    """Return the columns ``there``, where the index after the last is ``fill``. ``back`` is the inverse."""
    function = _Rearrange if torch.compiler.is_compiling() else _RearrangeForward
    rearranged: Tensor = function.apply(columns, there, back, fill)  # type: ignore[no-untyped-call]
    return rearranged


class _Rearrange(torch.autograd.Function):
    """No column is taken twice, so the gradient is rearranged back, without sums or atomic additions."""

    generate_vmap_rule = True

    @staticmethod
    def forward(columns: Tensor, there: Tensor, back: Tensor, fill: float) -> Tensor:
        return pad(columns, (0, 1), value=fill).index_select(1, there)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, float], output: Tensor) -> None:
        ctx.save_for_backward(inputs[2])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        (back,) = ctx.saved_tensors
        return pad(gradient, (0, 1)).index_select(1, back), None, None, None


class _RearrangeForward(_Rearrange):
    """The same with a rule for forward mode, which the compiler does not accept."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, float], output: Tensor) -> None:
        _Rearrange.setup_context(ctx, inputs, output)
        ctx.save_for_forward(inputs[1])

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        (there,) = ctx.saved_tensors
        return pad(tangent, (0, 1)).index_select(1, there)


@table
def _plain_to_padded(sizes: tuple[int, ...], device: torch.device) -> Tensor:
    """Return the columns of all groups in turn, every label padded to its group's width."""
    return _on_device(_padded_columns(sizes), device)


@table
def padded_to_plain(sizes: tuple[int, ...], device: torch.device) -> Tensor:
    """Return ``(K,)``: the place of each column among the padded ones."""
    where = {column: position for position, column in enumerate(_padded_columns(sizes))}
    return _on_device(tuple(where[column] for column in range(sum(sizes))), device)


@table
def _label_order(sizes: tuple[int, ...], device: torch.device) -> Tensor:
    """Return ``(A,)``: the place of each label in the joined groups."""
    joined = list(chain.from_iterable(size_groups(sizes)))
    return _on_device(tuple(joined.index(label) for label in range(len(sizes))), device)


def size_groups(sizes: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Group the labels that are padded together."""
    if len(sizes) * max(sizes) <= _MOST_PADDING * sum(sizes):
        return (tuple(range(len(sizes))),)
    by_bits: dict[int, list[int]] = {}
    for label, size in enumerate(sizes):
        by_bits.setdefault((size - 1).bit_length(), []).append(label)
    return tuple(tuple(by_bits[bits]) for bits in sorted(by_bits))


def _padded_columns(sizes: tuple[int, ...]) -> tuple[int, ...]:
    start, nothing = first_columns(sizes), sum(sizes)
    padded: list[int] = []
    for group in size_groups(sizes):
        width = max(sizes[label] for label in group)
        padded += [start[a] + j if j < sizes[a] else nothing for a in group for j in range(width)]
    return tuple(padded)


def _on_device(values: tuple[int, ...], device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=torch.int64, device=device)
