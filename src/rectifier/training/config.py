"""Config: everything that makes a training run what it is, in one flat record that can be saved, replayed, overridden.

Overrides come as ``key=value``. A key is a field of ``Config``, an option of the method, of the network or of the data
(``eta``, ``depth``, ``missing``), or such an option with its owner in front (``network.dropout``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from rectifier._base import check
from rectifier.data.dataset import as_size
from rectifier.data.decode import FITS
from rectifier.data.sources import SOURCES, literal, source_options
from rectifier.methods import find_method, needed_of_network
from rectifier.networks.registry import NETWORKS, network_options

OPTIMIZERS = ("sgd", "adamw")
SCHEDULES = ("cosine", "step", "constant")
PRECISIONS = ("auto", "32", "bf16", "16", "64")
ACCELERATORS = ("auto", "cpu", "cuda", "mps")
STEPS = ("auto", "eager", "compiled", "captured")
SELECTIONS = ("argmax", "prior", "last")

SETTINGS: dict[str, str] = {
    "data": "a data set's name, with options as in cifar100:imb=1, or a table, folder or store",
    "images": "the folder that a table's image paths start from",
    "data_root": "the folder that holds the data sets",
    "data_options": "options of the reader, one by one as data.NAME",
    "split_seed": "seed of the split that a reader draws; none: the reader's own",
    "resplit": "draw the split anew with each seed, by the seed itself and not by split_seed",
    "size": "HEIGHTxWIDTH that images are decoded to; none: the network's published size",
    "fit": "other aspect ratios: stretch, crop or pad",
    "unreadable": "damaged images: skip them, or raise an error",
    "method": "rectifier list methods",
    "method_options": "options of the method, one by one as NAME or method.NAME",
    "network": "rectifier list networks",
    "network_options": "options of the network, one by one as NAME or network.NAME",
    "epochs": "passes over the training part",
    "batch_size": "images in a batch, of all devices together",
    "seed": "of weights, order and augmentation",
    "optimizer": "sgd or adamw",
    "lr": "learning rate; none: the network's over the root of the number of labels, whose losses add up",
    "momentum": "of sgd",
    "nesterov": "of sgd",
    "weight_decay": "of all weights",
    "schedule": "of the learning rate: cosine, step or constant",
    "milestones": "of schedule step: shares of the training at which the rate falls",
    "decay": "of schedule step: the factor at each milestone",
    "warmup": "epochs in which the rate rises",
    "clip": "the largest norm of a gradient; none: any",
    "accumulate": "batches whose gradients are averaged for one step",
    "drop_last": "leave out a last batch that is not full",
    "padding": "pixels that a training image may be shifted; none: an eighth of its shorter side",
    "flip": "mirror half of the training images; none: yes, unless it is known that labels change with it",
    "validate_every": "epochs between validations",
    "patience": "validations without a gain after which training ends; none: never",
    "select": "keep the epoch that validation finds best under this rule, argmax or prior, or the last",
    "precision": "32, bf16, 16 or 64; auto: bf16 on a GPU that has it, else 32",
    "step": "eager, captured (as a CUDA graph) or compiled (and captured where it can be); auto: what is fastest",
    "batch_norm": "over the batches of all devices (global), or of each alone (local)",
    "accelerator": "auto, cpu, cuda or mps",
    "devices": "devices on each node",
    "nodes": "machines; start with torchrun or srun",
    "checkpoint_seconds": "between checkpoints",
    "tensorboard": "write curves for TensorBoard",
    "features": "save features with the predictions",
}

# What does not change what is learned: where data lies, what it is computed on, what is written beside it.
_ELSEWHERE = (
    *("seed", "images", "data_root", "accelerator", "devices", "nodes"),
    *("step", "checkpoint_seconds", "tensorboard", "features"),
)


@dataclass(frozen=True)
class Config:
    """One training run; ``SETTINGS`` says what each field means.

    What is None by default is decided by the data, the network or the machine.
    """

    data: str
    images: str | None = None
    data_root: str | None = None
    data_options: dict[str, Any] = field(default_factory=dict)
    split_seed: int | None = None
    resplit: bool = False
    size: str | None = None
    fit: str = "stretch"
    unreadable: str = "skip"

    method: str = "crl"
    method_options: dict[str, Any] = field(default_factory=dict)
    network: str = "resnet32"
    network_options: dict[str, Any] = field(default_factory=dict)

    epochs: int = 30
    batch_size: int = 128
    seed: int = 0
    optimizer: str = "sgd"
    lr: float | None = None
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 5e-4
    schedule: str = "cosine"
    milestones: tuple[float, ...] = (0.5, 0.75)
    decay: float = 0.1
    warmup: float = 0.0
    clip: float | None = None
    accumulate: int = 1
    drop_last: bool = False
    padding: int | None = None
    flip: bool | None = None

    validate_every: int = 1
    patience: int | None = None
    select: str = "argmax"

    precision: str = "auto"
    step: str = "auto"
    batch_norm: str = "global"
    accelerator: str = "auto"
    devices: int = 1
    nodes: int = 1
    checkpoint_seconds: float = 60.0
    tensorboard: bool = True
    features: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.milestones, list):
            object.__setattr__(self, "milestones", tuple(self.milestones))
        object.__setattr__(self, "size", None if self.size is None else str(self.size))
        check.raise_all([*_complaints(self), *_late_complaints(self)])

    def with_settings(self, settings: Mapping[str, Any]) -> Config:
        """Return this config with some keys changed; an unknown key is answered with the nearest.

        >>> changed = Config("digits").with_settings({"eta": "0.5", "network.dropout": 0.2, "epochs": "3"})
        >>> changed.epochs, changed.method_options, changed.network_options
        (3, {'eta': 0.5}, {'dropout': 0.2})
        >>> Config("digits").with_settings({"method": "crl:eta=0.5"}).method_options
        {'eta': 0.5}
        """
        settings = _unpacked(settings)
        own = {f.name: f for f in fields(self)}
        chosen = {key: _typed(key, settings.pop(key), str(own[key].type)) for key in list(settings) if key in own}
        changed = _replaced(self, chosen)
        for key, value in settings.items():
            owner, option = _owner(changed, key)
            options = {**getattr(changed, f"{owner}_options"), option: value if owner == "data" else _value(value)}
            changed = _replaced(changed, {f"{owner}_options": options})
        return changed

    def as_dict(self) -> dict[str, Any]:
        """Return all fields as plain values for JSON."""
        return json.loads(json.dumps(asdict(self), default=str))  # type: ignore[no-any-return]

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Config:
        """Take what ``as_dict`` gave; fields that are left out have their defaults.

        >>> Config.from_dict(Config("digits", epochs=3).as_dict()) == Config("digits", epochs=3)
        True
        """
        check.options_of("a config", values, [f.name for f in fields(cls)])
        if "data" not in values:
            check.fail("a config", "one that names its data", "none")
        return cls(**values)

    @classmethod
    def from_file(cls, path: str | Path) -> Config:
        """Read a config of a run, or one written by hand."""
        if not Path(path).is_file():
            check.no_file(str(path), "a config as JSON", "A run keeps its own as config.json.")
        try:
            values = json.loads(Path(path).read_text(encoding="utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            check.fail(str(path), "a config as JSON", f"something else ({error})")
        if not isinstance(values, dict):
            check.fail(str(path), "a config as JSON, an object with fields", f"a {type(values).__name__}")
        return cls.from_dict(values)

    def identity(self) -> dict[str, Any]:
        """Return what makes this run what it is, except its seed: ``{"method": "crl", "method.eta": 0.5, ...}``."""
        flat: dict[str, Any] = {}
        for name, value in self.as_dict().items():
            if isinstance(value, dict):
                flat |= {f"{name.removesuffix('_options')}.{key}": value[key] for key in sorted(value)}
            elif name not in _ELSEWHERE:
                flat[name] = value
        if _is_path(self.data):  # the same table may lie elsewhere; that it is the same, its fingerprint says
            flat["data"] = Path(self.data).name
        return flat

    def anchored(self) -> Config:
        """Return this config with absolute paths, so that it can be replayed from any folder."""
        paths: dict[str, Any] = {name: _absolute(getattr(self, name)) for name in ("images", "data_root")}
        # What is not there stays as it was written: it may be a misspelt name.
        paths["data"] = _absolute(self.data) if _is_path(self.data) and Path(self.data).exists() else self.data
        return replace(self, **paths)


def _complaints(config: Config) -> list[str | None]:
    positive = "a number above 0"

    def at_least(name: str, smallest: float, optional: bool = False) -> str | None:
        value = getattr(config, name)
        ok = (optional and value is None) or (check.is_real(value) and value >= smallest)
        return check.that(name, value, f"a number of at least {smallest:g}", ok)

    def count(name: str, optional: bool = False) -> str | None:
        value = getattr(config, name)
        return check.that(name, value, "a positive integer", (optional and value is None) or check.is_count(value))

    def natural(name: str, optional: bool = False) -> str | None:
        value = getattr(config, name)
        ok = (optional and value is None) or check.is_natural(value)
        return check.that(name, value, "an integer from 0", ok)

    def text(name: str) -> str | None:
        value = getattr(config, name)
        return check.that(name, value, "a path", value is None or isinstance(value, (str, Path)))

    def options(name: str) -> str | None:
        value = getattr(config, name)
        return check.that(name, value, "options by name", isinstance(value, Mapping))

    def switch(name: str, optional: bool = False) -> str | None:
        value = getattr(config, name)
        return check.that(name, value, "True or False", isinstance(value, bool) or (optional and value is None))

    lr, clip, shares, momentum = config.lr, config.clip, config.milestones, config.momentum
    return [
        check.that("data", config.data, "a name or a path", isinstance(config.data, str) and bool(config.data)),
        check.that("method", config.method, "a name", isinstance(config.method, str)),
        *(count(name) for name in ("epochs", "batch_size", "accumulate", "validate_every", "devices", "nodes")),
        check.that("seed", config.seed, f"an integer from 0 to {_LARGEST_SEED}", _is_seed(config.seed)),
        natural("split_seed", optional=True),
        natural("padding", optional=True),
        count("patience", optional=True),
        *(at_least(name, 0) for name in ("weight_decay", "warmup", "checkpoint_seconds")),
        check.that("momentum", momentum, "from 0 and below 1", check.is_real(momentum) and 0 <= momentum < 1),
        check.share("decay", config.decay),
        check.that(
            "nesterov", config.nesterov, "false where momentum is 0", not (config.nesterov is True and momentum == 0)
        ),
        check.that("lr", lr, positive, lr is None or (check.is_real(lr) and lr > 0)),
        check.that("clip", clip, positive, clip is None or (check.is_real(clip) and clip > 0)),
        check.that(
            "milestones",
            shares,
            "shares of the training, ascending from 0 to 1",
            isinstance(shares, tuple)
            and all(check.is_real(s) and 0 <= s <= 1 for s in shares)
            and list(shares) == sorted(shares),
        ),
        check.choice("optimizer", config.optimizer, OPTIMIZERS),
        check.choice("schedule", config.schedule, SCHEDULES),
        check.choice("precision", config.precision, PRECISIONS),
        check.choice("accelerator", config.accelerator, ACCELERATORS),
        check.choice("select", config.select, SELECTIONS),
        check.choice("step", config.step, STEPS),
        check.choice("batch_norm", config.batch_norm, ("global", "local")),
        check.choice("unreadable", config.unreadable, ("skip", "raise")),
        check.choice("fit", config.fit, FITS),
        *(text(name) for name in ("images", "data_root")),
        *(options(name) for name in ("data_options", "method_options", "network_options")),
        *(switch(name) for name in ("resplit", "nesterov", "drop_last", "tensorboard", "features")),
        switch("flip", optional=True),
        _network_complaint(config.network),
    ]


_LARGEST_SEED = 2**32 - 1  # of PyTorch's CPU generator, which heeds no more


def _is_seed(value: object) -> bool:
    return check.is_natural(value) and int(value) <= _LARGEST_SEED  # type: ignore[call-overload]


def _late_complaints(config: Config) -> Iterator[str]:
    """Size and options have checks of their own, which raise."""
    checks: list[Callable[[], object]] = [lambda: as_size(config.size)]
    if isinstance(config.method, str):
        checks.append(lambda: _check_method(config))
    if isinstance(config.network, str) and config.network in NETWORKS and isinstance(config.network_options, Mapping):
        network = f"network {config.network!r}"
        checks.append(lambda: check.options_of(network, config.network_options, network_options(config.network)))
    for each in checks:
        try:
            each()
        except ValueError as error:
            yield str(error)


def _network_complaint(name: str) -> str | None:
    if str(name).partition(":")[0] in ("timm", "torchvision") and ":" in name:
        return None
    return check.choice("network", name, (*NETWORKS, "timm:NAME", "torchvision:NAME"))


def _check_method(config: Config) -> None:
    method = find_method(config.method)
    if isinstance(config.method_options, Mapping):
        check.options_of(f"method {config.method!r}", config.method_options, method.options)
    if isinstance(config.network_options, Mapping):
        needed_of_network(config.method, config.network_options)
    if method.decision is not None and method.objective is not None and config.patience is not None:
        check.fail("patience", f"none for {config.method}, whose classifier validation cannot judge", config.patience)


def _unpacked(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Take a method and the options behind it apart; what is given beside them goes before them.

    >>> _unpacked({"method": "crl:eta=0.5", "epochs": 3})
    {'method.eta': '0.5', 'method': 'crl', 'epochs': 3}
    """
    name, *options = str(settings.get("method", "")).split(":")
    if not options:
        return dict(settings)
    unpacked = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals or f"method.{key.strip()}" in unpacked:
            check.fail(f"options of method {name!r}", "KEY=VALUE, each once, with colons between", repr(option))
        unpacked[f"method.{key.strip()}"] = value.strip()
    return {**unpacked, **settings, "method": name}


