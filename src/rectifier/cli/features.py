"""rectifier features: compute the features of images once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer import Option

from rectifier._base import console
from rectifier.cli.options import ReaderSeed, ReaderSet, open_described, verb
from rectifier.training.settings import SETTINGS

if TYPE_CHECKING:
    from rectifier.data.dataset import ImageData
    from rectifier.data.features import Compute


@verb(
    "features --data labels.csv --images photos",
    "features --data labels.csv --images photos --layers penultimate --out features.npz",
    settings=("data", "images", "data_root", "weights", "views", "size", "fit", "unreadable"),
    required="data",
)
def features(
    network: str = Option("efficientnet-lite0", help="Pretrained network. See: rectifier list networks."),
    layers: str | None = Option(
        None,
        help="Layers, with commas between: last, penultimate. Or maps alone.",
        show_default="those that training reads",
    ),
    out: Path | None = Option(None, metavar="FILE", help="Also write the features and labels to an .npz file."),
    accelerator: str = Option("auto", help=SETTINGS["accelerator"].help),
    engine: str = Option(
        "auto", help="What runs the network on a CPU: auto, onnxruntime, openvino, openvino-bf16 or torch."
    ),
    seed: ReaderSeed = None,
    settings: ReaderSet = None,
    **given: Any,
) -> None:
    """Compute the features of images with a pretrained network, once. Training finds them in the cache."""
    from rectifier._base import check
    from rectifier.data.dataset import as_size
    from rectifier.data.features import cached_features
    from rectifier.data.table import listed

    size = as_size(given["size"])
    if out is not None:
        _check_out(out)
    opened = open_described(given, seed, settings)
    wanted = None if layers is None else listed(layers)
    compute = make_compute(network, given["weights"], size, wanted, accelerator, engine)
    options = {key: given[key] for key in ("views", "fit", "unreadable") if given[key] is not None}
    found = cached_features(opened, compute, **options)
    images: Any = found.images
    shape = " x ".join(map(str, images.shape))
    views = f", {images.views} views of training images" if images.views > 1 else ""
    skipped = len(opened) - len(found)
    typer.echo(f"{images.folder}: {check.amount(len(found), 'image')}, {shape} features{views}, {skipped:,} skipped.")
    if out is not None:
        write_features(found, out)
        typer.echo(f"{out}: ids, split, features and one array of classes for each label.")


def make_compute(
    network: str,
    weights: str | None,
    size: tuple[int, int] | None,
    layers: list[str] | None,
    accelerator: str,
    engine: str,
) -> Compute:
    """Build what computes the features. Without ``layers``, they are those that training reads."""
    from rectifier.networks.pretrained import extractor, load_backbone

    backbone = load_backbone(network, weights, size=size)
    if weights is not None:
        console.say(f"Weights of {weights}: {backbone.fitted}.")
    return extractor(backbone, layers or backbone.with_penultimate().layers, device=accelerator, engine=engine)


def write_features(data: ImageData, path: Path) -> None:
    """Write features with their labels for other programs.

    The file has ``ids``, ``split`` (train, validation or test) and ``features`` ``(N, D)``. ``label.NAME`` has the
    class of each image, blank where it is missing. With several views, ``features.view1`` and so on have those of the
    training images, in their order.
    """
    import numpy as np

    from rectifier._base.files import replacing, saving
    from rectifier.data.dataset import PARTS

    images: Any = data.images
    arrays: dict[str, Any] = {"ids": np.array(data.ids), "split": np.array(PARTS)[data.split.numpy()]}
    for column, (name, classes) in enumerate(zip(data.space.names, data.space.classes, strict=True)):
        arrays[f"label.{name}"] = np.array([*classes, ""])[data.targets[:, column].clamp(min=-1).numpy()]
    arrays["features"] = images.gather(np.arange(len(data)))
    for view in range(1, images.views):
        arrays[f"features.view{view}"] = images.gather(data.indices("train").numpy(), view)
    with saving(path), replacing(path) as draft, draft.open("wb") as file:
        np.savez(file, **arrays)


def _check_out(path: Path) -> None:
    """Refuse a file that cannot be written, before hours of work."""
    from rectifier._base import check
    from rectifier.training.predict import check_writable

    if path.suffix != ".npz":
        check.fail("--out", "a file that ends in .npz", repr(str(path)))
    check_writable(path)
