"""What pip installs: dependencies and extras, the base alone, and the archives."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import rectifier
from project.rooms import ROOT, SOURCE
from rectifier._base.imports import requirement

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = {name: [Requirement(one) for one in those] for name, those in PROJECT["optional-dependencies"].items()}
BASE = [Requirement(one) for one in PROJECT["dependencies"]]
PARTS = ("labels", "losses", "samplers", "evaluation.metrics", "evaluation.rules")  # what the base alone must run


# What pyproject.toml says.


def test_the_base_needs_three_packages_and_has_no_upper_bound_on_torch() -> None:
    assert {one.name for one in BASE} == {"torch", "numpy", "torchmetrics"}
    torch = next(one for one in BASE if one.name == "torch")
    assert {bound.operator for bound in torch.specifier} == {">="}


def test_every_package_has_a_tested_version() -> None:
    text = (ROOT / "constraints.txt").read_text()
    pinned = dict(re.findall(r"^([\w-]+)==(\S+)$", text, re.MULTILINE))
    needed = [one for those in [BASE, *EXTRAS.values()] for one in those if one.name != "rectifier"]
    for one in needed:
        assert one.specifier.contains(pinned[one.name]), one
    assert set(pinned) == {one.name for one in needed}


# What the modules import.


def imports(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports, anywhere but for type checkers alone."""
    waiting: list[ast.AST] = [ast.parse(path.read_text())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            waiting += node.orelse
            continue
        waiting += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def foreign(path: Path) -> set[str]:
    """Return the packages of others that a file imports."""
    return {name.partition(".")[0] for name in imports(path)} - sys.stdlib_module_names - {"rectifier"}


def own(path: Path) -> set[Path]:
    """Return our files that a file imports, with the packages that they lie in."""
    found = set()
    for name in imports(path):
        folders = name.split(".")[1:] if name.startswith("rectifier.") else []
        for depth in range(len(folders) + 1) if folders else ():
            place = SOURCE.joinpath(*folders[:depth])
            found |= {file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()}
    return found


def reached(part: str) -> set[Path]:
    """Return all files that are imported with a part of the package."""
    waiting, found = set(SOURCE.joinpath(*part.split(".")).rglob("*.py")), set()
    while waiting:
        found |= waiting
        waiting = {file for path in waiting for file in own(path)} - found
    return found


@pytest.mark.parametrize("part", PARTS)
def test_parts_of_the_base_import_only_what_the_base_has(part: str) -> None:
    metrics = SOURCE / "evaluation" / "metrics"
    for path in reached(part):
        allowed = {"torch", "numpy"} | ({"torchmetrics"} if path.is_relative_to(metrics) else set())
        assert foreign(path) <= allowed, path.relative_to(SOURCE)


def test_a_heavy_import_is_found(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text("if TYPE_CHECKING:\n    import rich\nimport torch.nn\ndef f():\n    from pandas import concat\n")
    assert foreign(path) == {"torch", "pandas"}
    path.write_text("from rectifier.evaluation import scoring\n")
    assert own(path) == {SOURCE / file for file in ("__init__.py", "evaluation/__init__.py", "evaluation/scoring.py")}


def test_what_we_import_is_in_the_extra_that_an_error_names() -> None:
    for path in SOURCE.rglob("*.py"):
        for module in foreign(path) - {one.name for one in BASE}:
            package, extra = requirement(module)
            assert package in {one.name for one in EXTRAS[extra]}, f"{path.relative_to(SOURCE)} imports {module}"


# An environment with the base alone.


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return link_packages(tmp_path_factory.mktemp("site"), BASE)


def link_packages(folder: Path, wanted: list[Requirement]) -> Path:
    """Fill a folder with links to some packages of this environment, and to those that they need."""
    waiting, seen = [one.name for one in wanted], set()
    while waiting:
        found = distribution(waiting.pop())
        if found.name in seen:
            continue
        seen.add(found.name)
        needed = map(Requirement, found.requires or [])
        waiting += [one.name for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})]
        for name in {file.parts[0] for file in found.files or []} - {"..", "__pycache__"}:
            if not (folder / name).exists():  # several packages may share a namespace
                (folder / name).symlink_to(found.locate_file(name))  # type: ignore[arg-type]
    return folder


