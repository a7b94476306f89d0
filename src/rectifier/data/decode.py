"""Decode image files to pixels, and lists of them to shards. Imports no torch, so decoding processes start at once."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from rectifier._base.files import write_bytes

FITS = ("stretch", "crop", "pad")
INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos")


class UnreadableError(Exception):
    """An image that cannot be decoded; the message says why."""


def decode(
    path: Path, size: tuple[int, int], fit: str = "stretch", interpolation: str = "bilinear"
) -> NDArray[np.uint8]:
    """Return an image file as uint8 RGB ``(H, W, 3)`` of this ``size``.

    EXIF orientation is applied, transparency becomes white, and 16-bit grey is scaled to 8 bits. ``fit`` handles
    another aspect ratio: ``"stretch"`` it, ``"crop"`` the middle, or ``"pad"`` with black. ``interpolation`` is one of
    ``INTERPOLATIONS``. Damaged, truncated and missing files, and decompression bombs, raise ``UnreadableError``.
    """
    return np.asarray(fitted(load(path, size), size, fit, interpolation))


def resize(
    pixels: NDArray[np.uint8], size: tuple[int, int], fit: str = "stretch", interpolation: str = "bilinear"
) -> NDArray[np.uint8]:
    """Return an image ``(h, w, C)`` in this size ``(H, W, C)``, C = 1 or 3."""
    grey = pixels.shape[2] == 1
    resized = np.asarray(fitted(Image.fromarray(pixels[:, :, 0] if grey else pixels), size, fit, interpolation))
    return resized[:, :, None] if grey else resized


def load(path: Path, size: tuple[int, int]) -> Image.Image:
    """Return an image file as RGB. A large JPEG comes out smaller than it is, but with enough pixels for ``size``."""
    return _load(path, 2 * max(size))


def fitted(image: Image.Image, size: tuple[int, int], fit: str, interpolation: str = "bilinear") -> Image.Image:
    """Return an image in this size."""
    width_height, filter_ = (size[1], size[0]), Image.Resampling[interpolation.upper()]
    if image.size == width_height:
        return image
    if fit == "stretch":
        return image.resize(width_height, filter_, reducing_gap=3.0)
    return (ImageOps.fit if fit == "crop" else ImageOps.pad)(image, width_height, filter_)


def image_size(path: Path) -> tuple[int, int]:
    """Return height and width of an image file after its EXIF orientation is applied."""
    width, height = _load(path, None).size
    return height, width


def _load(path: Path, enough: int | None) -> Image.Image:
    """Decode a file to RGB. A JPEG may come out smaller than it is, but with ``enough`` pixels on either side."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd metadata, and large images that are not yet refused
            with Image.open(path) as image:
                if enough is not None:
                    image.draft("RGB", (enough, enough))  # a JPEG is decoded straight to a smaller size
                image.load()
                return _as_rgb(ImageOps.exif_transpose(image))
    except FileNotFoundError:
        raise UnreadableError("no such file") from None
    except Image.DecompressionBombError:
        limit = 2 * (Image.MAX_IMAGE_PIXELS or 0)
        raise UnreadableError(f"more than {limit:,} pixels, taken for a decompression bomb") from None
    except Exception as error:  # a damaged file can make a decoder raise almost anything
        raise UnreadableError(str(error) or type(error).__name__) from None


def _as_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I") or image.mode == "F":  # grey of 16 or 32 bits
        transparent = image.info.get("transparency")
        values = np.asarray(image)
        flat = Image.fromarray(_eight_bits(values))
        if isinstance(transparent, int):
            flat.putalpha(Image.fromarray(np.where(values == transparent, 0, 255).astype(np.uint8)))
        image = flat
    if image.has_transparency_data:
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))
    return image.convert("RGB")


def _eight_bits(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Scale grey values to 8 bits.

    16-bit values are scaled by their range. The range of 32-bit values is guessed: whole numbers up to 255 and
    fractions above 1 stay as they are, larger whole numbers count as 16 bits, and fractions up to 1 as shares.
    """
    top = float(values.max(initial=0))
    sixteen = values.dtype.itemsize == 2 or (values.dtype.kind != "f" and top > 255)
    scale = 255 / 65535 if sixteen else 255.0 if values.dtype.kind == "f" and top <= 1 else 1.0
    return np.clip(np.nan_to_num(values.astype(np.float64) * scale), 0, 255).round().astype(np.uint8)


def write_shard(root: Path, paths: Sequence[str], size: tuple[int, int], how: tuple[str, str], target: Path) -> int:
    """Decode images into one file of raw uint8 ``(n, H, W, 3)``, and then write its record next to it.

    ``how`` is the fit and the interpolation. An unreadable image stays black and is named in the record. Returns the
    number of images.
    """
    pixels = np.zeros((len(paths), *size, 3), np.uint8)
    unreadable = {}
    for position, path in enumerate(paths):
        try:
            pixels[position] = decode(root / path, size, *how)
        except UnreadableError as error:
            unreadable[path] = str(error)
    content = pixels.reshape(-1).data
    record = {"samples": len(paths), "sha256": hashlib.sha256(content).hexdigest(), "unreadable": unreadable}
    write_bytes(target, content)
    write_bytes(target.with_suffix(".json"), json.dumps(record).encode())
    return len(paths)
