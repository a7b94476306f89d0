"""Every setting of a training run, declared once: name, type, bounds, choices, default, help, part of the identity.

``Config`` adds behaviour to ``Settings``. The checks, the options of the command line, ``rectifier list settings`` and
the documentation read ``SETTINGS``. This module imports nothing heavy, so that ``rectifier --help`` answers at once.
"""

# ruff: noqa: RUF009  _setting returns a field, which is no default that instances share

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, dataclass, field, fields
from types import NoneType, UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from annotated_types import Ge, GroupedMetadata, Gt, Le, Lt, MinLen, Predicate


class OneOf(GroupedMetadata):
    """Limit text to a few choices. Unlike ``Literal`` it lets type checkers accept any str."""

    def __init__(self, *choices: str) -> None:
        self.choices = choices

    def __iter__(self) -> Iterator[Any]:
        yield Predicate(self.choices.__contains__)


# The string completes "Expected NAME to be ...".
Flag = Annotated[bool, "true or false"]
Count = Annotated[int, Ge(1), "a positive integer"]
Natural = Annotated[int, Ge(0), "an integer from 0"]
Seed = Annotated[int, Ge(0), Le(2**32 - 1), f"an integer from 0 to {2**32 - 1}"]  # PyTorch's CPU generator uses 32 bits
Positive = Annotated[float, Gt(0), "a number above 0"]
NonNegative = Annotated[float, Ge(0), "a number of at least 0"]
Share = Annotated[float, Gt(0), Le(1), "a number above 0 and at most 1"]
Momentum = Annotated[float, Ge(0), Lt(1), "a number from 0 and below 1"]
Milestones = Annotated[
    tuple[Annotated[float, Ge(0), Le(1)], ...],
    Predicate(lambda shares: list(shares) == sorted(shares)),
    "fractions of the training, ascending from 0 to 1",
]
Name = Annotated[str, MinLen(1), "a name"]
Data = Annotated[str, MinLen(1), "a name or a path"]
Folder = Annotated[str, "a path"]
Size = Annotated[str, "HEIGHTxWIDTH"]
Options = Annotated[dict[str, Any], "a mapping of option names to values"]


def _setting(default: Any, text: str, *, none: str = "", identity: bool = True) -> Any:
    """Declare a setting. ``none`` says what None means.

    Runs that differ in a setting without ``identity`` are the same experiment, computed elsewhere or with another seed.
    """
    about = {"text": text, "none": none, "identity": identity}
    return field(default_factory=dict, metadata=about) if default is dict else field(default=default, metadata=about)


