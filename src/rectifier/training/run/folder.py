"""Run: a folder with what was asked for, what it was made with, and what came out."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor

from rectifier._base import check
from rectifier._base.files import is_draft
from rectifier.data.dataset import PARTS, Decoded, ImageData
from rectifier.data.normalise import Normalisation
from rectifier.labels.space import LabelSpace
from rectifier.training.config import Config
from rectifier.training.run.atomic import read_json, write_bytes, write_json
from rectifier.training.run.environment import environment, session
from rectifier.training.run.predictions import Predictions

Row = Mapping[str, Any]


class Run:
    """One training run on disk. Everything is written atomically; ``metrics.json`` comes last, when the run is done.

    =============================  =====================================================================
    ``config.json``                what was asked for; ``rectifier train --config`` replays it
    ``environment.json``           versions, commit, hardware, settings that were decided, stretches of work
    ``data.json``                  name, fingerprint, split hash, label space, class counts, normalisation
    ``history.csv``                one row an epoch: rate, loss and its parts, validation
    ``labels.csv``                 one row an epoch and label: the parts of the loss, alpha
    ``tensorboard/``               the same curves
    ``checkpoint.pt``              where training stands
    ``classifier.pt``              where the second training of the classifier stands, with curves of its own
    ``weights.safetensors``        the weights of the chosen epoch
    ``decision.safetensors``       what decides by features, for methods whose classifier does not
    ``predictions/*.safetensors``  logits, features, targets and ids of validation and test
    ``rules.json``                 the decision rules fitted on validation, and which it prefers
    ``metrics.json``               every metric under every rule
    =============================  =====================================================================
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @classmethod
    def create(cls, path: str | Path, config: Config) -> Run:
        """Begin a run in a new or empty folder."""
        cls.check_free(path, config)
        Path(path).mkdir(parents=True, exist_ok=True)
        write_json(Path(path) / "config.json", config.as_dict())
        return cls(path)

    @staticmethod
    def check_free(path: str | Path, config: Config) -> None:
        """Refuse a folder that holds another run, or anything else."""
        folder = Path(path)
        if folder.exists() and not folder.is_dir():
            check.fail("--out", "a folder", f"{folder}, which is a file")
        if (folder / "config.json").is_file():
            raise FileExistsError(_taken(Run(folder), config))
        if folder.is_dir() and not all(map(is_draft, folder.iterdir())):
            check.fail("--out", "a new or empty folder", f"{folder}, which holds other files")

    @classmethod
    def open(cls, path: str | Path | Run) -> Run:
        """Open a run that is there: by its folder, or as it is."""
        run = path if isinstance(path, Run) else cls(path)
        if not (run.path / "config.json").is_file():
            check.no_file(str(run.path), "the folder of a run, with a config.json", "rectifier train makes one.")
        return run

    @property
    def config(self) -> Config:
        return Config.from_file(self.path / "config.json")

    @property
    def is_finished(self) -> bool:
        return (self.path / "metrics.json").is_file()

    @property
    def data(self) -> dict[str, Any]:
        return self._json("data.json")

    @property
    def space(self) -> LabelSpace:
        return LabelSpace.from_json(json.dumps(self.data))

    @property
    def normalisation(self) -> Normalisation:
        known = self.data["normalisation"]
        return Normalisation(tuple(known["mean"]), tuple(known["std"]))

    @property
    def train_counts(self) -> list[Tensor]:
        """The training samples of each class, label by label."""
        return [torch.tensor(list(classes.values())) for classes in self.data["counts"]["train"].values()]

    @property
    def metrics(self) -> dict[str, Any]:
        return self._json("metrics.json")

    @property
    def rules(self) -> dict[str, Any]:
        return self._json("rules.json")

    @property
    def environment(self) -> dict[str, Any]:
        return self._json("environment.json")

    def predictions(self, part: str) -> Predictions:
        path = self.path / "predictions" / f"{part}.safetensors"
        if not path.is_file() and not self.is_finished:
            check.no_file(str(path), "saved predictions", self._unfinished())
        return Predictions.load(path)

    def weights(self) -> dict[str, Tensor]:
        """Return the weights of the chosen epoch."""
        path = self.path / "weights.safetensors"
        if not path.is_file():
            check.no_file(str(path), "the weights of a finished run", self._unfinished())
        try:
            return load(path.read_bytes())
        except SafetensorError as error:
            check.fail(str(path), "weights", f"a damaged file ({error})")

    def checkpoint(self, name: str = "checkpoint") -> dict[str, Any] | None:
        """Return where training stood when it was last saved, or None."""
        path = self.path / f"{name}.pt"
        if not path.is_file():
            return None
        try:
            loaded: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        except (RuntimeError, EOFError, KeyError, pickle.UnpicklingError) as error:
            reason = str(error).partition("\n")[0]
            check.fail(str(path), "a checkpoint", f"a damaged file ({reason}); delete it to begin the run anew")
        return loaded

    def begin(self, data: ImageData, normalisation: Normalisation, decided: Row, fit: str = "stretch") -> None:
        """Note data and machine, or, where they were noted before, see that the data is the same."""
        for left in filter(is_draft, self.path.iterdir()):  # by a kill
            left.unlink(missing_ok=True)
        found = describe_data(data, normalisation, fit)
        if (self.path / "data.json").is_file():
            self._check_same_data(found)
        else:
            write_json(self.path / "data.json", found)
        known = self.environment if (self.path / "environment.json").is_file() else {"sessions": []}
        now = environment()
        sessions = [*known["sessions"], {**session(), "commit": now["commit"]}]
        write_json(self.path / "environment.json", {**now, "decided": dict(decided), "sessions": sessions})

    def end_session(self, **facts: Any) -> None:
        """Add facts, such as seconds, to the present stretch of work."""
        known = self.environment
        known["sessions"][-1] |= facts
        write_json(self.path / "environment.json", known)

    def save_checkpoint(self, state: Mapping[str, Any], name: str = "checkpoint") -> None:
        buffer = io.BytesIO()
        torch.save(dict(state), buffer)
        write_bytes(self.path / f"{name}.pt", buffer.getvalue())

    def save_weights(self, weights: Mapping[str, Tensor]) -> None:
        kept = {name: tensor.contiguous() for name, tensor in weights.items()}
        write_bytes(self.path / "weights.safetensors", save(kept, {"label_space": self.space.to_json()}))

    def save_predictions(self, part: str, predictions: Predictions) -> None:
        folder = self.path / "predictions"
        folder.mkdir(exist_ok=True)
        predictions.save(folder / f"{part}.safetensors")

    def save_decision(self, kind: str, state: Mapping[str, Tensor]) -> None:
        """Keep what decides by features in place of the classifier."""
        write_bytes(self.path / "decision.safetensors", save(dict(state), {"kind": kind}))

    def decision(self) -> tuple[str, dict[str, Tensor]] | None:
        """Return the kind and the state of what decides by features, or None where the classifier does."""
        path = self.path / "decision.safetensors"
        if not path.is_file():
            return None
        try:
            with safe_open(path, "pt") as file:
                kept = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  it is no mapping
                return str(file.metadata()["kind"]), kept
        except (SafetensorError, KeyError, TypeError) as error:
            check.fail(str(path), "a saved decision", f"a damaged file ({error})")

    def save_results(self, rules: Row, metrics: Row) -> None:
        """Write what the predictions are worth; with this the run is finished."""
        write_json(self.path / "rules.json", rules)
        write_json(self.path / "metrics.json", metrics)

    def _check_same_data(self, found: dict[str, Any]) -> None:
        before = self.data
        differ = [key for key in found if key != "notes" and found[key] != before.get(key)]
        if differ:
            check.fail(f"the data of {self.path}", "what it began with", f"data with other {', '.join(differ)}")

    def _json(self, name: str) -> dict[str, Any]:
        if not (self.path / name).is_file():
            check.no_file(str(self.path / name), "there", self._unfinished())
        content: dict[str, Any] = read_json(self.path / name)
        return content

    def _unfinished(self) -> str:
        return f"The run is not finished; rectifier train --resume {self.path} goes on with it."


def describe_data(data: ImageData, normalisation: Normalisation, fit: str = "stretch") -> dict[str, Any]:
    """Return what a run must know of its data, for JSON.

    ``fit`` is how images in memory were brought to size; those of a store know it themselves.
    """
    images = data.images
    counted = {part: data.counts(part) for part in PARTS}
    return {
        "name": data.name,
        "notes": list(data.notes),
        "fingerprint": data.fingerprint,
        "split_hash": _split_hash(data),
        "pixels": images.checksum() if isinstance(images, Decoded) else None,
        "shape": list(images.shape) if isinstance(images, Decoded) else None,
        "fit": getattr(images, "fit", fit),  # how new images are to be brought to this size
        "normalisation": {key: list(value) for key, value in asdict(normalisation).items()},
        "samples": {part: len(data.indices(part)) for part in PARTS},
        **json.loads(data.space.to_json()),
        "counts": {part: _by_name(data.space, counts) for part, counts in counted.items()},
    }


def _split_hash(data: ImageData) -> str:
    """Hash which sample lies in which part, whatever the order they come in."""
    listed = sorted(f"{one}\n{part}" for one, part in zip(data.ids, data.split.tolist(), strict=True))
    return hashlib.sha256("\n".join(listed).encode(errors="surrogateescape")).hexdigest()[:16]


def _by_name(space: LabelSpace, counts: Sequence[Tensor]) -> dict[str, dict[str, int]]:
    named = zip(space.names, space.classes, counts, strict=True)
    return {name: dict(zip(classes, own.tolist(), strict=True)) for name, classes, own in named}


def _taken(run: Run, config: Config) -> str:
    """Say whose folder this is, and what to do."""
    before, wanted = run.config.as_dict(), config.as_dict()
    differ = [f"{key} {before[key]} there, {wanted[key]} here" for key in wanted if before[key] != wanted[key]]
    same = f"the same run, {'finished' if run.is_finished else 'not finished'}"
    got = f"{run.path}, which holds " + (f"another run ({'; '.join(differ[:3])})" if differ else same)
    hint = "" if run.is_finished else f" rectifier train --resume {run.path} goes on with the one there."
    return check.sentence("--out", "a new or empty folder", got) + hint
