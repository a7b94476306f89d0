"""Weights from a file or from a run: read, matched by name and shape, and a sentence that says what fitted."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from zipfile import BadZipFile

import torch
from torch import Tensor, nn

from rectifier._base import check
from rectifier._base.imports import with_extra

RUN_WEIGHTS = "weights.safetensors"
"""The file in the folder of a run that holds the weights of its network."""

ENOUGH = 0.5
"""Least share of a network's weights, without its head, that a file must hold."""

_NESTS = ("state_dict", "model_state_dict", "model", "model_ema", "state_dict_ema", "net", "network")
_PREFIXES = ("module.", "_orig_mod.", "model.", "trunk.", "backbone.", "encoder.", "0.", "1.")
_COUNTERS = "num_batches_tracked"  # no weights; old files lack them

Rename = Callable[[str], str]


def load_weights(network: nn.Module, path: Path | str, name: str = "this network") -> str:
    """Load weights into a network from a file or from the folder of a run, and return what fitted.

    Tensors are matched by name and shape, also without the ``trunk.`` of our networks and without the prefixes that
    wrappers add. What is not in the file keeps its values; a head for other classes, for example.

    >>> from tempfile import TemporaryDirectory
    >>> from rectifier.networks.mlp import mlp
    >>> with TemporaryDirectory() as folder:
    ...     torch.save(mlp([5], (20,)).state_dict(), f"{folder}/weights.pt")
    ...     print(load_weights(mlp([3], (20,)), f"{folder}/weights.pt"))
    2 of 4 tensors fitted, 5,376 weights; of another shape: head.classifier.weight, head.classifier.bias
    """
    return fit(network, read_weights(path), str(path), name)


def read_weights(path: Path | str) -> dict[str, Tensor]:
    """Return the tensors of a file (safetensors, or a state dict that torch saved) or of a finished run, by name."""
    file = weights_file(path)
    try:
        loaded = _read(file)
    except pickle.UnpicklingError as error:
        if " global" in str(error).lower():
            hint = "Save the tensors alone: torch.save(model.state_dict(), path)."
            raise ValueError(f"{file} holds Python objects besides tensors, which could run code. {hint}") from error
        _damaged(file, "not an archive of tensors")
    except (RuntimeError, EOFError, ValueError, KeyError, BadZipFile, UnicodeDecodeError) as error:
        _damaged(file, str(error).partition("\n")[0] or type(error).__name__)
    return _tensors(file, loaded)


def weights_file(path: Path | str) -> Path:
    """Return the file that holds the weights: the path itself, or the one in the folder of a run."""
    path = Path(path)
    if not path.exists():
        check.no_file(path, "Pass a file of weights or the folder of a finished run.")
    if not path.is_dir():
        return path
    if not (path / RUN_WEIGHTS).is_file():
        check.fail(str(path), f"a file of weights or a finished run, with {RUN_WEIGHTS}", "a folder without that file")
    return path / RUN_WEIGHTS


def _read(file: Path) -> Any:
    if not _is_safetensors(file):
        return torch.load(file, map_location="cpu", weights_only=True)
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ModuleNotFoundError as error:
        raise with_extra(error, str(file)) from None
    try:
        return load_file(file)
    except SafetensorError as error:
        raise ValueError(str(error)) from error


def _is_safetensors(file: Path) -> bool:
    """Say whether a file is named so, or starts as safetensors do: a length of eight bytes, and JSON of that length."""
    if file.suffix == ".safetensors":
        return True
    with file.open("rb") as opened:
        start = opened.read(9)
    return start[8:] == b"{" and 2 <= int.from_bytes(start[:8], "little") < file.stat().st_size


def _damaged(file: Path, reason: str) -> NoReturn:
    with file.open("rb") as opened:
        start = opened.read(12)
    text = start.decode("ascii", "replace")
    if not start:
        reason = "it is empty"
    elif text.isprintable() and not text.startswith("PK"):
        reason = f"it starts with the text {text!r}"
    check.fail(str(file), "weights in safetensors or saved by torch", f"a damaged or other file ({reason})")