def _replaced(config: Config, chosen: Mapping[str, Any]) -> Config:
    """Change fields. Options of a method or network that is left for another do not go with it."""
    chosen = dict(chosen)
    for owner in ("method", "network", "data"):
        if owner in chosen and chosen[owner] != getattr(config, owner):
            chosen.setdefault(f"{owner}_options", {})
    return replace(config, **chosen)


def _owner(config: Config, key: str) -> tuple[str, str]:
    """Return whose option a key is: ``("method", "eta")``."""
    owners: dict[str, Callable[[], Sequence[str]]] = {
        "method": lambda: find_method(config.method).options,
        "network": lambda: network_options(config.network) if config.network in NETWORKS else (),
        "data": lambda: source_options(config.data, config.data_root),
    }
    owner, dot, option = key.partition(".")
    if dot and owner in owners:
        if owner == "network" and config.network not in NETWORKS:
            return owner, option  # another library knows its own options
        check.options_of(f"{owner} {getattr(config, owner)!r}", [option], owners[owner]())
        return owner, option
    takers = [name for name, options in owners.items() if key in options()]
    if len(takers) > 1:
        listed = " or ".join(f"{name}.{key}" for name in takers)
        check.fail("--set", f"clear about whose option it is ({listed})", repr(key))
    if not takers:
        known = [f.name for f in fields(config)] + [o for options in owners.values() for o in options()]
        wanted = f"a setting, or an option of {config.method}, {config.network} or the data"
        raise ValueError(check.sentence("every key of --set", wanted, repr(key)) + check.nearest(key, known))
    return takers[0], key


def _typed(key: str, value: Any, annotation: str) -> Any:
    """Read text as a field's annotation says; what is no text stays as it is."""
    if not isinstance(value, str):
        return value
    if value.lower() in ("none", "null", "") and "None" in annotation:
        return None
    if annotation.startswith("dict"):
        check.fail(key, f"given option by option, such as {key.removesuffix('_options')}.NAME=VALUE", repr(value))
    if annotation.startswith("tuple"):
        return tuple(literal(part) for part in value.split(",") if part.strip())
    if "str" in annotation:
        return value
    read = literal(value)
    if "bool" in annotation and not isinstance(read, bool):
        check.fail(key, "true or false", repr(value))
    return read


def _value(value: Any) -> Any:
    """Read an option's value off text: a number, a yes or no, a name, or a list with commas between."""
    if not isinstance(value, str):
        return value
    return [literal(part.strip()) for part in value.split(",")] if "," in value else literal(value)


def _is_path(data: str) -> bool:
    return data.partition(":")[0] not in SOURCES


def _absolute(path: str | None) -> str | None:
    return None if path is None else str(Path(path).absolute())
