"""The recipe: what a config leaves open, chosen by the data and by what is installed, with the reasons in words."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from rectifier._base import check
from rectifier.data.dataset import Decoded, ImageData, as_size
from rectifier.data.sources import may_mirror
from rectifier.methods import find_method, whole_from
from rectifier.networks.pretrained import check_backbone, is_pretrained
from rectifier.networks.registry import check_available, default_rate, default_size
from rectifier.training.config import AUTO, Config
from rectifier.training.run.folder import Run
from rectifier.training.settings import SETTINGS

DEFAULT_BACKBONE = "efficientnet-lite0"
SMALL = 16
"""Images with a shorter side are too small for networks that were trained on photographs."""

# Heads on cached features. Chosen on validation of fashion products, CelebA and CIFAR-100-LT: see results.
HEAD: dict[str, Any] = {"optimizer": "adamw", "lr": 2e-3, "weight_decay": 0.1, "noise": 1.0}
HEAD_OPTIONS: dict[str, Any] = {"hidden": 256, "dropout": 0.5}
HEADS = 5
HEAD_BATCHES = ((8_000, 128), (30_000, 256))
"""Batches of heads: up to so many training images, so many in a batch."""
LARGEST_BATCH = 512
HEAD_EPOCHS, FEWER_EPOCHS = 30, 15  # fewer for more images than those of HEAD_BATCHES

UNUSED = (
    *("nesterov", "milestones", "decay", "clip", "accumulate", "drop_last", "padding", "flip", "augment", "rate_decay"),
    *("freeze_norm", "ema", "validate_every", "patience", "precision", "batch_norm"),
)
"""Settings that change nothing where only heads are trained."""
OF_IMAGES = ("augment", "padding")
"""Settings that change nothing where training reads cached maps or features."""

# Fine-tuning, which starts from a trained head.
TUNED: dict[str, Any] = {"optimizer": "adamw", "freeze_norm": True, "ema": 0.98, "rate_decay": 0.7}
TUNED_RATE, TUNED_EPOCHS, TUNED_BATCH = 1e-3, 10, 128

# Networks from scratch, with SGD: enough steps that small data does not end at chance.
STEPS, FEWEST_EPOCHS, MOST_EPOCHS = 2_000, 30, 200
BATCH, SMALLEST_BATCH, STEPS_AN_EPOCH = 128, 16, 20
ADAMW_RATE = 1e-3


def settle(config: Config, data: ImageData) -> tuple[Config, list[str]]:
    """Return the config with everything chosen that it leaves open, and a few lines that say what and why.

    Settings that are given stay. A config that is settled stays as it is. ``data`` need not be decoded.
    """
    network, why = _network(config, data)
    check_available(network, config.weights)  # before anything is decoded
    tune = "all" if not is_pretrained(network) else "head" if config.tune == AUTO else config.tune
    chosen = replace(config, network=network)  # which decides the method, if none is given
    method = chosen.method
    chosen = replace(chosen, select=_select(config, method))
    images = len(data.indices("train"))
    if not is_pretrained(network) or find_method(method).features is not None:
        settled = _from_scratch(chosen, images)
        return settled, [] if config.network != AUTO else [*why, _words(settled, images, config)]
    settled = _on_pretrained(replace(chosen, tune=tune), images)
    if config == settled:
        return settled, []
    return settled, [*why, *_shrunk(data, settled), _words(settled, images, config), *_unused(config, settled)]


def is_on_features(config: Config) -> bool:
    """Say whether a settled config trains what lies on cached features of a pretrained network."""
    return is_pretrained(config.network) and find_method(config.method).features is None


def head_epochs(config: Config, images: int) -> int:
    """Return how many epochs heads are trained for, alone or before fine-tuning.

    >>> config = Config("labels.csv")
    >>> head_epochs(config, 1200), head_epochs(config, 100_000), head_epochs(Config("labels.csv", epochs=7), 1200)
    (30, 15, 7)
    """
    if config.epochs and config.tune in (AUTO, "head"):
        return config.epochs
    return enough(config, HEAD_EPOCHS if images <= HEAD_BATCHES[-1][0] else FEWER_EPOCHS)


def may_train_heads(config: Config) -> bool:
    """Say whether a config, settled or not, trains heads on cached features: many at once cost little more than one."""
    pretrained = config.network == AUTO or is_pretrained(config.network)
    trains = config.method == AUTO or find_method(config.method).features is None
    return pretrained and trains and config.tune in (AUTO, "head")


def _network(config: Config, data: ImageData) -> tuple[str, list[str]]:
    if config.network != AUTO:
        return config.network, []
    if config.weights is not None and (network := _network_of_run(config.weights)):
        return network, [f"Network: {network}, that of the run {config.weights}."]
    if config.method != AUTO and find_method(config.method).features is not None:
        return "resnet32", []
    images = data.images
    shape = images.shape if isinstance(images, Decoded) else None
    if shape is not None and min(shape[:2]) < SMALL:
        return "resnet32", [f"Network: resnet32 from scratch, because {shape[0]} x {shape[1]} pixels are too few for"
                            " a network of photographs."]  # fmt: skip
    try:
        check_backbone(DEFAULT_BACKBONE)
    except ImportError as error:
        return "resnet32", [f"Network: resnet32 from scratch. A pretrained one is usually far better: {error}"]
    reason = "because its ImageNet weights are installed" if config.weights is None else f"with {config.weights}"
    return DEFAULT_BACKBONE, [f"Network: {DEFAULT_BACKBONE}, {reason}."]


def _network_of_run(weights: str) -> str | None:
    """Return the network of a run that is named as weights, or None for a file."""
    folder = Path(weights)
    return Run(folder).config.network if (folder / "config.json").is_file() else None


def _select(config: Config, method: str) -> str:
    """Return the rule under which the epoch is chosen: the one that will be used."""
    if config.select != AUTO:
        return config.select
    return "argmax" if find_method(method).balances_training else "prior"


def _on_pretrained(config: Config, images: int) -> Config:
    """Fill in what a head, or a light fine-tuning from a head, needs."""
    options = dict(config.network_options)
    if not {"hidden", "branch", "classifier"} & set(options) and find_method(config.method).classifier is None:
        options = {**HEAD_OPTIONS, **options}
    cosine = options.get("classifier") == "cosine" or find_method(config.method).classifier == "cosine"
    apart = "cosine classifiers" if cosine else "learned scales" if options.get("scale_learned") else ""
    if apart and (config.heads or 1) > 1:
        check.fail("heads", f"1 for {apart}, whose mean is no single head", config.heads)
    size = as_size(config.size) or default_size(config.network)
    filled = replace(config, network_options=options, size=f"{size[0]}x{size[1]}")
    batch = next((batch for most, batch in HEAD_BATCHES if images <= most), LARGEST_BATCH)
    batch = TUNED_BATCH if config.tune != "head" else batch
    filled = _filled(filled, {"batch_size": batch, "heads": 1 if apart else HEADS, **HEAD})
    mirrored = may_mirror(config.data) if config.flip is None else config.flip
    filled = _filled(filled, {"views": 2 if config.tune != "head" and mirrored else 1})
    if config.optimizer == "sgd":  # its rate is not AdamW's
        filled = replace(filled, lr=config.lr or default_rate(config.network))
    if config.tune == "head":
        return _filled(filled, {"epochs": head_epochs(filled, images)})
    filled = replace(filled, lr=config.lr or (TUNED_RATE if filled.optimizer == "adamw" else 0.002))
    return _filled(filled, {**TUNED, "epochs": enough(filled, TUNED_EPOCHS)})


def _from_scratch(config: Config, images: int) -> Config:
    """Fill in a batch that gives an epoch enough steps, epochs that give a training enough, and a rate that fits."""
    batch = config.batch_size or BATCH
    if config.batch_size is None:
        processes = config.devices * config.nodes
        while batch > SMALLEST_BATCH * processes and images < STEPS_AN_EPOCH * batch and batch % 2 == 0:
            batch //= 2
        batch = -(-batch // processes) * processes
    optimizer = "sgd" if config.optimizer == AUTO else config.optimizer
    epochs = min(max(FEWEST_EPOCHS, math.ceil(STEPS * batch / max(images, 1))), MOST_EPOCHS)
    rate = config.lr or (ADAMW_RATE if optimizer == "adamw" else None)
    decay = 0.01 if optimizer == "adamw" else 5e-4
    filled = replace(config, optimizer=optimizer, lr=rate)
    return _filled(filled, {"batch_size": batch, "epochs": enough(config, epochs), "weight_decay": decay})


def enough(config: Config, epochs: int) -> int:
    """Return epochs that leave one after the share of training where the method is complete."""
    share = 0.0 if config.method == AUTO else whole_from(config.method, config.method_options)
    return max(epochs, math.ceil(1 / (1 - share))) if share < 1 else epochs


def _filled(config: Config, values: dict[str, Any]) -> Config:
    """Set what is open: None, or an optimizer of auto."""
    open_now = {name: value for name, value in values.items() if getattr(config, name) in (None, AUTO)}
    return replace(config, **open_now)


def _words(config: Config, images: int, asked: Config) -> str:
    steps = -(-images // (config.batch_size or 1))
    heads = f"the mean of {config.heads} heads" if (config.heads or 1) > 1 else "one head"
    what = f", {heads} on its features" if config.tune == "head" else f", --tune {config.tune} from a trained head"
    what = what if is_pretrained(config.network) else ""
    rate = f"rate {config.lr:g}, " if config.lr else ""
    best = " (it finds most rare classes on features)" if asked.method == AUTO and is_pretrained(config.network) else ""
    length = f"{check.amount(config.epochs or 0, 'epoch')} of {check.amount(steps, 'step')}"
    return (
        f"Recipe: {config.method}{best} on {config.network}{what}; {config.optimizer}, {rate}"
        f"{length} for {check.amount(images, 'training image')}."
    )


def _unused(asked: Config, settled: Config) -> list[str]:
    """Name the settings that are given and change nothing, because images or the network are not trained on."""

    def given(names: Iterable[str]) -> list[str]:
        return [name for name in names if getattr(asked, name) != SETTINGS[name].default]

    lines = []
    if settled.tune == "head":
        names = given(name for name in UNUSED if name not in OF_IMAGES)
        names += ["schedule=step"] if asked.schedule == "step" else []
        lines += [f"Without effect on heads: {', '.join(names)}. Use --tune last or --tune all."] if names else []
    if settled.tune != "all" and (names := given(OF_IMAGES)):
        lines.append(f"Without effect on cached features: {', '.join(names)}. Use --tune all.")
    return lines


def _shrunk(data: ImageData, config: Config) -> list[str]:
    """Say to what size images are brought, and what that loses."""
    size = as_size(config.size) or (0, 0)
    before = _usual_size(data)
    if before is None:
        return []
    where = f"{before[0]} x {before[1]}"
    verb = "shrunk from" if before[0] * before[1] > size[0] * size[1] else "enlarged from"
    own = default_size(config.network)
    whose = "the size of the weights" if size == own else f"as asked (the weights' own size is {own[0]} x {own[1]})"
    return [f"Images: {size[0]} x {size[1]} pixels, {whose}, {verb} {where} (the first image's)."]


def _usual_size(data: ImageData) -> tuple[int, int] | None:
    from rectifier.data.dataset import ImageFiles
    from rectifier.data.decode import UnreadableError, image_size

    if isinstance(data.images, ImageFiles):
        for path in data.images.paths[:20]:
            try:
                return image_size(data.images.root / path)
            except UnreadableError:
                continue
        return None
    return data.images.shape[:2] if isinstance(data.images, Decoded) else None
