from __future__ import annotations

import csv
import json
import math
import os
import shutil
import warnings
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image

from rectifier._base import console
from rectifier.data.dataset import ImageArray
from rectifier.data.table import read_table
from rectifier.labels.space import LabelSpace
from rectifier.training import image_files, train
from rectifier.training import predict as prediction
from rectifier.training.config import Config
from rectifier.training.job import RunSpec, open_jobs
from rectifier.training.predict import PredictionTable
from rectifier.training.run.folder import Run

RUNS = ("shapes", "digits", "photos")
RULES = ("argmax", "prior", "tuned")
USUAL = ["image", "path", "file", "filename", "file_name", "image_path", "filepath", "image_name", "img"]
NEIGHBOURS = list(pairwise(USUAL))
predict = partial(prediction.predict_images, device="cpu")


class Trained(NamedTuple):
    """A finished run, and the files of its test images in the order of its saved predictions."""

    run: Run
    files: list[Path]


def short(data: str, **options: Any) -> Config:
    return Config(data, network="mlp", epochs=2, accelerator="cpu", tensorboard=False, **options)


def trained_on_arrays(folder: Path, data: str) -> Trained:
    """Train on images in memory, and write those of test to files."""
    config = short(data)
    part = open_jobs([RunSpec("run", config, folder)])[0].data.part("test")
    assert isinstance(part.images, ImageArray)
    (folder / "images").mkdir(parents=True)
    files = [folder / "images" / f"{row:04d}.png" for row in range(len(part))]
    for file, pixels in zip(files, part.images.pixels, strict=True):
        Image.fromarray(pixels.squeeze()).save(file)
    return Trained(train(config, folder / "run"), files)


def trained_on_files(folder: Path) -> Trained:
    """Train on files of a size and an aspect ratio that are not the network's."""
    draw = np.random.default_rng(0)
    for shade, (kind, count) in enumerate({"day": 30, "dusk": 20, "night": 10}.items()):
        (folder / "photos" / kind).mkdir(parents=True)
        for number in range(count):
            pixels = (draw.random((14, 21, 3)) * (255 - 50 * shade)).astype(np.uint8)
            Image.fromarray(pixels).save(folder / "photos" / kind / f"{number:02d}.png")
    run = train(short(str(folder / "photos"), size="12x10", fit="pad"), folder / "run")
    return Trained(run, [folder / "photos" / name for name in run.predictions("test").ids])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Trained]]:
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch, console.quiet():
        patch.setenv("RECTIFIER_CACHE", str(folder / "cache"))
        yield {
            "shapes": trained_on_arrays(folder / "shapes", "shapes:samples=120,size=16,ratio=4"),
            "digits": trained_on_arrays(folder / "digits", "digits"),
            "photos": trained_on_files(folder / "photos"),
        }


@pytest.fixture
def shapes(trained: dict[str, Trained]) -> Trained:
    return trained["shapes"]


def with_rules(run: Run, folder: Path, **changed: Any) -> Run:
    """Return a copy of a run whose rules are others."""
    shutil.copytree(run.path, folder)
    (folder / "rules.json").write_text(json.dumps({**run.rules, **changed}))
    return Run.open(folder)


def decisions(forecast: PredictionTable) -> list[list[int]]:
    decided: list[list[int]] = forecast.classes.tolist()
    return decided


def write_table(path: Path, header: str, *rows: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([header, *map(str, rows)]) + "\n")
    return path


def write_damaged(path: Path) -> Path:
    path.write_bytes(b"no image")
    return path


