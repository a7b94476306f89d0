"""Networks of timm, torchvision and transformers. Each library is imported only when a network of it is built."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from rectifier._base import check, imports
from rectifier.labels.columns import Sizes
from rectifier.networks.network import Network
from rectifier.networks.options import Shape, Widths, check_options, image_shape
from rectifier.networks.pretrained.backbone import INTERPOLATIONS, GreyAsColour, Preprocessing
from rectifier.networks.pretrained.steps import one_thread

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def library_network(
    library: str,
    name: str,
    sizes: Sizes,
    shape: Sequence[int],
    *,
    pretrained: bool = False,
    branch: Widths = 0,
    dropout: float = 0.0,
    classifier: str = "linear",
    **options: Any,
) -> Network:
    """Build a network of another library with our head in place of its classifier.

    Own arguments (``Network`` explains the others):
        library: ``"timm"``, ``"torchvision"``, or ``"hf"`` for transformers.
        name: the library's name of the network, or the folder of the model for ``hf``.
        pretrained: start from the library's weights, which it may download. Off by default.
        options: passed to the library.
    """
    check_options(branch, dropout, classifier, check.choice("library", library, tuple(LIBRARIES)))
    known = image_shape(f"{library}:{name}", shape)
    trunk = LIBRARIES[library](installed(library), name, known[2], pretrained, options)
    features = feature_count(f"{library}:{name}", trunk, known)
    return Network(trunk, features, sizes, known, branch=branch, dropout=dropout, classifier=classifier)


def _from_timm(timm: Any, name: str, channels: int, pretrained: bool, options: dict[str, Any]) -> nn.Module:
    check_name("timm", timm, name)
    trunk: nn.Module = timm.create_model(name, pretrained=pretrained, num_classes=0, in_chans=channels, **options)
    return trunk


def _from_torchvision(
    torchvision: Any, name: str, channels: int, pretrained: bool, options: dict[str, Any]
) -> nn.Module:
    check_name("torchvision", torchvision, name)
    trunk: nn.Module = torchvision.models.get_model(name, weights="DEFAULT" if pretrained else None, **options)
    linear = [path for path, module in trunk.named_modules() if isinstance(module, nn.Linear)]
    if not linear:
        check.fail(f"torchvision:{name}", "a network that ends in a linear classifier", "none")
    trunk.set_submodule(linear[-1], nn.Identity())
    return nn.Sequential(GreyAsColour(), trunk) if channels == 1 else trunk


def _from_transformers(
    transformers: Any, name: str, channels: int, pretrained: bool, options: dict[str, Any]
) -> nn.Module:
    from rectifier.networks.pretrained.huggingface import build

    trunk = build(transformers, Path(name), **options)  # the folder holds the weights, so they are always loaded
    return nn.Sequential(GreyAsColour(), trunk) if channels == 1 else trunk


LIBRARIES: dict[str, Callable[..., nn.Module]] = {
    "timm": _from_timm,
    "torchvision": _from_torchvision,
    "hf": _from_transformers,
}


def check_name(library: str, module: Any, name: str) -> None:
    """Raise an error with the nearest name where timm or torchvision has no such network."""
    if library == "timm":
        name = name.partition(".")[0]  # after the point comes the name of the weights
        known = module.list_models()
    else:
        known = module.models.list_models(module=module.models)
    if name not in known:
        raise ValueError(f"No network {name!r} in {library}.{check.nearest(name, known)}")


def installed(library: str) -> Any:
    """Import a library, or say how to install it."""
    try:
        return import_module("transformers" if library == "hf" else library)
    except ModuleNotFoundError as error:
        raise imports.with_extra(error, f"A network of {library}") from None
    except (ImportError, RuntimeError) as error:  # RuntimeError: a torchvision for another torch
        problem = check.sentence(library, "built for this torch", f"{error}")
        raise ImportError(f"{problem} Install torch and torchvision from the same source.") from error


def feature_count(name: str, trunk: nn.Module, shape: Shape) -> int:
    """Return the number of features that the trunk gives; only a run tells for every network."""
    height, width, channels = shape
    training = trunk.training
    try:
        with torch.no_grad(), one_thread():
            given = trunk.eval()(torch.zeros(1, channels, height, width))
    except (RuntimeError, AssertionError, ValueError) as error:
        problem = f"{name} does not accept images of {height} x {width} x {channels}."
        raise ValueError(f"{problem} Its error: {error}") from error
    finally:
        trunk.train(training)
    if not isinstance(given, Tensor) or given.dim() != 2:
        found = f"shape {tuple(given.shape)}" if isinstance(given, Tensor) else type(given).__name__
        check.fail(f"the features of {name}", "of shape (N, D)", found)
    return int(given.shape[1])


def pretrained_trunk(
    library: str, name: str, fetch: bool, size: tuple[int, int] | None
) -> tuple[nn.Module, Preprocessing, str]:
    """Return a network of a library, how its images are prepared, and its licence.

    ``fetch`` loads the library's weights from its cache, or from its hub into the cache.
    """
    module = installed(library)
    if library == "timm":
        return _pretrained_timm(module, name, fetch, size)
    if library == "torchvision":
        return _pretrained_torchvision(module, name, fetch)
    from rectifier.networks.pretrained.huggingface import build, read_preprocessing

    return build(module, Path(name)), read_preprocessing(Path(name)), "see the folder's README.md"


def published_size(library: str, name: str) -> tuple[int, int]:
    """Return height and width of the images that the weights of a library were trained with."""
    if library == "hf":
        from rectifier.networks.pretrained.huggingface import read_preprocessing

        return read_preprocessing(Path(name)).size
    module = installed(library)
    check_name(library, module, name)
    if library == "timm":
        known = module.get_pretrained_cfg(name)
        return _size_of_timm(known.to_dict() if known else {})
    weights = getattr(module.models.get_model_weights(name), "DEFAULT", None)
    side = 224 if weights is None else weights.transforms().crop_size[0]
    return side, side


def _size_of_timm(known: dict[str, Any]) -> tuple[int, int]:
    _, height, width = known.get("input_size", (3, 224, 224))
    return height, width


def _pretrained_timm(
    timm: Any, name: str, fetch: bool, size: tuple[int, int] | None
) -> tuple[nn.Module, Preprocessing, str]:
    check_name("timm", timm, name)
    if fetch and not timm.is_model_pretrained(name):
        _no_weights(f"timm:{name}")
    known = timm.get_pretrained_cfg(name)
    known = known.to_dict() if known else {}
    # Only some networks have a fixed size; they adapt their weights to another one as they load them.
    options = {"img_size": size} if size and known.get("fixed_input_size") else {}
    with _hub(f"timm:{name}", _timm_cache()) if fetch else nullcontext():
        trunk = _from_timm(timm, name, 3, fetch, options)
    interpolation = known.get("interpolation", "bicubic")
    prepared = Preprocessing(
        _size_of_timm(known),
        tuple(known.get("mean", IMAGENET_MEAN)),
        tuple(known.get("std", IMAGENET_STD)),
        interpolation if interpolation in INTERPOLATIONS else "bicubic",
    )
    return trunk, prepared, str(known.get("license") or "unknown")


def _pretrained_torchvision(torchvision: Any, name: str, fetch: bool) -> tuple[nn.Module, Preprocessing, str]:
    check_name("torchvision", torchvision, name)
    known = getattr(torchvision.models.get_model_weights(name), "DEFAULT", None)
    if known is None and fetch:
        _no_weights(f"torchvision:{name}")
    with _hub(f"torchvision:{name}", Path(torch.hub.get_dir()) / "checkpoints") if fetch else nullcontext():
        trunk = _from_torchvision(torchvision, name, 3, fetch, {})
    if known is None:
        return trunk, Preprocessing((224, 224), IMAGENET_MEAN, IMAGENET_STD, "bilinear"), "unknown"
    made = known.transforms()
    side = made.crop_size[0]
    prepared = Preprocessing((side, side), tuple(made.mean), tuple(made.std), str(made.interpolation.value))
    return trunk, prepared, "see the page of the weights at pytorch.org/vision"


def _no_weights(name: str) -> NoReturn:
    check.fail(name, "a network with published weights, or --weights to name a file", "one without")


@contextmanager
def _hub(name: str, cache: Path) -> Iterator[None]:
    """Say what to do where a library cannot fetch its weights, whatever error it raises."""
    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    logger.setLevel(logging.ERROR)  # it warns of every attempt
    try:
        yield
    except ValueError:  # our own, about the network
        raise
    except Exception as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        remedy = f"Connect to the internet, copy the weights into its cache ({cache}), or pass --weights FILE."
        raise OSError(f"Cannot fetch the weights of {name}: {reason.rstrip('.')}. {remedy}") from error
    finally:
        logger.setLevel(level)


def _timm_cache() -> Path:
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface"))
    return Path(os.environ.get("HF_HUB_CACHE", home / "hub")).expanduser()
