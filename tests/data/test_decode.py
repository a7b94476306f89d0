"""Every odd kind of image file comes out as sensible RGB, or as an error that says why."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from rectifier.data.decode import FITS, INTERPOLATIONS, UnreadableError, decode, image_size, resize

SIZE = (6, 8)  # height, width


def save(path: Path, image: Image.Image, **options: object) -> Path:
    image.save(path, **options)
    return path


def test_colours_and_orientation_survive(tmp_path: Path) -> None:
    pixels = np.zeros((*SIZE, 3), np.uint8)
    pixels[0, :, 0], pixels[:, 0, 1], pixels[-1, -1] = 200, 100, (1, 2, 3)
    path = save(tmp_path / "a.png", Image.fromarray(pixels))
    np.testing.assert_array_equal(decode(path, SIZE), pixels)
    assert image_size(path) == SIZE


GREY = np.arange(48, dtype=np.uint8).reshape(SIZE)


@pytest.mark.parametrize(
    ("suffix", "image", "expected"),
    [
        ("png", Image.fromarray(GREY), GREY),
        ("png", Image.new("1", (2, 2), 1), 255),
        ("png", Image.fromarray(np.array([[0, 65535], [32768, 257]], np.uint16)), [[0, 255], [128, 1]]),
        ("tif", Image.frombytes("I;16", (2, 2), np.full(4, 200, "<u2").tobytes()), 1),
        ("tif", Image.frombytes("I;16B", (2, 2), np.full(4, 200, ">u2").tobytes()), 1),
        ("tif", Image.fromarray(np.full((2, 2), 200, np.int32)), 200),
        ("tif", Image.fromarray(np.full((2, 2), 65535, np.int32)), 255),
        ("tif", Image.fromarray(np.full((2, 2), 0.5, np.float32)), 128),
        ("tif", Image.fromarray(np.full((2, 2), 100.0, np.float32)), 100),
        ("tif", Image.fromarray(np.full((2, 2), np.nan, np.float32)), 0),
        ("png", Image.new("LA", (2, 2), (40, 0)), 255),
    ],
)
def test_grey_of_any_depth_becomes_three_equal_channels(
    tmp_path: Path, suffix: str, image: Image.Image, expected: object
) -> None:
    """Deep grey is scaled and not cut; fractions are shares of white; a transparent image is white."""
    found = decode(save(tmp_path / f"a.{suffix}", image), image.size[::-1])
    for channel in range(3):
        np.testing.assert_array_equal(found[..., channel], np.broadcast_to(expected, image.size[::-1]))


def test_a_transparent_colour_of_an_rgb_image(tmp_path: Path) -> None:
    image = Image.new("RGB", SIZE[::-1], (1, 2, 3))
    image.putpixel((1, 1), (9, 9, 9))
    found = decode(save(tmp_path / "a.png", image, transparency=(1, 2, 3)), SIZE)
    assert found[0, 0].tolist() == [255, 255, 255]
    assert found[1, 1].tolist() == [9, 9, 9]


def test_a_transparent_sixteen_bit_grey(tmp_path: Path) -> None:
    deep = np.array([[600, 65535], [600, 0]], np.uint16)
    found = decode(save(tmp_path / "a.png", Image.fromarray(deep), transparency=600), (2, 2))
    np.testing.assert_array_equal(found[..., 0], [[255, 255], [255, 0]])


def test_a_large_jpeg_is_decoded_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = []
    path = save(tmp_path / "a.jpg", Image.new("RGB", (1600, 1200)))
    transpose = ImageOps.exif_transpose
    monkeypatch.setattr(ImageOps, "exif_transpose", lambda image: loaded.append(image.size) or transpose(image))
    decode(path, (24, 32))
    assert loaded == [(200, 150)]


def test_transparency_shows_white(tmp_path: Path) -> None:
    layered = Image.new("RGBA", SIZE[::-1], (10, 20, 30, 255))
    layered.putpixel((0, 0), (10, 20, 30, 0))
    found = decode(save(tmp_path / "a.png", layered), SIZE)
    assert found[0, 0].tolist() == [255, 255, 255]
    assert found[1, 1].tolist() == [10, 20, 30]


def test_palette_with_a_transparent_colour(tmp_path: Path) -> None:
    image = Image.new("P", SIZE[::-1], 1)
    image.putpalette([0, 0, 0, 50, 60, 70])
    image.putpixel((0, 0), 0)
    found = decode(save(tmp_path / "a.gif", image, transparency=0), SIZE)
    assert found[0, 0].tolist() == [255, 255, 255]
    assert found[1, 1].tolist() == [50, 60, 70]


def test_cmyk(tmp_path: Path) -> None:
    found = decode(save(tmp_path / "a.jpg", Image.new("CMYK", SIZE[::-1], (0, 255, 255, 0))), SIZE)
    assert found[3, 3, 0] > 200
    assert found[3, 3, 1:].max() < 60


def test_exif_orientation_is_followed(tmp_path: Path) -> None:
    pixels = np.zeros((8, 16, 3), np.uint8)
    pixels[:, :8] = 255  # left half white; turned by 90 degrees clockwise it is on top
    exif = Image.Exif()
    exif[0x0112] = 6
    path = save(tmp_path / "a.jpg", Image.fromarray(pixels), exif=exif, quality=95)
    assert image_size(path) == (16, 8)
    found = decode(path, (16, 8))
    assert found[:6].min() > 200
    assert found[10:].max() < 50


def test_an_animation_is_its_first_frame(tmp_path: Path) -> None:
    frames = [Image.new("RGB", SIZE[::-1], colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert decode(tmp_path / "a.gif", SIZE)[0, 0].tolist() == [255, 0, 0]


def test_truncated(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)
    whole = save(tmp_path / "a.jpg", Image.fromarray(noise)).read_bytes()
    (tmp_path / "a.jpg").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UnreadableError, match="truncated"):
        decode(tmp_path / "a.jpg", SIZE)


@pytest.mark.parametrize("content", [b"", b"no image at all", b"\x89PNG\r\n\x1a\n" + b"\0" * 40])
def test_damaged(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(UnreadableError, match=r"cannot identify|broken|Truncated|truncated"):
        decode(tmp_path / "a.png", SIZE)


def test_absent(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="no such file"):
        decode(tmp_path / "a.png", SIZE)


def test_decompression_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "a.png", Image.new("1", (400, 300)))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 60_000)  # pillow warns above its limit and raises above twice that
    assert decode(tmp_path / "a.png", SIZE).shape == (*SIZE, 3)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 50_000)
    with pytest.raises(UnreadableError, match="more than 100,000 pixels, taken for a decompression bomb"):
        decode(tmp_path / "a.png", SIZE)


def cross(height: int, width: int) -> Image.Image:
    """A white image with a black frame of one tenth."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[height // 10 : -height // 10, width // 10 : -width // 10] = 255
    return Image.fromarray(pixels)


