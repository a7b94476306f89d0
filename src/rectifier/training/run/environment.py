"""The environment of a run: versions, commit, machine and command."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import rectifier

PACKAGES = ("torch", "lightning", "numpy", "torchmetrics", "safetensors", "scikit-learn", "pillow", "timm")


def environment() -> dict[str, Any]:
    """Return versions, the commit of this package if it is a checkout, and the hardware."""
    return {
        "rectifier": rectifier.__version__,
        "commit": commit(),
        "python": platform.python_version(),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
        "platform": platform.platform(),
        "processor": _processor(),
        "threads": torch.get_num_threads(),
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "cuda": torch.version.cuda,
    }


def session() -> dict[str, Any]:
    """Return when, how and on which machine this stretch of training starts."""
    return {"started": datetime.now(UTC).isoformat(timespec="seconds"), "command": sys.argv, "host": platform.node()}


def commit() -> str | None:
    """Return the commit of this package's files, with ``+`` if they have changed since, or None.

    Without a repository, as in a container, the variable RECTIFIER_COMMIT can name the commit.
    """
    if named := os.environ.get("RECTIFIER_COMMIT"):
        return named
    source = Path(rectifier.__file__).parent
    found = _git(source, "rev-parse", "HEAD")
    # An installed package may lie inside another project's repository.
    if not found or not _git(source, "ls-files", "__init__.py"):
        return None
    return found + ("+" if _git(source, "status", "--porcelain", "--untracked-files=no", ".") else "")


def _git(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
