"""Config: the settings of one training run, in a flat record that can be saved, replayed and overridden.

Overrides come as ``key=value``. A key is a setting, an option of the method, of the network or of the data (``eta``,
``depth``, ``missing``), or such an option with its owner in front (``network.dropout``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from numbers import Number
from pathlib import Path, PurePath
from typing import Any

from pydantic import ConfigDict, ValidationError, create_model

from rectifier._base import check
from rectifier.data.dataset import as_size
from rectifier.data.sources import SOURCES, literal, source_options
from rectifier.methods import METHODS, find_method, needed_of_network
from rectifier.networks.pretrained import is_pretrained
from rectifier.networks.registry import NETWORKS, network_options
from rectifier.training.settings import SETTINGS, Setting, Settings

AUTO = "auto"
"""The method or network that the recipe chooses by the data."""

DEFAULT_METHOD = "logit-adjustment"
"""The method of a pretrained network, unless another is given: it finds most on features. Others start with CRL."""

HEAD_OPTIONS = ("hidden", "branch", "classifier", "scale", "scale_learned", "init", "dropout")
"""The options of the head of a pretrained network (see ``HeadSpec``)."""

LIBRARIES = ("timm:", "torchvision:", "hf:")


@dataclass(frozen=True)
class Config(Settings):
    """The settings of one training run.

    Where the default is None, the data, the network or the machine decides.
    """

    def __post_init__(self) -> None:
        for name in SETTINGS:
            object.__setattr__(self, name, _plain(name, getattr(self, name)))
        object.__setattr__(self, "method", _known_method(self.method, self.network))
        check.raise_all([*_field_complaints(vars(self)), *_joint_complaints(self)])

    def with_settings(self, settings: Mapping[str, Any]) -> Config:
        """Return this config with some settings changed; an error names the key nearest to an unknown one.

        >>> config = Config("digits", network="resnet32")
        >>> changed = config.with_settings({"eta": "0.5", "network.dropout": 0.2, "epochs": "3"})
        >>> changed.epochs, changed.method_options, changed.network_options
        (3, {'eta': 0.5}, {'dropout': 0.2})
        >>> Config("digits").with_settings({"method": "crl:eta=0.5"}).method_options
        {'eta': 0.5}
        """
        settings = _unpacked(settings)
        values = dict(vars(self))
        chosen = {key: _read(settings.pop(key), SETTINGS[key]) for key in list(settings) if key in SETTINGS}
        for owner in ("method", "network", "data"):  # another method does not take the options of the one before
            if chosen.get(owner, values[owner]) != values[owner]:
                values[f"{owner}_options"] = {}
        values |= chosen
        values["method"] = _known_method(values["method"], values["network"])
        complaints = []
        for key, value in settings.items():
            try:
                owner, option = _owner(values, key)
            except ValueError as error:
                complaints.append(str(error))
                continue
            own = values[f"{owner}_options"]
            if isinstance(own, Mapping):  # if not, the config says so
                values[f"{owner}_options"] = {**own, option: value if owner == "data" else _read(value)}
        if complaints:
            check.raise_all(dict.fromkeys([*complaints, *_field_complaints(values)]))
        return replace(self, **values)

    def as_dict(self) -> dict[str, Any]:
        """Return all settings as plain values for JSON."""
        return json.loads(json.dumps(asdict(self), default=str))  # type: ignore[no-any-return]

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Config:
        """Build a config from the result of ``as_dict``; missing settings get their defaults.

        >>> Config.from_dict(Config("digits", epochs=3).as_dict()) == Config("digits", epochs=3)
        True
        """
        check.options_of("a config", values, SETTINGS)
        if "data" not in values:
            raise ValueError("A config must name its data, but this one does not.")
        return cls(**values)

    @classmethod
    def from_file(cls, path: str | Path) -> Config:
        """Read a config from JSON: the ``config.json`` of a run, or one written by hand."""
        if not Path(path).is_file():
            check.no_file(f"The file {path}", "Every run folder has a config.json.")
        try:
            values = json.loads(Path(path).read_text(encoding="utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is not a config: it is not valid JSON ({error}).") from None
        if not isinstance(values, dict):
            raise ValueError(f"{path} is not a config: it holds a {type(values).__name__}, not a JSON object.")
        return cls.from_dict(values)

    def identity(self) -> dict[str, Any]:
        """Return the settings that decide what is learned, without the seed: ``{"method": "crl", "method.eta": 0.5}``.

        Runs with equal identities are repetitions of one experiment. Settings of pretrained networks count only where
        they are given, so that records of other networks keep their names.
        """
        flat: dict[str, Any] = {}
        for name, value in self.as_dict().items():
            if SETTINGS[name].since_pretrained and value == SETTINGS[name].default:
                continue
            if isinstance(value, dict):
                flat |= {f"{name.removesuffix('_options')}.{key}": value[key] for key in sorted(value)}
            elif SETTINGS[name].identity:
                flat[name] = value
        if _is_path(self.data):  # the same table may lie elsewhere; its fingerprint tells whether it is the same
            flat["data"] = Path(self.data).name
        return flat

    def anchored(self) -> Config:
        """Return this config with absolute paths, so that it can be replayed from any folder."""
        paths = {"images": self.images, "data_root": self.data_root, "weights": self.weights}
        if _is_path(self.data) and Path(self.data).exists():  # else it may be a misspelt name
            paths["data"] = self.data
        found: dict[str, Any] = {name: str(Path(path).absolute()) for name, path in paths.items() if path is not None}
        return replace(self, **found)


_LISTED = (
    f"        {name}: {one.help}{one.default_text and f' Default: {one.default_text}.'}"
    for name, one in SETTINGS.items()
)
Config.__doc__ = "\n".join([f"{Config.__doc__}\n    Args:", *_LISTED])

_CHECKED = create_model(  # type: ignore[call-overload]
    "_CHECKED",
    __config__=ConfigDict(strict=True, allow_inf_nan=False),
    **{name: (one.hint, ...) for name, one in SETTINGS.items()},
)


def _plain(name: str, value: Any) -> Any:
    """Bring other spellings of a value to the one that JSON gives back: NumPy's numbers, paths, lists, sizes."""
    if isinstance(value, Number) and hasattr(value, "item"):
        return value.item()
    if isinstance(value, PurePath) or (name == "size" and value is not None):
        return str(value)
    return tuple(value) if name == "milestones" and isinstance(value, list) else value


