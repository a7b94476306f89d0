"""Image models of transformers from a local folder, as ``save_pretrained`` writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rectifier._base import check
from rectifier._base.files import read_json
from rectifier.networks.pretrained.backbone import Preprocessing

PREPARED = "preprocessor_config.json"

_RESAMPLE = ("nearest", "lanczos", "bilinear", "bicubic")  # pillow's numbers


def build(transformers: Any, folder: Path, **options: Any) -> PooledOutput:
    """Load the image model of a folder. Nothing is downloaded."""
    if not (folder / "config.json").is_file():
        hint = "hf:FOLDER takes a local model: hf download NAME --local-dir FOLDER fetches one."
        check.no_file(folder / "config.json", hint)
    logging = transformers.utils.logging
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # it reports the layers that we drop, and advises to train
    logging.disable_progress_bar()
    try:
        model, found = transformers.AutoModel.from_pretrained(
            folder, local_files_only=True, output_loading_info=True, dtype=torch.float32, **options
        )
    except Exception as error:  # whatever the readers of its many formats raise
        raise ValueError(f"Transformers cannot load {folder}: {str(error).partition(chr(10))[0]}") from error
    finally:
        logging.set_verbosity(verbosity)
        logging.enable_progress_bar()
    vision = getattr(model, "vision_model", None)  # of a model for images and text
    model = vision if isinstance(vision, nn.Module) else model
    if model.main_input_name != "pixel_values":
        check.fail(f"hf:{folder}", "an image model", f"{type(model).__name__}, which takes {model.main_input_name}")
    if any(".pooler." in f".{name}" for name in found["missing_keys"]):
        model.pooler = None  # a checkpoint of a classifier lacks this layer, and its random weights are of no use
    return PooledOutput(model)


class PooledOutput(nn.Module):
    """The features ``(N, D)`` of an image model: its pooled output, its class token, or the mean over positions."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.has_class_token = any("cls_token" in name or "class_embedding" in name for name in model.state_dict())

    def forward(self, images: Tensor) -> Tensor:
        output = self.model(pixel_values=images)
        pooled = getattr(output, "pooler_output", None)
        if isinstance(pooled, Tensor):
            return pooled.flatten(1)
        last: Tensor = output.last_hidden_state
        if last.dim() == 4:
            return last.mean((2, 3))
        return last[:, 0] if self.has_class_token else last.mean(1)


def read_preprocessing(folder: Path) -> Preprocessing:
    """Return how images are prepared, from the folder's ``preprocessor_config.json``."""
    path = folder / PREPARED
    if not path.is_file():
        check.no_file(path, "It says how images are prepared for the weights; download it from where they come.")
    known = read_json(path)
    size = known.get("crop_size") if known.get("do_center_crop") else None
    size = _size(size or known.get("size") or 224, path)
    normalised = known.get("do_normalize", True)
    mean = tuple(known.get("image_mean") or (0.5,) * 3) if normalised else (0.0,) * 3
    std = tuple(known.get("image_std") or (0.5,) * 3) if normalised else (1.0,) * 3
    resample = known.get("resample", 2)
    return Preprocessing(size, mean, std, _RESAMPLE[resample] if resample in range(4) else "bilinear")


def _size(given: Any, path: Path) -> tuple[int, int]:
    if isinstance(given, dict):
        side = given.get("shortest_edge", given.get("longest_edge"))
        given = (given.get("height", side), given.get("width", side))
    height, width = given if isinstance(given, (list, tuple)) else (given, given)
    if not (check.is_count(height) and check.is_count(width)):
        check.fail(f"size in {path}", "a number of pixels, or height and width", repr(given))
    return int(height), int(width)