def test_fits(tmp_path: Path) -> None:
    path = save(tmp_path / "a.png", cross(100, 200))
    stretched, cropped, padded = (decode(path, (20, 20), fit) for fit in ("stretch", "crop", "pad"))
    assert stretched[10, 0, 0] == cropped[0, 10, 0] == 0
    assert (stretched[10, 3:17] == 255).all()
    assert (cropped[10] == 255).all()  # the sides with their frame are cut off
    assert (padded[:5] == 0).all()
    assert padded[10, 10, 0] == 255


def test_a_large_jpeg_shrinks_to_what_pillow_alone_gives(tmp_path: Path) -> None:
    gradient = np.linspace(0, 255, 640).astype(np.uint8)
    image = Image.fromarray(np.broadcast_to(gradient[None, :, None], (480, 640, 3)).copy())
    path = save(tmp_path / "a.jpg", image, quality=95)
    expected = np.asarray(Image.open(path).resize((32, 24), Image.Resampling.BILINEAR)).astype(int)
    assert abs(decode(path, (24, 32)).astype(int) - expected).max() <= 3


@pytest.mark.parametrize("channels", [1, 3])
def test_resize_keeps_channels(channels: int) -> None:
    pixels = np.full((4, 4, channels), 7, np.uint8)
    assert resize(pixels, (8, 6)).shape == (8, 6, channels)
    assert (resize(pixels, (8, 6)) == 7).all()


def test_decoding_processes_import_no_torch() -> None:
    code = "import sys; import rectifier.data.decode; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_a_photo_that_is_not_larger_is_what_pillow_alone_gives(tmp_path: Path, interpolation: str) -> None:
    """The usual three calls: open, convert, resize."""
    noise = np.random.default_rng(0).integers(0, 256, (30, 40, 3), np.uint8)
    method = Image.Resampling[interpolation.upper()]
    for suffix in ("png", "jpg"):
        path = save(tmp_path / f"a.{suffix}", Image.fromarray(noise))
        expected = np.asarray(Image.open(path).convert("RGB").resize((48, 48), method))
        np.testing.assert_array_equal(decode(path, (48, 48), "stretch", interpolation), expected)
        pixels = np.asarray(Image.open(path))
        np.testing.assert_array_equal(resize(pixels, (48, 48), "stretch", interpolation), expected)


@pytest.mark.parametrize("fit", FITS)
def test_bilinear_is_the_default(tmp_path: Path, fit: str) -> None:
    path = save(tmp_path / "a.png", cross(31, 57))
    np.testing.assert_array_equal(decode(path, (20, 20), fit), decode(path, (20, 20), fit, "bilinear"))
    assert not np.array_equal(decode(path, (20, 20), fit), decode(path, (20, 20), fit, "nearest"))


def test_a_large_photo_shrinks_to_nearly_what_pillow_alone_gives(tmp_path: Path) -> None:
    down, across = np.mgrid[0:600, 0:800]
    waves = np.stack([np.sin(down / 40), np.cos(across / 50), np.sin((down + across) / 60)], 2)
    path = save(tmp_path / "a.jpg", Image.fromarray((127 + 100 * waves).astype(np.uint8)), quality=95)
    expected = np.asarray(Image.open(path).resize((64, 64), Image.Resampling.BICUBIC)).astype(int)
    found = decode(path, (64, 64), "stretch", "bicubic")
    assert abs(found - expected).max() <= 8
    assert abs(found - expected).mean() < 1