def _field_complaints(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each setting with a wrong value. Pydantic checks; its own messages name its own types."""
    try:
        _CHECKED.model_validate(dict(values))
    except ValidationError as error:
        for name in dict.fromkeys(one["loc"][0] for one in error.errors(include_url=False)):
            one, value = SETTINGS[str(name)], values[str(name)]
            yield check.sentence(str(name), one.wanted, repr(value)) + check.nearest(value, one.choices)


def _known_method(method: Any, network: Any) -> Any:
    """Return the method, or where it is open that of the network, unless that is open too."""
    if method != AUTO or network == AUTO or not isinstance(network, str):
        return method
    return DEFAULT_METHOD if is_pretrained(network) else "crl"


def _joint_complaints(config: Config) -> Iterator[str]:
    """Yield a sentence for each value that does not fit the other settings, or that is no known name."""
    if config.nesterov is True and config.momentum == 0:
        yield "nesterov needs momentum, but momentum is 0."
    checks: list[Callable[[Config], object]] = [lambda config: as_size(config.size), _check_method, _check_network]
    for each in checks:
        try:
            each(config)
        except ValueError as error:
            yield str(error)


def _check_method(config: Config) -> None:
    if not isinstance(config.method, str):
        return
    if config.method == AUTO:
        if config.method_options and isinstance(config.method_options, Mapping):
            option = next(iter(config.method_options))
            taker = next((name for name, one in METHODS.items() if option in one.options), "crl")
            raise ValueError(f"Options of a method need its name: method={taker}:{option}=...")
        return
    method = find_method(config.method)
    if isinstance(config.method_options, Mapping):
        check.options_of(f"method {config.method!r}", config.method_options, method.options)
    if isinstance(config.network_options, Mapping):
        needed_of_network(config.method, config.network_options)
    if method.decision is not None and method.objective is not None and config.patience is not None:
        raise ValueError(f"{config.method} takes no patience: validation cannot judge its classifier during training.")


def _check_network(config: Config) -> None:
    network = config.network
    if not isinstance(network, str) or network.startswith(LIBRARIES):  # they check their own options
        return
    names = (AUTO, *NETWORKS, *(f"{library}NAME" for library in LIBRARIES))
    check.raise_all([check.choice("network", network, names, "NETWORKS")])
    if isinstance(config.network_options, Mapping):
        check.options_of(f"network {network!r}", config.network_options, options_of_network(network))
    if network in NETWORKS and not is_pretrained(network) and config.tune in ("head", "last"):
        check.fail("tune", f"all for {network}, which has no pretrained weights", config.tune)


def _unpacked(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Split a method from the options that follow it; the same option given separately wins.

    >>> _unpacked({"method": "crl:eta=0.5", "epochs": 3})
    {'method.eta': '0.5', 'method': 'crl', 'epochs': 3}
    """
    method = str(settings.get("method", ""))
    name, *options = method.split(":")
    if not options:
        return dict(settings)
    if (colons := re.sub(r",(?=\s*\w+\s*=)", ":", method)) != method:
        raise ValueError(f"Separate the options of a method with colons: {colons}.")
    unpacked = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals or f"method.{key.strip()}" in unpacked:
            check.fail(f"options of method {name!r}", "KEY=VALUE, each once, with colons between", repr(option))
        unpacked[f"method.{key.strip()}"] = value.strip()
    return {**unpacked, **settings, "method": name}


def _owner(values: Mapping[str, Any], key: str) -> tuple[str, str]:
    """Return the owner of an option: ``("method", "eta")``."""
    method, network = values["method"], str(values["network"])
    owners: dict[str, Callable[[], Sequence[str]]] = {  # data is only looked for where its options are needed
        "method": lambda: _options_of_methods() if method == AUTO else find_method(method).options,
        "network": lambda: options_of_network(network),
        "data": lambda: source_options(values["data"], values["data_root"]),
    }
    owner, dot, option = key.partition(".")
    if dot and owner in owners:
        if owner != "network" or not network.startswith(LIBRARIES):  # another library checks its own options
            check.options_of(f"{owner} {values[owner]!r}", [option], owners[owner]())
        return owner, option
    taken = {name: options() for name, options in owners.items()}
    takers = [name for name, options in taken.items() if key in options]
    if len(takers) > 1 and method == AUTO:
        takers.remove("method")
    if len(takers) > 1:
        raise ValueError(f"{key!r} is ambiguous. Write {' or '.join(f'{name}.{key}' for name in takers)}.")
    if not takers:
        if network == AUTO and (named := [name for name in NETWORKS if key in network_options(name)]):
            raise ValueError(f"{key!r} needs the name of its network, such as network={named[0]}.")
        which = ["the method" if method == AUTO else method, "the network" if network == AUTO else network]
        where = f"neither a setting nor an option of {', '.join(which)} or the data"
        known = [*SETTINGS, *(option for options in taken.values() for option in options)]
        raise ValueError(f"{key!r} is {where}.{check.nearest(key, known)}")
    return takers[0], key


def _options_of_methods() -> tuple[str, ...]:
    """Return the options of all methods. Where a method is open, the config then asks for its name."""
    return tuple(dict.fromkeys(option for method in METHODS.values() for option in method.options))


def _read(value: Any, setting: Setting | None = None) -> Any:
    """Read text by the type of its setting; other values stay as they are.

    Without a setting it is an option: a number, true or false, a name, or a list with commas.
    """
    if not isinstance(value, str):
        return value
    if setting is None:
        return [literal(part.strip()) for part in value.split(",")] if "," in value else literal(value)
    if setting.default is None and value.lower() in ("none", "null", ""):
        return None
    if setting.kind is tuple:
        return tuple(literal(part) for part in value.split(",") if part.strip())
    return value if setting.kind in (str, dict) else literal(value)


def options_of_network(network: str) -> tuple[str, ...]:
    """Return the names of a network's options. A pretrained one has those of its head."""
    if network == AUTO or is_pretrained(network):
        return HEAD_OPTIONS
    return network_options(network) if network in NETWORKS else ()


def _is_path(data: str) -> bool:
    return data.partition(":")[0] not in SOURCES
