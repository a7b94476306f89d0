"""Run: the folder of one training run, with its settings, its environment and its results."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import pickle
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from rectifier._base import check
from rectifier._base.files import is_draft, read_json, write_bytes, write_json
from rectifier.data.dataset import PARTS, Decoded, ImageData
from rectifier.data.normalise import Normalisation
from rectifier.labels.space import LabelSpace
from rectifier.training.config import Config
from rectifier.training.run.environment import environment, session
from rectifier.training.run.predictions import Predictions, reading

Row = Mapping[str, Any]


class Run:
    """One training run on disk. All files are written atomically; ``metrics.json`` comes last, when the run is done.

    =============================  =====================================================================
    ``config.json``                the settings; ``rectifier train --config`` replays them
    ``asked.json``                 the settings as they were given, where the recipe filled in some
    ``environment.json``           versions, commit, hardware, resolved settings, sessions of work
    ``data.json``                  name, fingerprint, split hash, label space, class counts, normalisation
    ``history.csv``                one row per epoch: rate, loss and its parts, validation
    ``labels.csv``                 one row per epoch and label: the parts of the loss, alpha
    ``tensorboard/``               the same curves
    ``checkpoint.pt``              the state of training
    ``classifier.pt``              the state of the classifier's second training, which has its own curves
    ``weights.safetensors``        the weights of the chosen epoch
    ``decision.safetensors``       what decides by features, for methods whose classifier does not
    ``predictions/*.safetensors``  logits, features, targets and ids of validation and test
    ``rules.json``                 the decision rules fitted on validation, and the preferred one
    ``baselines.json``             what a constant answer and HOG score on the same split, for photographs
    ``metrics.json``               every metric under every rule
    =============================  =====================================================================

    JSON files are parsed once and again when they change. Do not change what the properties return.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._parsed: dict[str, tuple[tuple[int, ...], Any]] = {}

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @classmethod
    def create(cls, path: str | Path, config: Config, asked: Config | None = None) -> Run:
        """Create a run in a new or empty folder. ``asked`` is the config before the recipe filled it in."""
        cls.check_free(path, config)
        Path(path).mkdir(parents=True, exist_ok=True)
        run = cls(path)
        if asked is not None and asked != config:
            run._write_json("asked.json", asked.as_dict())
        run._write_json("config.json", config.as_dict())
        return run

    @staticmethod
    def check_free(path: str | Path, config: Config) -> None:
        """Refuse a folder that holds a run or other files."""
        folder = Path(path)
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"{folder} is a file. A run needs a folder.")
        if (folder / "config.json").is_file():
            run, wanted = Run(folder), config.as_dict()
            before = run.config.as_dict() if config == run.config else run.asked.as_dict()
            differ = [f"{key} {before[key]} there, {wanted[key]} here" for key in wanted if before[key] != wanted[key]]
            held = f"the same run, {'finished' if run.is_finished else 'not finished'}"
            held = f"another run ({'; '.join(differ[:3])})" if differ else held
            raise FileExistsError(f"{folder} already holds {held}. A new run needs a new or empty folder.")
        if folder.is_dir() and not all(map(is_draft, folder.iterdir())):
            raise ValueError(f"{folder} holds other files. A run needs a new or empty folder.")

    @classmethod
    def open(cls, path: str | Path | Run) -> Run:
        """Open an existing run by its folder."""
        run = path if isinstance(path, Run) else cls(path)
        if not (run.path / "config.json").is_file():
            if not run.path.exists():
                check.no_file(run.path)
            raise FileNotFoundError(f"{run.path} is not the folder of a run: it has no config.json.")
        return run

    @property
    def config(self) -> Config:
        found: Config = Run.open(self)._cached("config.json", Config.from_file)
        return found

    @property
    def asked(self) -> Config:
        """The config before the recipe filled in what it left open."""
        is_kept = (self.path / "asked.json").is_file()
        found: Config = self._cached("asked.json", Config.from_file) if is_kept else self.config
        return found

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
        path = Path("predictions") / f"{part}.safetensors"
        return Predictions.load(self.path / path if self.is_finished else self._file(path))

    def weights(self) -> dict[str, Tensor]:
        """Return the weights of the chosen epoch."""
        with reading(self._file("weights.safetensors"), "weights") as (weights, _):
            return weights

    def checkpoint(self, stage: str = "") -> dict[str, Any] | None:
        """Return the last saved state of a stage of training, or None."""
        path = self.path / f"{stage or 'checkpoint'}.pt"
        if not path.is_file():
            return None
        try:
            loaded: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        except (RuntimeError, EOFError, KeyError, pickle.UnpicklingError) as error:
            reason = str(error).partition("\n")[0]
            check.fail(str(path), "a checkpoint", f"a damaged file ({reason}); delete it to restart the run")
        return loaded

    def begin(self, data: ImageData, normalisation: Normalisation, decided: Row, fit: str = "stretch") -> None:
        """Start a session: record data and machine. A run that is resumed must have the same data."""
        for left in filter(is_draft, self.path.iterdir()):  # by a kill
            left.unlink(missing_ok=True)
        found = describe_data(data, normalisation, fit)
        if not (self.path / "data.json").is_file():
            self._write_json("data.json", found)
        elif differ := [key for key in found if key != "notes" and found[key] != self.data.get(key)]:
            raise ValueError(f"The data of {self.path} has changed since the run started: {', '.join(differ)}.")
        known = self.environment["sessions"] if (self.path / "environment.json").is_file() else []
        now = environment()
        sessions = [*known, {**session(), "commit": now["commit"]}]
        self._write_json("environment.json", {**now, "decided": dict(decided), "sessions": sessions})

    def end_session(self, **facts: Any) -> None:
        """Add facts, such as seconds, to the current session."""
        known = self.environment
        *before, last = known["sessions"]
        self._write_json("environment.json", {**known, "sessions": [*before, {**last, **facts}]})

    def save_checkpoint(self, state: Mapping[str, Any], stage: str = "") -> None:
        buffer = io.BytesIO()
        torch.save(dict(state), buffer)
        write_bytes(self.path / f"{stage or 'checkpoint'}.pt", buffer.getvalue(), durable=True)

    def save_weights(self, weights: Mapping[str, Tensor]) -> None:
        kept = {name: tensor.contiguous() for name, tensor in weights.items()}
        content = save(kept, {"label_space": self.space.to_json()})
        write_bytes(self.path / "weights.safetensors", content, durable=True)

    def save_predictions(self, part: str, predictions: Predictions) -> None:
        (self.path / "predictions").mkdir(exist_ok=True)
        predictions.save(self.path / "predictions" / f"{part}.safetensors")

    def save_decision(self, kind: str, state: Mapping[str, Tensor]) -> None:
        """Save what decides by features in place of the classifier."""
        write_bytes(self.path / "decision.safetensors", save(dict(state), {"kind": kind}), durable=True)

    def decision(self) -> tuple[str, dict[str, Tensor]] | None:
        """Return the kind and the state of what decides by features, or None where the classifier does."""
        path = self.path / "decision.safetensors"
        if not path.is_file():
            return None
        with reading(path, "a saved decision") as (state, facts):
            return facts["kind"], state

    def save_baselines(self, scores: Row) -> None:
        """Write the scores of the baselines: ``{"validation": {NAME: score}, "test": ...}``."""
        self._write_json("baselines.json", scores)

    @property
    def baselines(self) -> dict[str, dict[str, float]] | None:
        """The scores of the baselines, or None where a run has none."""
        return self._json("baselines.json") if (self.path / "baselines.json").is_file() else None

    def history(self) -> list[dict[str, float | None]]:
        """Return the rows of ``history.csv``; a blank is None."""
        path = self.path / "history.csv"
        if not path.is_file():
            return []
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        return [{name: float(value) if value else None for name, value in row.items()} for row in rows]

    def save_results(self, rules: Row, metrics: Row) -> None:
        """Write rules and metrics. This finishes the run."""
        self._write_json("rules.json", rules)
        self._write_json("metrics.json", metrics)

    def _file(self, name: str | Path) -> Path:
        """Return the path of a file that a finished run has."""
        path = self.path / name
        if not path.is_file():
            raise FileNotFoundError(f"{path} is missing: the run is not finished.")
        return path

    def _json(self, name: str) -> dict[str, Any]:
        content: dict[str, Any] = self._cached(name, read_json)
        return content

    def _cached(self, name: str, read: Callable[[Path], Any]) -> Any:
        """Return what a file holds. It is read again after another process or another ``Run`` has replaced it."""
        path = self._file(name)
        found = path.stat()
        version = (found.st_mtime_ns, found.st_size, found.st_ino)
        if name not in self._parsed or self._parsed[name][0] != version:
            self._parsed[name] = version, read(path)
        return self._parsed[name][1]

    def _write_json(self, name: str, content: Any) -> None:
        self._parsed.pop(name, None)  # two writes within one tick of the clock may look like one version
        write_json(self.path / name, content)


def describe_data(data: ImageData, normalisation: Normalisation, fit: str = "stretch") -> dict[str, Any]:
    """Return what a run records about its data, for JSON.

    ``fit`` says how images in memory were resized; images of a store know their own.
    """
    images, space = data.images, data.space
    split = sorted(f"{one}\n{part}" for one, part in zip(data.ids, data.split.tolist(), strict=True))
    counts = {
        part: {
            name: dict(zip(classes, own.tolist(), strict=True))
            for name, classes, own in zip(space.names, space.classes, data.counts(part), strict=True)
        }
        for part in PARTS
    }
    return {
        "name": data.name,
        "notes": list(data.notes),
        "fingerprint": data.fingerprint,
        "split_hash": hashlib.sha256("\n".join(split).encode(errors="surrogateescape")).hexdigest()[:16],
        "pixels": images.checksum() if isinstance(images, Decoded) else None,
        "shape": list(images.shape) if isinstance(images, Decoded) else None,
        "fit": getattr(images, "fit", fit),  # new images are resized in the same way
        "normalisation": {key: list(value) for key, value in asdict(normalisation).items()},
        "samples": {part: len(data.indices(part)) for part in PARTS},
        **json.loads(space.to_json()),
        "counts": counts,
    }
