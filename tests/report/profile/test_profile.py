from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

from rectifier.data.dataset import ImageData
from rectifier.labels.space import LabelSpace
from rectifier.report.profile.counts import DataProfile, profile, rarest, ratio_text, worst_first
from rectifier.report.profile.figure import draw
from rectifier.report.profile.view import view
from rectifier.report.published import CELEBA, DATA, DEEPFASHION, XDOMAIN, published_data, published_ratio

CELEBA_ATTRIBUTES = """
5_o_Clock_Shadow Arched_Eyebrows Attractive Bags_Under_Eyes Bald Bangs Big_Lips Big_Nose Black_Hair Blond_Hair Blurry
Brown_Hair Bushy_Eyebrows Chubby Double_Chin Eyeglasses Goatee Gray_Hair Heavy_Makeup High_Cheekbones Male
Mouth_Slightly_Open Mustache Narrow_Eyes No_Beard Oval_Face Pale_Skin Pointy_Nose Receding_Hairline Rosy_Cheeks
Sideburns Smiling Straight_Hair Wavy_Hair Wearing_Earrings Wearing_Hat Wearing_Lipstick Wearing_Necklace
Wearing_Necktie Young
"""


class NoImages:
    """Images that cannot be read: a profile only counts labels."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def select(self, index: object) -> NoImages:
        raise NotImplementedError


def make(labels: dict[str, dict[str, int]], name: str = "made", rows: int | None = None) -> ImageData:
    """Build training data with these counts; labels of fewer samples than the longest miss the rest."""
    columns = [[k for k, n in enumerate(counts.values()) for _ in range(n)] for counts in labels.values()]
    rows = rows or max(map(len, columns))
    targets = torch.tensor([column + [-1] * (rows - len(column)) for column in columns]).T
    space = LabelSpace.from_names({label: list(counts) for label, counts in labels.items()})
    return ImageData(name, NoImages(rows), targets, space, torch.zeros(rows, dtype=torch.int64))


def numbered(counts: Sequence[int]) -> dict[str, int]:
    return {f"class{k:03d}": n for k, n in enumerate(counts)}


def show(result: DataProfile, width: int = 80, **options: bool) -> list[str]:
    output = StringIO()
    Console(file=output, width=width).print(view(result, width=width, **options))
    return [line.rstrip() for line in output.getvalue().split("\n")]


CASES = {
    "one label": make({"kind": {"cat": 8, "dog": 2}}),
    "hundred classes": make({"object": numbered([500 - 4 * k for k in range(100)])}, "cifar100:imb=1"),
    "missing and empty": make({"kind": {"cat": 3, "dog": 0, "eel": 1}, "size": {"small": 9, "large": 3}}),
    "nine labels": make({label: numbered([900, *range(30, 1, -1)][: 6 + 6 * k]) for k, label in enumerate(XDOMAIN)}),
    "forty binary": make({name: {"no": 50 + k, "yes": 50 - k} for k, name in enumerate(CELEBA)}, "celeba"),
    "sixty binary": make({f"label{k}": {"no": 61 + k, "yes": 60 - k} for k in range(60)}),
    "twenty mixed": make({f"label{k}": numbered([100, 9, k + 1]) for k in range(20)}),
    "groups": make(
        {f"{group}/a{k}": {"no": 99 - k, "yes": k + 1} for group in DEEPFASHION for k in range(12)}, "deepfashion"
    ),
    "no sample has the label": make({"kind": {"cat": 0, "dog": 0}, "size": {"small": 2, "large": 1}}),
    "awkward names": make({"[red]$x$[/] " * 9: {"[bold]": 3, "猫" * 30: 2, "a$b$c": 1}}),
}
every_case = pytest.mark.parametrize("data", CASES.values(), ids=CASES.keys())


def test_values_of_a_small_case() -> None:
    data = make({"kind": {"cat": 8, "dog": 2}, "size": {"s": 4, "m": 2, "l": 1}}, rows=12)
    data = replace(data, split=torch.tensor([0] * 10 + [1, 2]), notes=("made by hand",))
    result = profile(data)
    assert result["labels"]["kind"] == {
        "classes": 2,
        "samples": 10,
        "missing": 0,
        "ratio": 4.0,
        "ratio_nonempty": 4.0,
        "empty": 0,
        "omega": 0.375,  # (0 + 6) / (2 * 8)
        "counts": {"cat": 8, "dog": 2},
    }
    assert result["labels"]["size"]["samples"] == 7
    assert result["labels"]["size"]["missing"] == 3
    assert result["labels"]["size"]["omega"] == 0.416667  # (0 + 2 + 3) / (3 * 4), to six digits
    del result["labels"]
    assert result == {
        "name": "made",
        "part": "train",
        "samples": 10,
        "parts": {"train": 10, "validation": 1, "test": 1},
        "fingerprint": data.fingerprint,
        "notes": ["made by hand"],
    }


def test_an_empty_class_leaves_no_ratio_but_one_without_it() -> None:
    label = profile(CASES["missing and empty"])["labels"]["kind"]
    assert (label["ratio"], label["ratio_nonempty"], label["empty"], label["missing"]) == (None, 3.0, 1, 8)


def test_a_label_that_no_sample_has() -> None:
    label = profile(CASES["no sample has the label"])["labels"]["kind"]
    assert (label["ratio"], label["ratio_nonempty"], label["empty"], label["omega"]) == (None, None, 2, 0.0)


def test_parts_are_counted_apart_and_together() -> None:
    data = replace(CASES["one label"], split=torch.tensor([0, 0, 0, 0, 2, 2, 2, 2, 0, 2]))
    counts = {part: profile(data, part)["labels"]["kind"]["counts"] for part in ("train", "test", None)}
    assert counts["train"] == counts["test"] == {"cat": 4, "dog": 1}
    assert counts[None] == {"cat": 8, "dog": 2}
    assert profile(data, None)["part"] == "all"


def test_a_part_without_samples_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'made' has no samples in part 'validation' \(samples: train 10"):
        profile(CASES["one label"], "validation")


def test_a_misspelt_part_is_answered_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="Did you mean 'train'"):
        profile(CASES["one label"], "trian")


@every_case
def test_the_profile_is_strict_json(data: ImageData) -> None:
    result = profile(data)
    assert json.loads(json.dumps(result, allow_nan=False)) == result


@every_case
def test_counts_samples_and_missing_add_up(data: ImageData) -> None:
    for label in profile(data)["labels"].values():
        assert sum(label["counts"].values()) == label["samples"] == len(data) - label["missing"]
        assert label["classes"] == len(label["counts"])


def test_groups_compare_the_positives_of_their_labels() -> None:
    groups = profile(CASES["groups"])["groups"]
    assert list(groups) == list(DEEPFASHION)
    assert groups["texture"]["counts"] == {f"a{k}": k + 1 for k in range(12)}
    assert (groups["texture"]["labels"], groups["texture"]["ratio"]) == (12, 12.0)
    assert groups["texture"]["paper"] == {"ratio": 733, "source": "Table 7"}


def test_a_slash_alone_makes_no_group() -> None:
    binary = {"no": 3, "yes": 1}
    assert "groups" not in profile(make({"n/a": binary, "front/back": binary, "size/x": numbered([3, 2, 1])}))


# The paper


def test_every_celeba_attribute_has_its_ratio() -> None:
    assert sorted(CELEBA) == sorted(CELEBA_ATTRIBUTES.split())
    # The two rows of Table 3.
    assert list(CELEBA.values()) == [1] * 6 + [2] * 2 + [3] * 6 + [4] * 5 + [5] + [
        *(6, 6, 6, 7, 8, 8, 11, 13, 14, 14, 15, 16, 17, 18, 19, 20, 22, 23, 24, 43),
    ]


@pytest.mark.parametrize(("name", "ratios"), [("celeba", CELEBA), ("xdomain", XDOMAIN), ("deepfashion", DEEPFASHION)])
def test_the_largest_ratio_of_a_data_set_is_that_of_table_1(name: str, ratios: dict[str, int]) -> None:
    assert max(ratios.values()) == DATA[name]["ratio"]


def test_total_images_bound_those_of_the_parts() -> None:
    assert all(data["train"] + data["test"] <= data.get("total", 10**9) for data in DATA.values())


@pytest.mark.parametrize(
    ("name", "label", "ratio"),
    [
        ("celeba:split=paper", "Bald", 43),
        ("xdomain", "sleeve-length", 4162),
        ("cifar100", "object", 1),
        ("cifar100:bln=1", "object", 1),
        ("cifar100:imb=1", "object", 20),
        ("cifar100:exp=100", "object", None),
        ("cifar10", "object", None),
        ("digits", "digit", None),
        ("celeba", "Beard", None),
    ],
)
def test_the_ratio_of_the_paper(name: str, label: str, ratio: int | None) -> None:
    found = published_ratio(name, label)
    assert (found and found["ratio"]) == ratio


def test_made_imbalance_has_other_images_than_the_data_set() -> None:
    assert published_data("cifar100") == DATA["cifar100"]
    assert published_data("cifar100:imb=1") is None


def test_the_ratios_of_the_paper_stand_beside_the_training_part_alone() -> None:
    assert profile(CASES["forty binary"])["labels"]["Bald"]["paper"] == {"ratio": 43, "source": "Table 3"}
    everything = profile(CASES["forty binary"], None)
    assert not any("paper" in label for label in everything["labels"].values())
    assert everything["paper"]["train"] == 162_770


# In the terminal


@every_case
@pytest.mark.parametrize("every", [False, True])
@pytest.mark.parametrize("width", [80, 120])
def test_no_line_is_wider_than_the_terminal(data: ImageData, every: bool, width: int) -> None:
    lines = show(profile(data), width, every=every)
    assert max(map(len, lines)) <= width
    assert max(map(len, lines)) > 30


def test_the_ten_rarest_are_named_in_order_with_their_counts() -> None:
    result = profile(CASES["hundred classes"])
    lines = show(result)
    start = next(i for i, line in enumerate(lines) if line.startswith("object ·"))
    shown = [tuple(line.split()[:2]) for line in lines[start + 1 : start + 11]]
    assert shown == [(name, str(n)) for name, n in rarest(result["labels"]["object"]["counts"])[:10]]
    assert shown[0] == ("class099", "104")
    assert lines[start + 11] == "... 87 more"
    assert not any(line.startswith("class050") for line in lines)
    assert any("--all" in line for line in lines)


def test_all_lists_every_class() -> None:
    lines = show(profile(CASES["hundred classes"]), every=True)
    assert [line.split()[0] for line in lines if line.startswith("class")] == [
        f"class{k:03d}" for k in range(99, -1, -1)
    ]
    assert not any("--all" in line for line in lines)


def test_bars_are_as_long_as_their_counts() -> None:
    lines = show(profile(CASES["one label"]))
    bars = {line.split()[0]: line.count("█") for line in lines if line.startswith(("cat ", "dog "))}
    assert bars["cat"] == 4 * bars["dog"] > 40
    assert any("linear scale" in line for line in lines)


def test_a_wide_range_is_on_a_log_scale() -> None:
    lines = show(profile(make({"kind": {"cat": 1000, "dog": 1, "eel": 30}})))
    assert any(line.startswith("kind · log scale · 1 : 1,000 · all 3 classes") for line in lines)
    assert "█" in next(line for line in lines if line.startswith("dog "))


def test_the_row_of_a_label() -> None:
    lines = show(profile(CASES["hundred classes"]))
    row = next(line for line in lines if line.startswith("object  "))
    assert " ".join(row.split()[:-1]) == "object 100 30,200 0 1 : 4.8 0.40 1 : 20"


def test_empty_classes_are_marked() -> None:
    lines = show(profile(CASES["missing and empty"]))
    assert any(line.startswith("kind") and "1 : 3*" in line for line in lines)
    assert "* without empty classes, which make the ratio infinite: kind 1" in lines


def test_many_binary_labels_are_one_table_most_imbalanced_first() -> None:
    lines = show(profile(CASES["forty binary"]))
    assert "Each of the 40 labels: 2 classes, 100 samples, 0 missing." in lines
    start = next(i for i, line in enumerate(lines) if line.startswith("Label"))
    assert [line.split()[0] for line in lines[start + 1 : start + 41]] == list(CELEBA)[::-1]
    assert " ".join(lines[start + 1].split()[:-1]) == "Bald 1 : 8.1 0.44 1 : 43 yes 11 11.00%"
    assert lines[start + 41 :] == [""]


def test_more_labels_than_one_reads_are_cut_and_said_to_be() -> None:
    result = profile(CASES["sixty binary"])
    lines = show(result)
    assert sum(line.startswith("label") for line in lines) == 20
    assert "20 of 60 labels are shown, the most imbalanced. --all shows all." in lines
    assert sum(line.startswith("label") for line in show(result, every=True)) == 120  # a row and a plot each


def test_names_are_shown_as_they_are() -> None:
    assert any("[red]$x$[/]" in line for line in show(profile(CASES["awkward names"])))
    assert any(line.startswith("[bold] ") for line in show(profile(CASES["awkward names"])))


def test_order_of_imbalance() -> None:
    labels = profile(make({"even": numbered([5, 5]), "hole": numbered([5, 0]), "steep": numbered([9, 1])}))["labels"]
    assert [name for name, _ in worst_first(labels)] == ["hole", "steep", "even"]


@pytest.mark.parametrize(("value", "text"), [(1.0, "1 : 1"), (9.94, "1 : 9.9"), (9.96, "1 : 10"), (42.8, "1 : 43")])
def test_ratios_read_as_in_the_paper(value: float, text: str) -> None:
    assert ratio_text(value) == text


# In a file


@every_case
def test_every_profile_can_be_drawn(data: ImageData, tmp_path: Path) -> None:
    path = draw(profile(data), tmp_path / "new folder" / "figure.png")
    with Image.open(path) as image:
        image.load()
        assert min(image.size) > 300
        assert len(np.unique(np.asarray(image.convert("L")))) > 5  # something is drawn


@pytest.mark.parametrize(("suffix", "start"), [("svg", b"<?xml"), ("pdf", b"%PDF"), ("PNG", b"\x89PNG")])
def test_the_suffix_names_the_format(suffix: str, start: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"figure.{suffix}"
    assert draw(profile(CASES["one label"]), str(path)) == path
    assert path.read_bytes().startswith(start)


def test_an_svg_says_ratio_omega_and_paper(tmp_path: Path) -> None:
    import matplotlib

    with matplotlib.rc_context({"svg.fonttype": "none"}):
        text = draw(profile(CASES["hundred classes"]), tmp_path / "figure.svg").read_text(encoding="utf-8")
    assert "1 : 4.8 · Ω 0.40 · paper 1 : 20" in text
    assert "100 classes, the 10 rarest in red" in text


def test_a_group_is_drawn_beside_the_labels_that_are_in_none(tmp_path: Path) -> None:
    import matplotlib

    labels = {f"texture/a{k}": {"no": 9, "yes": k + 1} for k in range(20)}
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        text = draw(profile(make({**labels, "size": numbered([9, 5, 1])})), tmp_path / "figure.svg").read_text("utf-8")
    assert "20 labels, the 10 rarest in red" in text
    assert ">size<" in text
    assert "texture/" not in text


def test_an_unknown_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"named \.png, \.svg or \.pdf, but got 'figure\.docx'"):
        draw(profile(CASES["one label"]), tmp_path / "figure.docx")
    assert not list(tmp_path.iterdir())


def test_drawing_leaves_pyplot_alone(tmp_path: Path) -> None:
    import matplotlib.pyplot as plt

    before = plt.get_fignums()
    draw(profile(CASES["one label"]), tmp_path / "figure.png")
    assert plt.get_fignums() == before


@pytest.mark.parametrize(
    ("name", "ratio"), [("imb=0.2", 20), ("imb=1", 20), ("imb=9", None), ("imb=1,largest=490", None)]
)
def test_the_papers_ratio_stands_beside_the_papers_profiles_alone(name: str, ratio: float | None) -> None:
    found = published_ratio(f"cifar100:{name}", "object")
    assert (found and found["ratio"]) == ratio