class TestOwnTestImages:
    @pytest.mark.parametrize("rule", RULES)
    @pytest.mark.parametrize("name", RUNS)
    def test_are_predicted_as_they_were(self, trained: dict[str, Trained], name: str, rule: str) -> None:
        run, files = trained[name]
        forecast = predict(run, files, rule=rule)
        offsets, saved = run.rules["offsets"][rule], run.predictions("test")
        assert forecast.images == tuple(map(str, files))
        for row, logits in enumerate(saved.logits.tolist()):
            adjusted = [logit + offset for logit, offset in zip(logits, offsets, strict=True)]
            for label, (start, size) in enumerate(zip(run.space.offsets, run.space.sizes, strict=True)):
                own = adjusted[start : start + size]
                best = max(range(size), key=own.__getitem__)
                probability = 1 / sum(math.exp(other - own[best]) for other in own)
                assert forecast.classes[row, label] == best
                assert float(forecast.probabilities[row, label]) == pytest.approx(probability, abs=1e-5)

    def test_score_what_the_run_says_of_its_preferred_rule(self, shapes: Trained) -> None:
        run, files = shapes
        forecast = predict(run, files)
        targets = run.predictions("test").targets
        accuracy = [(forecast.classes == targets)[:, a][targets[:, a] >= 0].float().mean() for a in range(4)]
        known = run.metrics["test"]["rules"][run.metrics["preferred_rule"]]["accuracy"]
        assert float(torch.stack(accuracy).mean()) == pytest.approx(known, abs=1e-6)

    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
    def test_are_predicted_alike_on_a_gpu(self, trained: dict[str, Trained], tmp_path: Path) -> None:
        run, files = trained["digits"]
        copy = Path(shutil.copytree(run.path, tmp_path / "run"))
        (copy / "config.json").write_text(json.dumps({**run.config.as_dict(), "precision": "32"}))
        here, there = predict(run, files), predict(copy, files, device="auto", batch_size=50)
        assert decisions(there) == decisions(here)
        assert torch.allclose(there.probabilities, here.probabilities, atol=1e-4)

    def test_are_of_every_kind(self, trained: dict[str, Trained]) -> None:
        shape = {name: trained[name].run.data["shape"] for name in RUNS}
        assert shape == {"shapes": [16, 16, 3], "digits": [8, 8, 1], "photos": [12, 10, 3]}

    def test_another_fit_gives_another_picture(self, trained: dict[str, Trained], tmp_path: Path) -> None:
        run, files = trained["photos"]
        copy = Path(shutil.copytree(run.path, tmp_path / "run"))
        (copy / "data.json").write_text(json.dumps({**run.data, "fit": "stretch"}))
        padded, stretched = (predict(r, files, rule="argmax").probabilities for r in (run, copy))
        assert not torch.allclose(padded, stretched, atol=1e-4)


