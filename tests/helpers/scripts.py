"""Run Python scripts in processes of their own, also with timm and torchvision."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Where the tests' environment has timm and torchvision. Other packages import torchvision where they find it, which
# fails in an environment whose torch is for CPUs, so it is not among the packages.
VISION = Path(sys.prefix) / "torchvision"

# With a torch for CPUs, torchvision cannot load the library that defines these operators.
_DEFINE_OPERATORS = """
import runpy, sys, torch
library = torch.library.Library("torchvision", "DEF")
for name in ("nms", "qnms"):
    library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def run(script: str, folder: Path, *before: str, after: tuple[str, ...] = (), path: Path | None = None) -> str:
    """Run a script in a folder, with arguments for Python before it and its own after it. Return what it prints."""
    (folder / "train.py").write_text(script)
    paths = os.pathsep.join(str(one) for one in (ROOT / "src", path) if one)
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "COLUMNS": "80"}
    command = [sys.executable, *before, "train.py", *after]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr + done.stdout


def run_with_torchvision(script: str, folder: Path) -> str:
    return run(script, folder, "-c", _DEFINE_OPERATORS, path=VISION)