def run(base: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python where only the base and this package can be imported."""
    environment = {**os.environ, "PYTHONPATH": f"{SOURCE.parent}{os.pathsep}{base}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-S", *arguments]  # -S: without the packages of this environment
    return subprocess.run(command, env=environment, cwd=base, capture_output=True, text=True, timeout=120, check=False)


USES = {
    "losses": """
        from rectifier import RectifiedCrossEntropy, class_counts
        targets = torch.tensor([0] * 90 + [1] * 9 + [2] * 3)
        logits = torch.zeros(102, 3, requires_grad=True)
        RectifiedCrossEntropy(class_counts(targets))(logits, targets).backward()
        assert logits.grad.abs().sum() > 0
        """,
    "samplers": """
        from rectifier import OverSampler
        drawn = torch.tensor([0, 0, 0, 1])[list(OverSampler(torch.tensor([0, 0, 0, 1]), [2]))]
        assert drawn.bincount().tolist() == [3, 3]
        """,
    "labels": """
        from rectifier import LabelSpace, imbalance_measure
        assert LabelSpace.infer({"hat": ["yes", "no"]}).sizes == (2,)
        assert imbalance_measure([[5, 5]]).item() == 0
        """,
    "evaluation.metrics": """
        from rectifier import ClassBalancedAccuracy
        metric = ClassBalancedAccuracy([2])
        metric.update(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1]))
        assert metric.compute() == 1
        """,
    "evaluation.rules": """
        from rectifier import PriorRule
        assert PriorRule([90, 10])(torch.tensor([[1.0, 0.0]])).argmax() == 1
        """,
    "callbacks": "rectifier.callbacks",
}


@pytest.mark.parametrize("part", USES)
def test_the_base_alone_runs(part: str, base: Path) -> None:
    names = [name for name, home in rectifier._HOMES.items() if home.startswith(f"{part}:")]
    lines = ["import torch, rectifier", *(f"rectifier.{name}" for name in names), *USES[part].split("\n")]
    found = run(base, "-c", "\n".join(line.strip() for line in lines))
    assert found.returncode == 0, found.stderr


def test_the_workbench_says_which_extra_it_needs(base: Path) -> None:
    code = """
import rectifier
for package, names in {rectifier: "train evaluate compare predict Run Config".split(),
                       rectifier.training: ["resume"], rectifier.data: ["open_data"],
                       rectifier.report: ["compare_runs"], rectifier.reproduce: ["reproduce"]}.items():
    for name in names:
        try:
            getattr(package, name)
        except ImportError as error:
            print(error)
"""
    found = run(base, "-c", code)
    assert found.stderr == ""
    sentence = r"rectifier(\.\w+)+ needs [\w-]+, which is not installed: pip install 'rectifier\[train\]'"
    assert len(found.stdout.splitlines()) == 10
    assert all(re.fullmatch(sentence, line) for line in found.stdout.splitlines()), found.stdout


@pytest.mark.parametrize("argument", ["train", "--help", "--version"])
def test_the_command_says_which_extra_it_needs(argument: str, base: Path) -> None:
    found = run(base, "-m", "rectifier", argument)
    sentence = f"rectifier {argument} needs typer, which is not installed: pip install 'rectifier[train]'\n"
    assert (found.returncode, found.stdout, found.stderr) == (1, "", sentence)


def test_the_estimator_runs_with_its_extra(tmp_path: Path) -> None:
    code = """
import numpy, rectifier
inputs, classes = numpy.eye(3).repeat(20, 0), numpy.arange(3).repeat(20)
estimator = rectifier.sklearn.RectifierClassifier(epochs=3).fit(inputs, classes)
assert estimator.predict(inputs).shape == (60,)
"""
    found = run(link_packages(tmp_path, [*BASE, *EXTRAS["sklearn"]]), "-c", code)
    assert found.returncode == 0, found.stderr


def test_losses_samplers_and_labels_import_nothing_beyond_torch() -> None:
    code = """
import sys, torch
before = set(sys.modules)
import rectifier
rectifier.labels, rectifier.losses, rectifier.samplers
print(*sorted(name for name in set(sys.modules) - before if name.partition(".")[0] not in sys.stdlib_module_names))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    imported = found.stdout.split()
    assert {"rectifier.labels", "rectifier.losses", "rectifier.samplers"} <= set(imported)
    assert not [name for name in imported if not name.startswith("rectifier")]


# The archives.


def test_the_archives_hold_the_package_and_pass_twine(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(SOURCE, tmp_path / "src" / "rectifier", ignore=shutil.ignore_patterns("__pycache__"))
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", "dist", "."]  # the wheel from the sdist
    subprocess.run(build, cwd=tmp_path, capture_output=True, timeout=120, check=True)
    archive, wheel = sorted((tmp_path / "dist").iterdir(), key=lambda path: path.suffix)
    twine = [sys.executable, "-m", "twine", "check", "--strict", archive, wheel]
    checked = subprocess.run(twine, capture_output=True, text=True, timeout=60, check=False)
    assert checked.returncode == 0, checked.stdout

    ours = {f"rectifier/{path.relative_to(SOURCE)}" for path in [*SOURCE.rglob("*.py"), SOURCE / "py.typed"]}
    with zipfile.ZipFile(wheel) as opened:
        packed = set(opened.namelist())
    with tarfile.open(archive) as unpacked:
        sources = set(unpacked.getnames())
    facts = f"rectifier-{rectifier.__version__}"
    assert {name for name in packed if not name.startswith(f"{facts}.dist-info/")} == ours
    assert f"{facts}.dist-info/licenses/LICENSE" in packed
    assert {f"{facts}/src/{name}" for name in ours} <= sources
    assert {f"{facts}/{name}" for name in ("LICENSE", "README.md", "pyproject.toml")} <= sources
    assert not [name for name in sources if name.startswith(f"{facts}/tests")]