class TestRules:
    def test_differ_in_what_they_choose(self, shapes: Trained) -> None:
        found = [decisions(predict(*shapes, rule=rule)) for rule in RULES]
        assert found[0] != found[1] != found[2] != found[0]

    def test_validation_prefers_one(self, shapes: Trained, tmp_path: Path) -> None:
        run = with_rules(shapes.run, tmp_path / "run", preferred="tuned", validation={"tuned": 0.87654})
        forecast = predict(run, shapes.files)
        assert forecast.rule == "tuned"
        assert forecast.why == "preferred by validation, with a class-balanced accuracy of 87.7 %"
        assert decisions(forecast) == decisions(predict(run, shapes.files, rule="tuned"))

    def test_one_can_be_requested(self, shapes: Trained) -> None:
        forecast = predict(*shapes, rule="prior")
        assert (forecast.rule, forecast.why) == ("prior", "as requested")

    def test_offsets_decide(self, shapes: Trained, tmp_path: Path) -> None:
        sizes, starts = shapes.run.space.sizes, shapes.run.space.offsets
        wanted = [size - 1 for size in sizes]
        offsets = [0.0] * sum(sizes)
        for start, k in zip(starts, wanted, strict=True):
            offsets[start + k] = 1e3
        rules = shapes.run.rules["offsets"] | {
            "mine": offsets,
            "lifted": [7.0] * sum(sizes),
            "zero": [0.0] * sum(sizes),
        }
        run = with_rules(shapes.run, tmp_path / "run", offsets=rules)
        forced, lifted, zero = (predict(run, shapes.files, rule=rule) for rule in ("mine", "lifted", "zero"))
        assert decisions(forced) == [wanted] * len(shapes.files)
        assert bool((forced.probabilities == 1).all())
        assert decisions(lifted) == decisions(zero)  # the same for all classes is nothing
        assert torch.allclose(lifted.probabilities, zero.probabilities)

    @pytest.mark.parametrize("rule", RULES)
    def test_calibrated_probabilities_are_of_the_same_decisions(
        self, shapes: Trained, tmp_path: Path, rule: str
    ) -> None:
        space, saved = shapes.run.space, shapes.run.predictions("test").logits.tolist()
        hot = [0.5 + label for label in range(len(space))]
        run = with_rules(shapes.run, tmp_path / "run", calibration={"temperatures": hot, "sizes": list(space.sizes)})
        plain, found = (predict(run, shapes.files, rule=rule, calibrated=each) for each in (False, True))
        assert decisions(plain) == decisions(found)
        for row, logits in enumerate(saved):
            for label, (start, size) in enumerate(zip(space.offsets, space.sizes, strict=True)):
                own = [math.exp(logit / hot[label]) for logit in logits[start : start + size]]
                probability = own[int(found.classes[row, label])] / sum(own)
                assert float(found.probabilities[row, label]) == pytest.approx(probability, abs=1e-5)
        assert not torch.allclose(plain.probabilities, found.probabilities, atol=1e-3)

    def test_the_calibration_is_the_runs_own(self, shapes: Trained) -> None:
        plain, found = (predict(*shapes, rule="argmax", calibrated=each) for each in (False, True))
        temperatures = torch.tensor(shapes.run.rules["calibration"]["temperatures"])
        more_certain = (found.probabilities > plain.probabilities).double().mean(0)
        assert torch.equal(more_certain == 1, temperatures < 1)
        assert torch.equal(more_certain == 0, temperatures > 1)

    def test_a_wrong_name_is_answered_with_the_nearest(self, shapes: Trained) -> None:
        with pytest.raises(ValueError, match=r"Expected rule to be one of 'argmax'.*'priro'\. Did you mean 'prior'"):
            predict(*shapes, rule="priro")


