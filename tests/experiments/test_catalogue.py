"""Every experiment of the project can be loaded and trained, and has the paper's numbers where the paper has them."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments import paper
from experiments.recipes import lighter
from helpers.experiments import FOLDER, NAMES, data_options, load
from rectifier import RectifiedCrossEntropy
from rectifier.data.sources import SOURCES, source_options
from rectifier.labels.imbalance import imbalance_measure, loss_weight
from rectifier.networks.pretrained import is_pretrained
from rectifier.reproduce import Cell, Experiment, ExperimentResult
from rectifier.reproduce.records import key_of
from rectifier.training.presets import preset

EXPERIMENTS = {name: load(name) for name in NAMES}
CELLS = [(name, experiment, cell) for name, experiment in EXPERIMENTS.items() for cell in experiment.cells]


# All of them


def test_the_papers_tables_and_figures_are_there() -> None:
    assert {"celeba", "clothing", "deepfashion", "cifar100-balanced", "cifar100-imbalanced"} <= set(NAMES)
    assert {"gamma", "designs", "eta", "kappa", "mining", "rho", "scope", "cost"} <= set(NAMES)
    assert {"imbalance", "distributions", "features", "examples", "clothing-examples"} <= set(NAMES)
    assert "cifar100-chosen" in NAMES  # ours
    assert not {"paper", "recipes", "labels", "--init--"} & set(NAMES)


def test_an_experiment_says_what_it_is() -> None:
    for name, experiment in EXPERIMENTS.items():
        for text in (experiment.title, experiment.source, experiment.about):
            assert text.strip() == text, name
            assert len(text) > 8, name
            assert "\n" not in text, name
        assert not experiment.title.endswith("."), name  # a heading
        assert not experiment.source.endswith("."), name  # the page ends this sentence
        assert experiment.about.endswith("."), name
        assert experiment.cells or experiment.measure is not None, name


def choices(experiment: Experiment, cell: Cell) -> Iterator[dict[str, Any]]:
    """Yield every combination of settings that validation may choose for a cell."""
    open_settings = {**experiment.recipe, **cell.choose}
    for values in product(*open_settings.values()):
        yield dict(zip(open_settings, values, strict=True))


@pytest.mark.parametrize("quick", [False, True], ids=["full", "quick"])
def test_every_cell_can_be_trained(quick: bool) -> None:
    for name, experiment, cell in CELLS:
        for chosen in choices(experiment, cell):
            config = experiment.config(cell, quick=quick, more=chosen)
            source, options = data_options(config)
            assert source in SOURCES, (name, cell.name)
            assert set(options) <= set(source_options(source)), (name, cell.name)
            assert not (quick and SOURCES[source].on_disk), "the quick version must do without files"


def test_what_the_cells_ask_for_is_trained() -> None:
    for name, experiment, cell in CELLS:
        config = experiment.config(cell, quick=False)
        wanted = {key: value for key, value in {**experiment.settings, **cell.settings}.items() if key != "preset"}
        assert config.with_settings(wanted) == config, (name, cell.name)
        for chosen in choices(experiment, cell):
            with_it = experiment.config(cell, quick=False, more=chosen)
            assert with_it.with_settings(chosen) == with_it, (name, cell.name)


def test_cells_can_stand_in_a_table_and_share_no_run() -> None:
    for name, experiment in EXPERIMENTS.items():
        for text in {part for cell in experiment.cells for part in (cell.row, cell.column)}:
            assert "|" not in text, name  # it would end a cell of the page's table
            assert text.strip() == text, name
        keys = Counter(key_of(experiment.config(cell, quick=False)) for cell in experiment.cells if not cell.choose)
        assert set(keys.values()) <= {1}, name


OWN_METHODS = {
    ("celeba", "ANet"): "svm",
    ("celeba", "CRL, class level"): "crl",
    ("celeba", "CRL, instance level"): "crl-instance-relative",
    ("clothing", "DARN"): "ranking",
}


@pytest.mark.parametrize("name", ["celeba", "clothing"])
def test_a_row_is_of_the_method_or_network_that_it_names(name: str) -> None:
    """Networks that have rows of their own learn by cross-entropy, but for some; methods share the first of these."""
    experiment = load(name)
    for cell in experiment.cells:
        config, row = experiment.config(cell, quick=False), cell.row.lower()
        own = OWN_METHODS.get((name, cell.row), "ce" if config.network == row else row)
        assert (cell.row, config.method) == (cell.row, own)
    bases = {experiment.config(cell, quick=False).network for cell in experiment.cells if cell.against is None}
    assert bases == {{"celeba": "deepid2", "clothing": "mtct"}[name]}


def test_cells_compare_choose_and_quote_what_can_be_compared_chosen_and_quoted() -> None:
    for name, experiment, cell in CELLS:
        assert experiment.base(cell) is not cell, (name, cell.name)
        assert all(len(set(values)) > 1 for choice in (experiment.recipe, cell.choose) for values in choice.values())
        percents = cell.paper.values() if isinstance(cell.paper, dict) else [cell.paper]
        assert all(percent is None or 1 < percent < 100 for percent in percents), (name, cell.name)


def test_scored_cells_have_three_seeds_and_those_of_the_papers_imb_1_five() -> None:
    for name, experiment in EXPERIMENTS.items():
        compared = [experiment.config(cell, quick=False) for cell in experiment.cells if cell.paper is not None]
        data = [(source, options.get("imb")) for source, options in map(data_options, compared)]
        assert experiment.seeds >= (5 if ("cifar100", "1") in data else 3 if experiment.scored else 1), name


# What the paper has: read off its tables by hand.


def found(name: str, row: str, column: str = "", label: str = "mean") -> float | None:
    (cell,) = [cell for cell in load(name).cells if (cell.row, cell.column) == (row, column)]
    return cell.paper_of(label)


@pytest.mark.parametrize(
    ("method", "label", "number"),
    [
        ("CRL, instance level", "mean", 87),
        ("CRL, instance level", "Bald", 99),
        ("CRL, instance level", "Attractive", 81),
        ("CRL, instance level", "Blurry", 86),
        ("CRL, instance level", "No_Beard", 93),
        ("LMLE", "mean", 84),
        ("LMLE", "Mustache", 73),
        ("LMLE", "Bangs", 98),
        ("DeepID2", "mean", 81),
        ("DeepID2", "5_o_Clock_Shadow", 85),
        ("Threshold-Adjustment", "Young", 24),
        ("Threshold-Adjustment", "No_Beard", 15),
        ("Triplet-kNN", "Blurry", 43),
        ("PANDA", "Male", 99),
        ("ANet", "mean", 80),
        ("Over-Sampling", "Rosy_Cheeks", 90),
        ("Down-Sampling", "mean", 78),
        ("Cost-Sensitive", "Rosy_Cheeks", 92),
    ],
)
def test_table_3(method: str, label: str, number: float) -> None:
    assert found("celeba", method, label=label) == number


@pytest.mark.parametrize(
    ("name", "row", "column", "number"),
    [
        ("clothing", "DDAN", "", 31.64),  # Table 5
        ("clothing", "MTCT", "", 73.53),
        ("clothing", "Threshold-Adjustment", "", 74.72),
        ("clothing", "LMLE", "", 75.77),
        ("clothing", "CRL", "", 80.42),
        ("deepfashion", "ResNet50", "", 52.20),  # Table 7
        ("deepfashion", "ResNet50 + CRL", "", 54.56),
        ("cifar100-balanced", "CE", "CifarNet", 56.5),  # Table 8
        ("cifar100-balanced", "CE", "DenseNet", 74.0),
        ("cifar100-imbalanced", "bln(1)", "ResNet32", 48.2),  # Table 9
        ("cifar100-imbalanced", "imb(1)", "ResNet32", 42.1),
        ("cifar100-imbalanced", "imb(1) + CRL", "ResNet32", 45.2),
        ("cifar100-imbalanced", "imb(1) + CRL", "DenseNet", 49.5),
        ("cifar100-imbalanced", "bln(1)", "HOG+kNN", 7.3),
        ("cifar100-imbalanced", "imb(1)", "HOG+kNN", 6.5),
        ("mining", "CRL without hard mining", "fashion", 78.89),  # Table 11
        ("mining", "LMLE", "fashion", 75.77),
        ("rho", "rho 10%", "fashion", 77.82),  # Table 13
        ("rho", "rho 30%", "fashion", 79.29),
        ("rho", "rho 50%", "fashion", 80.42),
    ],
)
def test_tables_5_to_13(name: str, row: str, column: str, number: float) -> None:
    assert found(name, row, column) == number


def paper_gain(name: str, row: str, column: str) -> float:
    experiment = load(name)
    result = ExperimentResult(name, experiment, {}, {}, {}, Path())
    cell = result.experiment.cell(row, column)
    base = result.base(cell)
    assert base is not None
    ours, theirs = cell.paper_of(), base.paper_of()
    assert ours is not None
    assert theirs is not None
    return ours - theirs


@pytest.mark.parametrize(
    ("name", "row", "gains"),
    [
        ("cifar100-imbalanced", "imb(1) + CRL", {"CifarNet": 2.0, "ResNet32": 3.1, "DenseNet": 3.2}),
        ("cifar100-balanced", "+ CRL", {"CifarNet": 3.6, "ResNet32": 1.2, "DenseNet": 0.8}),
        ("designs", "class level, relative", {"CelebA": 6.32, "fashion": 6.89}),
        ("designs", "class level, distribution", {"CelebA": 4.90, "fashion": 4.32}),
        ("designs", "instance level, absolute", {"CelebA": 5.30, "fashion": 4.90}),
        ("designs", "instance level, distribution", {"CelebA": 3.45, "fashion": 2.87}),
    ],
)
def test_the_papers_gains_come_out_of_its_numbers(name: str, row: str, gains: dict[str, float]) -> None:
    assert {column: paper_gain(name, row, column) for column in gains} == pytest.approx(gains, abs=0.001)


def test_the_attributes_of_celeba_are_forty_in_the_papers_order() -> None:
    assert len(set(paper.ATTRIBUTES)) == 40
    assert paper.ATTRIBUTES[0] == "Attractive"
    assert paper.ATTRIBUTES[19] == "No_Beard"  # 1:5, the last of the first half
    assert paper.ATTRIBUTES[20] == "Bangs"  # 1:6
    assert paper.ATTRIBUTES[-1] == "Bald"
    assert all(set(numbers) == {*paper.ATTRIBUTES, "mean"} for numbers in paper.CELEBA.values())


def test_the_papers_means_of_celeba_are_those_of_its_columns() -> None:
    for method, own in paper.CELEBA.items():
        mean = sum(own[label] for label in paper.ATTRIBUTES) / 40
        assert abs(mean - own["mean"]) < 1, method


@pytest.mark.parametrize(("method", "bottom", "top"), [("LMLE", 7, -2), ("CRL", 5, 6)])
def test_table_4_comes_out_of_table_3(method: str, bottom: int, top: int) -> None:
    def gain(labels: tuple[str, ...]) -> float:
        ours, theirs = paper.CELEBA[method], paper.CELEBA["DeepID2"]
        return sum(ours[label] - theirs[label] for label in labels) / len(labels)

    assert abs(gain(paper.ATTRIBUTES[:20]) - bottom) <= 0.5
    assert abs(gain(paper.ATTRIBUTES[20:]) - top) <= 0.5


def test_the_means_of_deepfashion_are_those_of_its_groups() -> None:
    for own in paper.DEEPFASHION.values():
        groups = [number for name, number in own.items() if name != "mean"]
        assert len(groups) == 5
        assert abs(sum(groups) / 5 - own["mean"]) < 0.15  # the paper's means are 0.12 and 0.09 below


def test_one_number_of_the_paper_is_the_same_wherever_it_stands() -> None:
    assert paper.XDOMAIN["CRL"] == paper.MINING["CRL"] == paper.SCOPE["minority"] == paper.RHO[0.5] == 80.42
    assert paper.XDOMAIN["LMLE"] == paper.MINING["LMLE"]
    assert round(paper.XDOMAIN["CRL"] - paper.XDOMAIN["MTCT"], 2) == paper.DESIGN_GAINS["X-Domain"]["class", "relative"]
    assert paper.SCOPE_HOURS["minority"] == paper.HOURS["X-Domain"]["CRL"] == 60.4
    assert math.isclose(paper.HOURS["CelebA"]["LMLE"] / paper.HOURS["CelebA"]["CRL"], 9.7, abs_tol=0.05)
    assert math.isclose(paper.HOURS["X-Domain"]["LMLE"] / paper.HOURS["X-Domain"]["CRL"], 7.1, abs_tol=0.05)


# Recorded runs


RESULTS = FOLDER.parent / "results"


def recorded_lists(name: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    content = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return content["runs"], content["candidates"]


@pytest.mark.parametrize("name", [name for name in NAMES if (RESULTS / f"{name}.json").is_file()])
def test_recorded_runs_are_found_by_the_configs_of_today(name: str) -> None:
    """No default changed under the records: their keys and settings are those that their cells have now."""
    experiment, (runs, candidates) = EXPERIMENTS[name], recorded_lists(name)
    settings = {}
    for cell, seed in product(experiment.cells, {record["seed"] for record in (*runs, *candidates)}):
        for chosen in choices(experiment, cell):
            config = replace(experiment.config(cell, quick=False, more=chosen), seed=seed)
            settings[cell.row, cell.column, key_of(config)] = config.identity()
    assert all(is_run_of(settings[run["row"], run["column"], run["key"]], run["config"]) for run in runs)
    known = {key: identity for (_, _, key), identity in settings.items()}
    assert all(is_run_of(known[candidate["key"]], candidate["config"]) for candidate in candidates)


def is_run_of(asked: dict[str, Any], recorded: dict[str, Any]) -> bool:
    """Say whether a recorded config is the asked one, or fills in what a run on a pretrained network leaves open."""
    if not is_pretrained(asked["network"]):
        return asked == recorded
    return all(recorded[name] == value for name, value in asked.items() if value not in (None, "auto"))


# Cross-entropy that counts less, and weights that are those of class counts


@pytest.mark.parametrize("alpha", [0.2, 0.5, 0.75])  # whose settings are exact as they are rounded
def test_cross_entropy_that_counts_less_is_a_smaller_rate_and_a_larger_decay(alpha: float) -> None:
    """Both trainings take the same steps: one scales the loss, the other its rate and decay."""
    paper = preset("cifar100")
    weights = [torch.ones(3, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    settings = [{"lr": paper.lr, "weight_decay": paper.weight_decay}, lighter(alpha)]
    for weight, own, share in zip(weights, settings, (1 - alpha, 1.0), strict=True):
        optimizer = torch.optim.SGD([weight], momentum=paper.momentum, **own)
        for step in range(20):
            optimizer.zero_grad()
            (share * (weight.sin() * torch.arange(1.0, 4.0) * (step + 1)).sum()).backward()
            optimizer.step()
    torch.testing.assert_close(*weights, rtol=1e-9, atol=0)


def counted(data: str) -> list[list[int]]:
    """Return the training images of each class of each label, as they were counted in the data and recorded."""
    found = json.loads((RESULTS / "distributions.json").read_text(encoding="utf-8"))["found"]
    return list(found["here"][data].values())


@pytest.mark.parametrize(
    ("name", "control", "rectified"),
    [
        ("cifar100-balanced", "CE, counted half", "+ CRL"),
        ("cifar100-imbalanced", "imb(1), CE counted less", "imb(1) + CRL"),
    ],
)
def test_the_control_has_the_weight_that_crl_leaves_to_cross_entropy(name: str, control: str, rectified: str) -> None:
    """The control differs from cross-entropy only in rate and decay, which stand for the weight that CRL leaves."""
    experiment, (imb_1,) = load(name), counted("cifar100:imb=1.0")
    cells = [cell for cell in experiment.cells if cell.row == control]
    assert len(cells) >= 2
    for cell in cells:
        options = experiment.config(experiment.cell(rectified, cell.column), quick=False).method_options
        share = 1 - (options["alpha"] if "alpha" in options else float(loss_weight(imb_1, options["eta"])))
        base = experiment.base(cell)
        assert base is not None
        ours, plain = (experiment.config(one, quick=False) for one in (cell, base))
        assert ours.lr == pytest.approx(plain.lr * share, abs=5e-6, rel=0)
        assert ours.weight_decay == pytest.approx(plain.weight_decay / share, abs=5e-7, rel=0)
        assert replace(ours, lr=plain.lr, weight_decay=plain.weight_decay) == plain


def test_crl_without_triplets_is_cross_entropy_with_its_weight() -> None:
    experiment, (imb_1,) = load("cifar100-chosen"), counted("cifar100:imb=1.0")
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(256, 100, generator=generator, requires_grad=True)
    targets = torch.multinomial(torch.tensor(imb_1).float(), 256, replacement=True, generator=generator)
    for cell in [cell for cell in experiment.cells if cell.control_of is not None]:
        options = experiment.config(cell, quick=False).method_options
        eta = re.search(r"eta (\S+)$", cell.row)
        assert eta
        assert options["eta"] == float(eta[1])
        assert cell.control_when == {"eta": options["eta"], "rectify_from": 0.0}
        loss = RectifiedCrossEntropy(imb_1, **options)
        expected = (1 - loss_weight(imb_1, options["eta"]).item()) * torch.nn.functional.cross_entropy(logits, targets)
        ours, theirs = (torch.autograd.grad(one, logits)[0] for one in (loss(logits, targets), expected))
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(("data", "digits"), [("celeba", 3), ("fashion", 2)])
def test_one_weight_for_all_labels_is_the_mean_of_their_own(data: str, digits: int) -> None:
    experiment = load(f"readings-{data}")
    own, alike = (
        experiment.config(experiment.cell(row), quick=False).method_options
        for row in ("CRL, eta 0.1", "CRL, the same weight for all labels")
    )
    omega = float(imbalance_measure(counted(data)).mean())
    assert alike["alpha"] == pytest.approx(own["eta"] * round(omega, digits), abs=1e-9)