def _tensors(file: Path, loaded: Any) -> dict[str, Tensor]:
    while isinstance(loaded, Mapping):
        found = {str(name): value for name, value in loaded.items() if isinstance(value, Tensor)}
        if found:
            return found
        inner = next((loaded[nest] for nest in _NESTS if nest in loaded), None)
        loaded = inner.state_dict() if isinstance(inner, nn.Module) else inner
    check.fail(str(file), "weights: tensors by name", "a file without any")


def sha256_of(file: Path) -> str:
    """Return the SHA-256 of a file."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def fit(
    network: nn.Module,
    found: Mapping[str, Tensor],
    source: str,
    name: str,
    rename: Rename | None = None,
    *,
    same_shapes: bool = False,
) -> str:
    """Load those tensors that fit by name and shape, and return the sentence about all of them.

    ``rename`` gives our name of a tensor of the file, where the file may be of another code. Too few is an error, and
    so are weights that are no finite numbers. With ``same_shapes``, so is a tensor of another shape.
    """
    own: dict[str, Tensor] = network.state_dict()
    match = max((_matched(own, found, one) for one in _spellings(rename)), key=lambda match: match.weights)
    body = [tensor for one, tensor in own.items() if not one.startswith("head.classifier.") and counts(one)]
    if match.weights < ENOUGH * sum(tensor.numel() for tensor in body):
        problem = f"{source} does not hold weights of {name}: {match.sentence()}."
        raise ValueError(f"{problem} Pass the weights of the same network, or name the network that they are of.")
    if same_shapes and match.other_shape:
        problem = f"{source} has other shapes than {name} in {_listed(match.other_shape)}."
        raise ValueError(f"{problem} Some networks fit one image size only: set --size to that of the weights.")
    if damaged := [one for one, tensor in match.fitted.items() if not bool(tensor.isfinite().all())]:
        check.fail(f"all weights of {source}", "finite numbers", f"others in {_listed(damaged)}")
    network.load_state_dict(match.fitted, strict=False)
    return match.sentence()


@dataclass(frozen=True)
class _Match:
    fitted: dict[str, Tensor]
    total: int
    other_shape: list[str]
    missing: list[str]
    unused: list[str]

    @property
    def weights(self) -> int:
        return sum(tensor.numel() for name, tensor in self.fitted.items() if counts(name))

    def sentence(self) -> str:
        fitted = sum(map(counts, self.fitted))
        text = f"{fitted} of {check.amount(self.total, 'tensor')} fitted, {check.amount(self.weights, 'weight')}"
        for what, names in (
            ("of another shape", self.other_shape),
            ("not in the file", self.missing),
            ("not used", self.unused),
        ):
            text += f"; {what}: {_listed(names)}" if names else ""
        return text


def _matched(own: Mapping[str, Tensor], found: Mapping[str, Tensor], rename: Rename) -> _Match:
    renamed = {rename(name): name for name in found}
    there = [name for name in own if name in renamed]
    fitted = {name: found[renamed[name]] for name in there if found[renamed[name]].shape == own[name].shape}
    other = [name for name in there if name not in fitted]
    missing = [name for name in own if name not in renamed and counts(name)]
    unused = [old for new, old in renamed.items() if new not in own and counts(old)]
    return _Match(fitted, sum(map(counts, own)), other, missing, unused)


def _spellings(rename: Rename | None) -> Iterable[Rename]:
    """Yield the ways to read the names of a file: as they are, without wrappers' prefixes, with our ``trunk.``."""

    def plain(name: str) -> str:
        while prefix := next((one for one in _PREFIXES[:2] if name.startswith(one)), None):
            name = name.removeprefix(prefix)
        return name

    yield plain
    yield lambda name: f"trunk.{plain(name)}"
    for prefix in _PREFIXES[2:]:
        yield lambda name, prefix=prefix: plain(name).removeprefix(prefix)  # type: ignore[misc]
        yield lambda name, prefix=prefix: "trunk." + plain(name).removeprefix(prefix)  # type: ignore[misc]
    if rename is not None:
        yield lambda name: rename(plain(name))


def counts(name: str) -> bool:
    """Say whether a tensor holds weights or statistics, and not a counter."""
    return not name.endswith(_COUNTERS)


def _listed(names: Sequence[str], most: int = 4) -> str:
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