class TestImages:
    def test_order_and_duplicates_are_kept(self, shapes: Trained) -> None:
        run, files = shapes
        plain = decisions(predict(run, files))
        assert len({tuple(row) for row in plain}) > 1
        order = [5, 0, 5, 3, 5, 1, 0]
        forecast = predict(run, [files[i] for i in order])
        assert forecast.images == tuple(str(files[i]) for i in order)
        assert decisions(forecast) == [plain[i] for i in order]

    @pytest.mark.parametrize("batch_size", [1, 7, 1000])
    def test_batch_size_does_not_matter(self, shapes: Trained, batch_size: int) -> None:
        plain, other = predict(*shapes), predict(*shapes, batch_size=batch_size)
        assert decisions(other) == decisions(plain)
        assert torch.allclose(other.probabilities, plain.probabilities, atol=1e-6)

    def test_are_never_in_memory_all_at_once(self, shapes: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
        decoded: list[Path] = []
        ahead: list[int] = []

        def counted(path: Path, *arguments: Any) -> Any:
            decoded.append(path)
            return real_decode(path, *arguments)

        def watched(*arguments: Any) -> Iterator[Any]:
            for done, each in enumerate(real_outputs(*arguments)):
                ahead.append(len(decoded) - 2 * done)
                yield each

        real_decode, real_outputs = image_files.decode, prediction.outputs
        monkeypatch.setattr(image_files, "decode", counted)
        monkeypatch.setattr(prediction, "outputs", watched)
        predict(shapes.run, shapes.files[:20] * 3, batch_size=2)
        assert len(decoded) == 60
        assert len(ahead) == 30
        assert max(ahead) <= 2 * 5  # batches of two: the present one and those that are read ahead

    def test_files_folder_and_tables_agree(self, shapes: Trained, tmp_path: Path) -> None:
        pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        run, files = shapes
        names = [file.name for file in files]
        beside = write_table(files[0].parent / "beside.csv", "note;Path", *(f"x;{name}" for name in names))
        away = write_table(tmp_path / "away.tsv", "img\tshape", *(f"{name}\tunheard of" for name in names))
        columns = {"size": [1.5] * len(names), "tags": [["a"]] * len(names), "photo": names}
        parquet.write_table(pa.table(columns), tmp_path / "away.parquet")
        plain = predict(run.path, files)
        ways = {
            "folder": predict(str(run.path), [files[0].parent]),
            "beside": predict(run, [beside]),
            "away": predict(run, [away], root=files[0].parent),
            "parquet": predict(run, [tmp_path / "away.parquet"], root=str(files[0].parent)),
            "one path": predict(run, str(files[0].parent)),  # type: ignore[arg-type]
        }
        beside.unlink()
        for way, forecast in ways.items():
            assert decisions(forecast) == decisions(plain), way
            assert torch.equal(forecast.probabilities, plain.probabilities), way
        assert ways["folder"].images == plain.images
        assert ways["away"].images == tuple(names)  # as the table calls them, to be joined with it

    def test_ways_can_be_mixed(self, shapes: Trained, tmp_path: Path) -> None:
        run, files = shapes
        table = write_table(tmp_path / "table.csv", "file", files[4], files[2], files[4])
        (tmp_path / "folder").mkdir()
        shutil.copy(files[1], tmp_path / "folder" / "copy.png")
        mixed = predict(run, [files[0], table, tmp_path / "folder"])
        assert decisions(mixed) == decisions(predict(run, [files[i] for i in (0, 4, 2, 4, 1)]))

    def test_a_folder_is_searched_in_order_without_what_is_hidden(self, shapes: Trained, tmp_path: Path) -> None:
        names = ["b.png", "a/z.PNG", "a/deep/y.png", "c.png"]
        hidden = [".x.png", ".cache/x.png", "a/.x/x.png", "notes.txt"]
        for name in [*names, *hidden]:
            (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(shapes.files[0], tmp_path / "in" / name)
        forecast = predict(shapes.run, [tmp_path / "in"])
        assert forecast.images == tuple(str(path) for path in sorted(tmp_path / "in" / name for name in names))

    @pytest.mark.parametrize(
        "header", [["second", "colour", "first"], *([b.title(), "colour", a] for a, b in NEIGHBOURS)]
    )
    def test_a_table_s_column_is_the_one_that_training_takes(
        self, shapes: Trained, tmp_path: Path, header: list[str]
    ) -> None:
        rows = [
            [("red", "blue")[row % 2] if name == "colour" else f"{name}-{row}.png" for name in header]
            for row in range(30)
        ]
        for name in [cell for row in rows for cell in row if cell.endswith(".png")]:
            shutil.copy(shapes.files[0], tmp_path / name)
        table = write_table(tmp_path / "table.csv", ",".join(header), *(",".join(row) for row in rows))
        assert predict(shapes.run, [table]).images == read_table(table, labels="colour").ids

    def test_the_image_column_of_the_run_is_known(self, shapes: Trained, tmp_path: Path) -> None:
        copy = Path(shutil.copytree(shapes.run.path, tmp_path / "run"))
        (copy / "config.json").write_text(
            json.dumps({**shapes.run.config.as_dict(), "data_options": {"image": "front"}})
        )
        both = write_table(tmp_path / "both.csv", "image,front", f"{shapes.files[0]},{shapes.files[1]}")
        other = write_table(tmp_path / "other.csv", "image", shapes.files[0])
        assert predict(copy, [both, other]).images == (str(shapes.files[1]), str(shapes.files[0]))


class TestUnreadable:
    def test_keeps_its_row_and_says_why(self, shapes: Trained, tmp_path: Path) -> None:
        run, files = shapes
        damaged = write_damaged(tmp_path / "damaged.png")
        table = write_table(tmp_path / "table.csv", "image,colour", f"{files[1]},red", "absent.png,blue")
        forecast = predict(run, [files[0], damaged, table, damaged], batch_size=2)
        clean = predict(run, files[:2])
        assert decisions(forecast) == [decisions(clean)[0], [-1] * 4, decisions(clean)[1], [-1] * 4, [-1] * 4]
        assert [name for name, _ in forecast.unreadable] == [str(damaged), "absent.png", str(damaged)]
        assert "cannot identify image" in forecast.unreadable[0][1]
        assert forecast.unreadable[1][1] == "no such file"
        rows = forecast.rows()
        assert rows[0] == clean.rows()[0]
        assert rows[1] == {name: str(damaged) if name == "image" else "" for name in forecast.columns}

    def test_all_of_them_are_an_error(self, shapes: Trained, tmp_path: Path) -> None:
        damaged = write_damaged(tmp_path / "damaged.png")
        with pytest.raises(ValueError, match=r"None of 2 images can be read, e\.g\. .*damaged\.png \("):
            predict(shapes.run, [damaged, damaged])

    def test_none_of_them_is_not_a_word(self, shapes: Trained) -> None:
        assert predict(*shapes).unreadable == ()

    def test_images_that_decoders_warn_about_are_read(self, shapes: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 200)  # of 256: a warning, which pytest makes an error
        assert predict(shapes.run, shapes.files * 10).unreadable == ()

    def test_warnings_are_as_before(self, shapes: Trained) -> None:
        before = list(warnings.filters)
        predict(shapes.run, shapes.files * 5, batch_size=3)
        assert warnings.filters == before


def forecast_of(labels: dict[str, list[str]], image: str = "a.png") -> PredictionTable:
    """Make a forecast of one image: the last class of each label, with a third as probability."""
    space = LabelSpace.from_names(labels)
    last = torch.tensor([[size - 1 for size in space.sizes]])
    return PredictionTable((image,), last, torch.full(last.shape, 1 / 3), space, "argmax", "as requested")


class TestTable:
    def test_has_the_rows(self, shapes: Trained, tmp_path: Path) -> None:
        forecast = predict(*shapes)
        (tmp_path / "new").mkdir()
        forecast.write(tmp_path / "new" / "table.csv")
        with (tmp_path / "new" / "table.csv").open(newline="") as file:
            written = list(csv.DictReader(file))
        assert written == forecast.rows()
        assert os.listdir(tmp_path / "new") == ["table.csv"]
        labels = ("shape", "colour", "texture", "position")
        assert list(written[0]) == ["image", *(name for a in labels for name in (a, f"{a}_probability"))]
        for row, classes, probabilities in zip(written, forecast.classes, forecast.probabilities, strict=True):
            assert [row[a] for a in labels] == [shapes.run.space.classes[a][k] for a, k in enumerate(classes.tolist())]
            assert [row[f"{a}_probability"] for a in labels] == [f"{p:.6f}" for p in probabilities.tolist()]

    def test_can_be_predicted_again(self, shapes: Trained, tmp_path: Path) -> None:
        forecast = predict(*shapes)
        forecast.write(tmp_path / "table.csv")
        assert predict(shapes.run, [tmp_path / "table.csv"]).rows() == forecast.rows()

    def test_cells_are_what_the_user_called_things(self, tmp_path: Path) -> None:
        forecast_of({"=kind": ["+1", '@b, "c"']}, image="=1+1.png").write(tmp_path / "table.csv")
        text = (tmp_path / "table.csv").read_text()
        assert text == 'image,=kind,=kind_probability\n=1+1.png,"@b, ""c""",0.333333\n'

    def test_a_name_that_is_no_text_is_written_as_its_bytes(self, tmp_path: Path) -> None:
        forecast_of({"kind": ["a"]}, image=os.fsdecode(b"\xff.png")).write(tmp_path / "table.csv")
        assert b"\n\xff.png,a," in (tmp_path / "table.csv").read_bytes()

    @pytest.mark.parametrize(
        ("labels", "names"),
        [
            (["image"], ["image", "image_", "image_probability"]),
            (["image", "image_"], ["image", "image__", "image_probability", "image_", "image__probability"]),
            (
                ["kind", "kind_probability"],
                ["image", "kind", "kind_probability_", "kind_probability", "kind_probability_probability"],
            ),
        ],
    )
    def test_no_column_takes_another_s_place(self, labels: list[str], names: list[str]) -> None:
        forecast = forecast_of({label: [f"class of {label}"] for label in labels})
        (row,) = forecast.rows()
        assert list(row) == names
        assert list(row.values()) == ["a.png", *(cell for a in labels for cell in (f"class of {a}", "0.333333"))]

    def test_a_folder_is_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="to be a file to write, but got a folder"):
            forecast_of({"kind": ["a"]}).write(tmp_path)


class TestErrors:
    @pytest.mark.parametrize("path", ["nowhere.png", "", " "])
    def test_missing_path(self, shapes: Trained, path: str) -> None:
        with pytest.raises(FileNotFoundError, match=f"'{path}' does not exist"):
            predict(shapes.run, [shapes.files[0], path])

    def test_no_image(self, shapes: Trained, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="Expected images to be at least one image, folder or table, but got none"):
            predict(shapes.run, [])
        (tmp_path / "notes.txt").touch()
        with pytest.raises(ValueError, match=r"to be a folder with images, but got none \(known suffixes: .avif"):
            predict(shapes.run, [tmp_path])

    @pytest.mark.parametrize(
        ("lines", "message"),
        [
            (["colour,size", "red,3"], "a table with a column of image paths, but got colour, size; name it in image"),
            (["image,colour"], "a table with at least one row, but got a header only"),
            (["image,colour", "a.png,red", " ,red"], r"line 3, column 'image' to be an image path, but got a blank"),
        ],
    )
    def test_table(self, shapes: Trained, tmp_path: Path, lines: list[str], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            predict(shapes.run, [write_table(tmp_path / "table.csv", *lines)])

    def test_parquet_that_is_none(self, shapes: Trained, tmp_path: Path) -> None:
        pytest.importorskip("pyarrow")
        with pytest.raises(ValueError, match="to be a Parquet table, but got another file"):
            predict(shapes.run, [write_damaged(tmp_path / "table.parquet")])

    def test_root(self, shapes: Trained, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="Expected root to be given only with a table"):
            predict(*shapes, root=tmp_path)
        table = write_table(tmp_path / "table.csv", "image", "a.png")
        with pytest.raises(FileNotFoundError, match=r"The folder .*nowhere does not exist"):
            predict(shapes.run, [table], root=tmp_path / "nowhere")
        (tmp_path / "folder").mkdir()
        with pytest.raises(ValueError, match=r"folder/a\.png cannot be read \(no such file\)"):
            predict(shapes.run, [table], root=tmp_path / "folder")

    def test_options(self, shapes: Trained) -> None:
        with pytest.raises(
            ValueError, match=r"(?s)device to be one of .*Did you mean 'cuda'.*batch_size to be a posit"
        ):
            predict(*shapes, device="cudo", batch_size=0)

    @pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is there")
    def test_device_that_is_not_there(self, shapes: Trained) -> None:
        with pytest.raises(ValueError, match="This machine has no CUDA GPU"):
            predict(*shapes, device="cuda")

    def test_no_run(self, shapes: Trained, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match="is not the folder of a run"):
            predict(tmp_path, shapes.files)

    @pytest.mark.parametrize("absent", ["rules.json", "weights.safetensors"])
    def test_unfinished_run(self, shapes: Trained, tmp_path: Path, absent: str) -> None:
        shutil.copytree(shapes.run.path, tmp_path / "run")
        (tmp_path / "run" / absent).unlink()
        with pytest.raises(FileNotFoundError, match=f"{absent} is missing: the run is not finished"):
            predict(tmp_path / "run", shapes.files)
