"""Names that are imported on first use, and what is said where a package is missing."""

from __future__ import annotations

import sys

import pytest

import rectifier
from rectifier._base.imports import load, requirement, with_extra


def test_a_name_comes_from_its_module_under_its_own_name_or_another() -> None:
    import rectifier.labels.space as home

    assert load("rectifier", "LabelSpace", {"LabelSpace": "labels.space:LabelSpace"}) is home.LabelSpace
    assert load("rectifier", "Space", {"Space": "labels.space:LabelSpace"}) is home.LabelSpace
    assert load("rectifier", "space", {"space": "labels.space"}) is home


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("lightning", "lightning", "train"),
        ("PIL", "pillow", "train"),
        ("sklearn", "scikit-learn", "sklearn"),
        ("pyarrow", "pyarrow", "parquet"),
        ("torchvision", "torchvision", "timm"),
        ("transformers", "transformers", "integrations"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(module: str, package: str, extra: str) -> None:
    assert requirement(module) == (package, extra)
    found = with_extra(ModuleNotFoundError(name=f"{module}.part"), "This")
    assert str(found) == f"This needs {package}, which is not installed: pip install 'rectifier[{extra}]'"
    assert str(with_extra(found, "That")) == str(found).replace("This", "That")  # the outermost caller is named


def test_a_name_whose_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rectifier.training.start", None)  # so that it is imported once more
    monkeypatch.delitem(sys.modules, "rectifier.training.start")
    monkeypatch.setitem(sys.modules, "lightning", None)
    monkeypatch.setitem(sys.modules, "lightning.fabric", None)
    expected = r"^rectifier\.train needs lightning, which is not installed: pip install 'rectifier\[train\]'$"
    with pytest.raises(ImportError, match=expected):
        rectifier.train  # noqa: B018


def test_a_missing_module_of_our_own_is_not_blamed_on_an_extra() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'rectifier\.lossses'$"):
        load("rectifier", "losses", {"losses": "lossses"})
