"""Every setting of a training run, declared once: name, type, bounds, choices, default, help, part of the identity.

``Config`` adds behaviour to ``Settings``. The checks, the options of the command line, ``rectifier list settings`` and
the documentation read ``SETTINGS``. This module imports nothing heavy, so that ``rectifier --help`` answers at once.
"""

# ruff: noqa: RUF009  _setting returns a field, which is no default that instances share

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Le, Lt, MinLen, Predicate

_RECIPE = "chosen by the data"

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
Choice = Annotated[str, "one of its choices"]  # not Literal, so that type checkers accept any str
Data = Annotated[str, MinLen(1), "a name or a path"]
Folder = Annotated[str, "a path"]
Size = Annotated[str, "HEIGHTxWIDTH"]
Options = Annotated[dict[str, Any], "a mapping of option names to values"]


_SINCE_PRETRAINED = frozenset(
    ["weights", "tune", "views", "heads", "noise", "refit", "smoothing", "augment", "rate_decay", "freeze_norm", "ema"]
)


def _setting(text: str, default: Any = MISSING, *, choices: str = "", none: str = "", identity: bool = True) -> Any:
    """Declare a setting. Of several choices, the first is the default.

    Runs that differ in a setting without ``identity`` are the same experiment, computed elsewhere or with another seed.
    """
    names = tuple(choices.split())
    about = {"text": text, "none": none, "choices": names, "identity": identity}
    if default is dict:
        return field(default_factory=dict, metadata=about)
    return field(default=names[0] if names else default, metadata=about)


def _optional(text: str, none: str = "", *, identity: bool = True) -> Any:
    """Declare a setting that may be None; ``none`` says what that means."""
    return _setting(text, None, none=none, identity=identity)


