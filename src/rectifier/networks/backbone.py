"""Any network of timm or torchvision as a trunk. These are imported when they are asked for, and only then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from rectifier._base import check
from rectifier.labels.columns import Sizes
from rectifier.networks.network import Network
from rectifier.networks.options import Shape, Widths, head_complaints, image_shape


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

    Args:
        library: ``"timm"`` or ``"torchvision"``.
        name: what the library calls the network.
        sizes: the classes of each label, or a ``LabelSpace``.
        shape: ``(H, W, C)`` of the images.
        pretrained: start from the library's weights, which it may download. Never happens unless asked for.
        branch: the width, or widths, of each label's own layers; 0 for one linear classifier.
        dropout: the share dropped of the input of every layer of the head.
        classifier: ``"linear"``, or ``"cosine"``: 30 times the cosine, without bias.
        options: passed on to the library.
    """
    check.raise_all([check.choice("library", library, tuple(LIBRARIES)), *head_complaints(branch, dropout, classifier)])
    known = image_shape(f"{library}:{name}", shape)
    trunk = LIBRARIES[library](_installed(library), name, known[2], pretrained, options)
    features = _features(f"{library}:{name}", trunk, known)
    return Network(trunk, features, sizes, known, branch=branch, dropout=dropout, classifier=classifier)


def _from_timm(timm: Any, name: str, channels: int, pretrained: bool, options: dict[str, Any]) -> nn.Module:
    known = timm.list_models()
    if name.partition(".")[0] not in known:  # behind the point stands which weights
        raise ValueError(
            check.sentence("a network of timm", "one that it lists", repr(name)) + check.nearest(name, known)
        )
    trunk: nn.Module = timm.create_model(name, pretrained=pretrained, num_classes=0, in_chans=channels, **options)
    return trunk


def _from_torchvision(
    torchvision: Any, name: str, channels: int, pretrained: bool, options: dict[str, Any]
) -> nn.Module:
    known = torchvision.models.list_models(module=torchvision.models)
    if name not in known:
        wanted = "one that it lists"
        raise ValueError(check.sentence("a network of torchvision", wanted, repr(name)) + check.nearest(name, known))
    trunk: nn.Module = torchvision.models.get_model(name, weights="DEFAULT" if pretrained else None, **options)
    linear = [path for path, module in trunk.named_modules() if isinstance(module, nn.Linear)]
    if not linear:
        check.fail(f"torchvision:{name}", "a network that ends in a linear classifier", "none")
    trunk.set_submodule(linear[-1], nn.Identity())
    return nn.Sequential(GreyAsColour(), trunk) if channels == 1 else trunk


LIBRARIES: dict[str, Callable[..., nn.Module]] = {"timm": _from_timm, "torchvision": _from_torchvision}


class GreyAsColour(nn.Module):
    """Grey images three times over, for networks that know three channels only."""

    def forward(self, images: Tensor) -> Tensor:
        return images.expand(-1, 3, -1, -1)


def _installed(library: str) -> Any:
    try:
        return import_module(library)
    except (ImportError, RuntimeError) as error:  # torchvision raises RuntimeError beside a torch it was not built for
        problem = check.sentence(library, "installed, in a version that fits this torch", f"{error}")
        raise ImportError(f"{problem} pip install {library} is the way to get it.") from error


def _features(name: str, trunk: nn.Module, shape: Shape) -> int:
    """Return how many features the trunk gives for one image; only running it tells for every network."""
    height, width, channels = shape
    training = trunk.training
    try:
        with torch.no_grad():
            given = trunk.eval()(torch.zeros(1, channels, height, width))
    except (RuntimeError, AssertionError, ValueError) as error:
        wanted = f"images that it can take, which {height} x {width} x {channels} are not"
        raise ValueError(check.sentence(f"shape for {name}", wanted, f"its error: {error}")) from error
    finally:
        trunk.train(training)
    if not isinstance(given, Tensor) or given.dim() != 2:
        found = f"shape {tuple(given.shape)}" if isinstance(given, Tensor) else type(given).__name__
        check.fail(f"the features of {name}", "of shape (N, D)", found)
    return int(given.shape[1])
