"""Any network of timm or torchvision as a trunk. Each library is imported only when a network of it is built."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from rectifier._base import check, imports
from rectifier.labels.columns import Sizes
from rectifier.networks.network import Network
from rectifier.networks.options import Shape, Widths, check_options, image_shape


def backbone(
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
        library: ``"timm"`` or ``"torchvision"``.
        name: the library's name of the network.
        pretrained: start from the library's weights, which it may download. Off by default.
        options: passed to the library.
    """
    check_options(branch, dropout, classifier, check.choice("library", library, tuple(LIBRARIES)))
    known = image_shape(f"{library}:{name}", shape)
    trunk = LIBRARIES[library](_installed(library), name, known[2], pretrained, options)
    features = _features(f"{library}:{name}", trunk, known)
    return Network(trunk, features, sizes, known, branch=branch, dropout=dropout, classifier=classifier)


def _from_timm(timm: Any, name: str, channels: int, pretrained: bool, options: dict[str, Any]) -> nn.Module:
    known = timm.list_models()
    if name.partition(".")[0] not in known:  # after the point comes the name of the weights
        _no_such_network("timm", name, known)
    trunk: nn.Module = timm.create_model(name, pretrained=pretrained, num_classes=0, in_chans=channels, **options)
    return trunk


def _from_torchvision(
    torchvision: Any, name: str, channels: int, pretrained: bool, options: dict[str, Any]
) -> nn.Module:
    known = torchvision.models.list_models(module=torchvision.models)
    if name not in known:
        _no_such_network("torchvision", name, known)
    trunk: nn.Module = torchvision.models.get_model(name, weights="DEFAULT" if pretrained else None, **options)
    linear = [path for path, module in trunk.named_modules() if isinstance(module, nn.Linear)]
    if not linear:
        check.fail(f"torchvision:{name}", "a network that ends in a linear classifier", "none")
    trunk.set_submodule(linear[-1], nn.Identity())
    return nn.Sequential(GreyAsColour(), trunk) if channels == 1 else trunk


def _no_such_network(library: str, name: str, known: Sequence[str]) -> NoReturn:
    raise ValueError(f"No network {name!r} in {library}.{check.nearest(name, known)}")


LIBRARIES: dict[str, Callable[..., nn.Module]] = {"timm": _from_timm, "torchvision": _from_torchvision}


class GreyAsColour(nn.Module):
    """Repeat a grey channel three times, for networks that take only three channels."""

    def forward(self, images: Tensor) -> Tensor:
        return images.expand(-1, 3, -1, -1)


def _installed(library: str) -> Any:
    try:
        return import_module(library)
    except ModuleNotFoundError as error:
        raise imports.with_extra(error, f"A network of {library}") from None
    except (ImportError, RuntimeError) as error:  # RuntimeError: a torchvision for another torch
        problem = check.sentence(library, "built for this torch", f"{error}")
        raise ImportError(f"{problem} Install torch and torchvision from the same source.") from error


def _features(name: str, trunk: nn.Module, shape: Shape) -> int:
    """Return the number of features that the trunk gives; only a run tells for every network."""
    height, width, channels = shape
    training = trunk.training
    try:
        with torch.no_grad():
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