@dataclass(frozen=True)
class Settings:
    """The settings of one training run, with their defaults."""

    data: Data = _setting(
        MISSING,
        "Data set: a name, with options as in cifar100:imb=1, a CSV or Parquet table,"
        " a folder with one subfolder per class, or a store.",
    )
    images: Folder | None = _setting(None, "Folder that a table's image paths are relative to.", identity=False)
    data_root: Folder | None = _setting(
        None, "Folder that holds the named data sets.", none="RECTIFIER_DATA, else ./data", identity=False
    )
    data_options: Options = _setting(dict, "Options of the data reader, each as data.NAME=VALUE.")
    split_seed: Natural | None = _setting(
        None, "Seed of what the data reader draws, such as the split.", none="the reader's own"
    )
    resplit: Flag = _setting(False, "Draw a new split for each seed. Ignores split_seed.")
    size: Size | None = _setting(
        None, "Image size: HEIGHTxWIDTH, or one number for squares.", none="the network's published size"
    )
    fit: Annotated[str, OneOf("stretch", "crop", "pad")] = _setting(
        "stretch", "How to resize images of another aspect ratio."
    )
    unreadable: Annotated[str, OneOf("skip", "raise")] = _setting("skip", "Skip damaged images, or raise an error.")

    method: Name = _setting("crl", "Training method, with options as in crl:eta=0.5. See: rectifier list methods.")
    method_options: Options = _setting(dict, "Options of the method, each as NAME=VALUE or method.NAME=VALUE.")
    network: Name = _setting("resnet32", "Network to train. See: rectifier list networks.")
    network_options: Options = _setting(dict, "Options of the network, each as NAME=VALUE or network.NAME=VALUE.")

    epochs: Count = _setting(30, "Passes over the training images.")
    batch_size: Count = _setting(128, "Images per batch, over all devices together.")
    seed: Seed = _setting(0, "Seed of weights, sample order and augmentation.", identity=False)
    optimizer: Annotated[str, OneOf("sgd", "adamw")] = _setting("sgd", "Optimizer.")
    lr: Positive | None = _setting(
        None, "Learning rate.", none="the network's, divided by the root of the number of labels"
    )
    momentum: Momentum = _setting(0.9, "Momentum of SGD.")
    nesterov: Flag = _setting(False, "Use Nesterov momentum in SGD.")
    weight_decay: NonNegative = _setting(5e-4, "Weight decay of all weights.")
    schedule: Annotated[str, OneOf("cosine", "step", "constant")] = _setting("cosine", "Learning rate schedule.")
    milestones: Milestones = _setting((0.5, 0.75), "Fractions of training at which schedule=step lowers the rate.")
    decay: Share = _setting(0.1, "Factor on the rate at each milestone of schedule=step.")
    warmup: NonNegative = _setting(0.0, "Epochs of linear warm-up of the learning rate.")
    clip: Positive | None = _setting(None, "Clip gradients to this norm.", none="no clipping")
    accumulate: Count = _setting(1, "Batches whose gradients are averaged for one optimizer step.")
    drop_last: Flag = _setting(False, "Skip the last batch of an epoch if it is not full.")
    padding: Natural | None = _setting(
        None, "Largest random shift of a training image, in pixels.", none="an eighth of its shorter side"
    )
    flip: Flag | None = _setting(
        None, "Mirror half of the training images.", none="yes, unless mirroring changes the labels"
    )

    validate_every: Count = _setting(1, "Epochs between validations.")
    patience: Count | None = _setting(
        None, "Stop after this many validations without improvement.", none="never stop early"
    )
    select: Annotated[str, OneOf("argmax", "prior", "last")] = _setting(
        "argmax", "Epoch to keep: the best on validation under this decision rule, or the last."
    )

    precision: Annotated[str, OneOf("auto", "32", "bf16", "16", "64")] = _setting(
        "auto", "Floating-point precision. auto: bf16 on a GPU that supports it, else 32."
    )
    step: Annotated[str, OneOf("auto", "eager", "compiled", "captured")] = _setting(
        "auto", "How a training step runs. captured: as a CUDA graph. auto: the fastest.", identity=False
    )
    batch_norm: Annotated[str, OneOf("global", "local")] = _setting(
        "global", "Batch statistics over all devices (global) or on each device alone (local)."
    )
    accelerator: Annotated[str, OneOf("auto", "cpu", "cuda", "mps")] = _setting(
        "auto", "Hardware to use.", identity=False
    )
    devices: Count = _setting(1, "Devices per node.", identity=False)
    nodes: Count = _setting(1, "Machines. Start the processes with torchrun or srun.", identity=False)
    checkpoint_seconds: NonNegative = _setting(60.0, "Seconds between checkpoints.", identity=False)
    tensorboard: Flag = _setting(True, "Write TensorBoard logs.", identity=False)
    features: Flag = _setting(True, "Save features with the predictions.", identity=False)


@dataclass(frozen=True)
class Setting:
    """What ``Settings`` declares about one of its fields."""

    hint: Any
    kind: type
    choices: tuple[str, ...]
    is_optional: bool
    wanted: str
    default: Any
    text: str
    none: str
    identity: bool

    @property
    def help(self) -> str:
        """The help text with the choices."""
        return f"{self.text} One of {', '.join(self.choices)}." if self.choices else self.text

    @property
    def default_text(self) -> str:
        """The default as a person writes it; empty where there is no default to name."""
        if self.default is None:
            return self.none
        if self.kind is tuple:
            return ",".join(map(str, self.default))
        return "" if self.default is MISSING else str(self.default).lower() if self.kind is bool else str(self.default)


def _flat(hint: Any) -> Iterator[Any]:
    """Yield the parts of an annotation: its types and its metadata."""
    if get_origin(hint) is Annotated:
        yield from (*_flat(hint.__origin__), *hint.__metadata__)
    elif get_origin(hint) is UnionType or type(None) in get_args(hint):
        for each in get_args(hint):
            yield from _flat(each)
    else:
        yield hint


def _declared(hint: Any, default: Any, about: Any) -> Setting:
    bare, *more = _flat(hint)
    choices = next((part.choices for part in more if isinstance(part, OneOf)), ())
    wanted = f"one of {', '.join(map(repr, choices))}" if choices else next(p for p in more if isinstance(p, str))
    return Setting(hint, get_origin(bare) or bare, choices, NoneType in more, wanted, default, **about)


_HINTS = get_type_hints(Settings, include_extras=True)
SETTINGS = {each.name: _declared(_HINTS[each.name], each.default, each.metadata) for each in fields(Settings)}
"""What is declared about each setting, by name."""
