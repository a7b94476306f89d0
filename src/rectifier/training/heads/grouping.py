"""Which heads train together: those of one shape, in banks of bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rectifier.training.heads.prepared import Prepared
from rectifier.training.heads.spec import HeadSpec
from rectifier.training.heads.streams import Stream, draws_alike

_MOST_WEIGHTS = 2**25  # of the heads of a bank; with gradient and moments 512 MiB in float32
_MOST_FEATURES = 2**23  # of a step over all streams


@dataclass(frozen=True, eq=False)
class Together:
    """Heads that train as one bank, stream by stream: head h reads stream h // (H / S)."""

    positions: list[int]
    specs: list[HeadSpec]
    streams: list[Stream]


def grouped(specs: Sequence[HeadSpec], data: Prepared) -> Iterator[Together]:
    """Yield groups of heads of one shape, whose streams have equally many heads and batches of equal sizes."""
    by_stream: dict[tuple[str, str], list[int]] = {}
    for position, spec in enumerate(specs):
        by_stream.setdefault((_shape(spec), draws_alike(spec, position)), []).append(position)
    banks: dict[object, list[tuple[list[int], Stream]]] = {}
    for (shape, _), positions in by_stream.items():
        most = max(1, _MOST_WEIGHTS // _weights(specs[positions[0]], data))
        for start in range(0, len(positions), most):
            own = sorted(positions[start : start + most], key=lambda position: specs[position].method)
            stream = Stream(specs[own[0]], data)
            banks.setdefault((shape, len(own), tuple(stream.batches)), []).append((own, stream))
    for members in banks.values():
        own, stream = members[0]
        wide = max(1, _MOST_FEATURES // (max(stream.batches) * data.table.width))
        wide = min(wide, max(1, _MOST_WEIGHTS // (len(own) * _weights(stream.spec, data))))
        for start in range(0, len(members), wide):
            part = members[start : start + wide]
            positions = [position for own, _ in part for position in own]
            yield Together(positions, [specs[position] for position in positions], [stream for _, stream in part])


def _shape(spec: HeadSpec) -> str:
    """Return what heads of one bank share besides their streams."""
    kept = "hidden branch classifier scale_learned dropout epochs batch_size optimizer mixes"
    return repr([getattr(spec, name) for name in kept.split()] + [bool(spec.noise)])


def _weights(spec: HeadSpec, data: Prepared) -> int:
    """Return the number of weights of a head."""
    sizes = data.table.space.sizes
    layers = [data.table.width, *filter(None, [spec.hidden])]
    entry = len(sizes) * spec.branch
    total = layers[0] * spec.hidden + layers[-1] * entry
    return total + sum(sizes) * (spec.branch or layers[-1])