@dataclass(frozen=True)
class Settings:
    """The settings of one training run, with their defaults."""

    data: Data = _setting(
        "Data set: a name, with options as in cifar100:imb=1, a CSV or Parquet table,"
        " a folder with one subfolder per class, or a store."
    )
    images: Folder | None = _optional("Folder that a table's image paths are relative to.", identity=False)
    data_root: Folder | None = _optional(
        "Folder that holds the named data sets.", "RECTIFIER_DATA, else ./data", identity=False
    )
    data_options: Options = _setting("Options of the data reader, each as data.NAME=VALUE.", dict)
    split_seed: Natural | None = _optional("Seed of what the data reader draws, such as the split.", "the reader's own")
    resplit: Flag = _setting("Draw a new split for each seed. Ignores split_seed.", False)
    size: Size | None = _optional(
        "Image size: HEIGHTxWIDTH, or one number for squares.", "the network's published size"
    )
    fit: Choice = _setting("How to resize images of another aspect ratio.", choices="stretch crop pad")
    unreadable: Choice = _setting("Skip damaged images, or raise an error.", choices="skip raise")

    method: Name = _setting(
        "Training method, with options as in crl:eta=0.5:kappa=2. auto: what the recipe takes. See: rectifier list"
        " methods.",
        "auto",
    )
    method_options: Options = _setting("Options of the method, each as NAME=VALUE or method.NAME=VALUE.", dict)
    network: Name = _setting(
        "Network to train. auto: a pretrained one that fits the data. See: rectifier list networks.", "auto"
    )
    network_options: Options = _setting("Options of the network, each as NAME=VALUE or network.NAME=VALUE.", dict)

    weights: Folder | None = _optional(
        "Weights to start from: a file (safetensors or a state dict) or a finished run.", "the network's own"
    )
    tune: Choice = _setting(
        "What of a pretrained network is trained: its head on cached features, also its last stage, or all of it.",
        choices="auto head last all",
    )
    views: Count | None = _optional(
        "Cached views of a training image: 2 adds its mirror image, more add crops.", _RECIPE
    )
    heads: Count | None = _optional("Heads whose mean decides, on cached features.", _RECIPE)
    noise: NonNegative | None = _optional(
        "Noise on the features of a pretrained network, as a share of the deviation within classes.", _RECIPE
    )
    refit: Flag = _setting(
        "After fine-tuning, retrain the heads. They are kept if they score at least as well on validation.", True
    )
    smoothing: Momentum = _setting("Label smoothing.", 0.0)

    epochs: Count | None = _optional("Passes over the training images.", _RECIPE)
    batch_size: Count | None = _optional("Images per batch, over all devices together.", _RECIPE)
    seed: Seed = _setting("Seed of weights, sample order and augmentation.", 0, identity=False)
    optimizer: Choice = _setting("Optimizer. auto: what the recipe takes.", choices="auto sgd adamw")
    lr: Positive | None = _optional("Learning rate.", "chosen by the network and the number of labels")
    momentum: Momentum = _setting("Momentum of SGD.", 0.9)
    nesterov: Flag = _setting("Use Nesterov momentum in SGD.", False)
    weight_decay: NonNegative | None = _optional("Weight decay of all weights.", _RECIPE)
    schedule: Choice = _setting("Learning rate schedule.", choices="cosine step constant")
    milestones: Milestones = _setting("Fractions of training at which schedule=step lowers the rate.", (0.5, 0.75))
    decay: Share = _setting("Factor on the rate at each milestone of schedule=step.", 0.1)
    warmup: NonNegative = _setting("Epochs of linear warm-up of the learning rate.", 0.0)
    clip: Positive | None = _optional("Clip gradients to this norm.", "no clipping")
    accumulate: Count = _setting("Batches whose gradients are averaged for one optimizer step.", 1)
    drop_last: Flag = _setting("Skip the last batch of an epoch if it is not full.", False)
    padding: Natural | None = _optional(
        "Largest random shift of a training image, in pixels.", "an eighth of its shorter side"
    )
    flip: Flag | None = _optional("Mirror half of the training images.", "yes, unless mirroring changes the labels")

    augment: Choice = _setting(
        "Augmentation of training images: shifts and flips, or these after TrivialAugment or RandAugment.",
        choices="crop trivial rand",
    )
    rate_decay: Share | None = _optional("Factor on the rate for each stage further from the head.", _RECIPE)
    freeze_norm: Flag | None = _optional("Keep the batch statistics of pretrained weights.", _RECIPE)
    ema: Momentum | None = _optional(
        "Weight averaging: share of the average that a step keeps, such as 0.99; 0 for none.", _RECIPE
    )

    validate_every: Count = _setting("Epochs between validations.", 1)
    patience: Count | None = _optional("Stop after this many validations without improvement.", "never stop early")
    select: Choice = _setting(
        "Epoch to keep: the best on validation under this decision rule, or the last. auto: the rule that fits the"
        " method.",
        choices="auto argmax prior last",
    )

    precision: Choice = _setting(
        "Floating-point precision. auto: bf16 on a GPU that supports it, else 32.", choices="auto 32 bf16 16 64"
    )
    step: Choice = _setting(
        "How a training step runs. captured: as a CUDA graph. auto: the fastest.",
        choices="auto eager compiled captured",
        identity=False,
    )
    batch_norm: Choice = _setting(
        "Batch statistics over all devices (global) or on each device alone (local).", choices="global local"
    )
    accelerator: Choice = _setting("Hardware to use.", choices="auto cpu cuda mps", identity=False)
    devices: Count = _setting("Devices per node.", 1, identity=False)
    nodes: Count = _setting("Machines. Start the processes with torchrun or srun.", 1, identity=False)
    checkpoint_seconds: NonNegative = _setting("Seconds between checkpoints.", 60.0, identity=False)
    tensorboard: Flag = _setting("Write TensorBoard logs.", True, identity=False)
    features: Flag = _setting("Save features with the predictions.", True, identity=False)
    baselines: Flag | None = _optional(
        "Score a constant answer and HOG with logistic regression on the same split.",
        "yes for photographs",
        identity=False,
    )


class Setting(NamedTuple):
    """What ``Settings`` declares about one of its fields."""

    hint: Any
    kind: type
    choices: tuple[str, ...]
    wanted: str
    default: Any
    default_text: str  # empty where there is no default to name
    help: str
    identity: bool
    since_pretrained: bool  # came with pretrained networks


def _declared(
    name: str, hint: Any, default: Any, text: str, none: str, choices: tuple[str, ...], identity: bool
) -> Setting:
    kind, *_, wanted = get_args(get_args(hint)[0] if default is None else hint)
    kind = get_origin(kind) or kind
    if choices:
        hint, wanted = Literal[choices], f"one of {', '.join(map(repr, choices))}"
        text += f" One of {', '.join(choices)}."
    if default is None or default is MISSING:
        shown = none
    else:
        shown = ",".join(map(str, default)) if kind is tuple else str(default).lower() if kind is bool else str(default)
    return Setting(hint, kind, choices, wanted, default, shown, text, identity, name in _SINCE_PRETRAINED)


_HINTS = get_type_hints(Settings, include_extras=True)
SETTINGS = {
    each.name: _declared(each.name, _HINTS[each.name], each.default, **each.metadata) for each in fields(Settings)
}
"""What is declared about each setting, by name."""
