"""Every experiment of the project can be loaded and trained, and has the paper's numbers where the paper has them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.experiments import NAMES, load, write_experiment
from helpers.fake_training import CE, CRL, made
from rectifier.reproduce import Cell, Experiment, Request, find_experiments, load_experiment, reproduce

# Config


def plain(**settings: Any) -> Experiment:
    return Experiment("Title", "Source", "About.", show=lambda _: "", **settings)


def test_a_cell_goes_over_the_experiment_and_a_choice_over_both() -> None:
    experiment = plain(settings={"data": "digits", "lr": 0.1, "epochs": 3, "method": "ce"}, quick={"epochs": 1})
    cell = Cell("crl", settings={"lr": 0.2, "method": "crl", "eta": 0.5})
    config = experiment.config(cell, quick=False)
    assert (config.data, config.lr, config.epochs, config.method) == ("digits", 0.2, 3, "crl")
    assert config.method_options == {"eta": 0.5}
    assert experiment.config(cell, quick=False, more={"lr": 0.3, "eta": 1.0}).lr == 0.3
    assert experiment.config(cell, quick=True, more={"lr": 0.3}).epochs == 1
    assert experiment.config(Cell("ce"), quick=False).lr == 0.1


def test_a_preset_comes_first() -> None:
    experiment = plain(settings={"preset": "cifar100", "epochs": 7})
    config = experiment.config(Cell("crl", settings={"data": "cifar100:imb=1"}), quick=False)
    assert (config.data, config.epochs, config.batch_size) == ("cifar100:imb=1", 7, 256)
    other = experiment.config(Cell("faces", settings={"preset": "celeba"}), quick=False)
    assert (other.network, other.epochs) == ("deepid2", 7)


def test_a_wrong_setting_is_answered_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="Did you mean 'epochs'"):
        plain(settings={"epoch": 7}).config(Cell("ce"), quick=False)


# Folders


def test_experiments_of_any_folder_are_found_and_may_import_each_other(tmp_path: Path) -> None:
    folder = write_experiment(tmp_path / "somewhere", "of_mine", "Loaded from somewhere")
    (folder / "_draft.py").write_text("\nEXPERIMENT = None\n")
    assert find_experiments(folder) == {"of-mine": folder / "of_mine.py"}
    experiment = load_experiment("of-mine", folder)
    assert experiment.title == "Loaded from somewhere"
    assert [cell.paper for cell in experiment.cells] == [61.0, 64.5]


def test_two_folders_may_have_experiments_of_one_name(tmp_path: Path) -> None:
    folders = [write_experiment(tmp_path / name, "namesake", f"Of {name}") for name in ("first", "second")]
    (folders[1] / "numbers.py").write_text("PAPER = {'ce': 1.0, 'crl': 2.0}\n")
    loaded = [load_experiment("namesake", folder) for folder in folders]
    assert [experiment.title for experiment in loaded] == ["Of first", "Of second"]
    assert [[cell.paper for cell in experiment.cells] for experiment in loaded] == [[61.0, 64.5], [1.0, 2.0]]


def test_the_folder_here_comes_before_the_checkouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert set(find_experiments()) == set(NAMES)
    write_experiment(tmp_path / "experiments", "local")
    assert set(find_experiments()) == {"local"}


def test_a_misspelt_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"No experiment 'celebA'\. Did you mean 'celeba'"):
        load("celebA")
    with pytest.raises(ValueError, match="No experiment 'paper'"):
        load("paper")


def test_what_is_no_experiment_is_named(tmp_path: Path) -> None:
    folder = write_experiment(tmp_path / "odd", "oddity", body="\nEXPERIMENT = {'title': 'A dictionary'}\n")
    with pytest.raises(ValueError, match=r"Expected EXPERIMENT of .*oddity\.py to be an Experiment, but got dict"):
        load_experiment("oddity", folder)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("EXPERIMENT = 1 +", "SyntaxError"),
        ("from .nowhere import X\nEXPERIMENT = X", "ModuleNotFoundError"),
        (
            "from rectifier.reproduce import Cell, Experiment\n"
            "EXPERIMENT = Experiment('T', 'S', 'A', str, cells=[Cell('a', against='b')])",
            "ValueError: Expected cell to be one of the experiment, but got row 'b'",
        ),
    ],
)
def test_a_file_that_is_broken_is_named_with_what_is_wrong(tmp_path: Path, body: str, text: str) -> None:
    folder = write_experiment(tmp_path / "broken", "half", body=body)
    with pytest.raises(ValueError, match=rf"half\.py to be a file that Python can import, but got {text}") as raised:
        load_experiment("half", folder)
    assert raised.value.__context__ is not None  # where it went wrong


@pytest.mark.parametrize("made", ["nothing", "an empty folder"])
def test_a_folder_that_has_no_experiments(tmp_path: Path, made: str) -> None:
    if made != "nothing":
        (tmp_path / "gone").mkdir()
    with pytest.raises(FileNotFoundError, match=r"gone contains no experiments"):
        find_experiments(tmp_path / "gone")


def test_a_control_is_of_a_cell_that_is_there() -> None:
    with pytest.raises(ValueError, match="row 'crl', column 'net'"):
        Experiment("", "", "", show=lambda _: "", cells=[Cell("ce", "net", control_of="crl")])
    with pytest.raises(ValueError, match="Expected control_of of 'ce net' to be another row, but got 'ce'"):
        Experiment("", "", "", show=lambda _: "", cells=[Cell("ce", "net", control_of="ce")])
    for control_of in ("crl", None):
        cells = [Cell("crl", choose={"rho": (0.1, 0.5)}), Cell("ce", control_of=control_of, control_when={"eta": 1})]
        with pytest.raises(ValueError, match="that validation chooses from for that row, but got eta 1"):
            Experiment("", "", "", show=lambda _: "", cells=cells)
    cells = [Cell("crl", choose={"eta": (0.1, 0.5)}), Cell("ce", control_of="crl", control_when={"eta": 0.3})]
    with pytest.raises(ValueError, match=r"control_when of 'ce' to be settings .* but got eta 0\.3"):
        Experiment("", "", "", show=lambda _: "", cells=cells)


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ({"row": 3}, "row and column of a cell to be text, but got 3, ''"),
        ({"settings": ["method"]}, "settings of 'ce' to be a mapping of settings to values"),
        ({"settings": {"seed": 3}}, "settings of 'ce' to be without a seed"),
        ({"control_when": {"eta"}}, "control_when of 'ce' to be a mapping of settings to values"),
        ({"choose": {"eta": ()}}, r"eta in choose of 'ce' to be a list of values, but got \(\)"),
        ({"choose": {"eta": 0.5}}, "eta in choose of 'ce' to be a list of values, but got 0.5"),
        ({"choose": {"mining": "random"}}, "mining in choose of 'ce' to be a list of values, but got 'random'"),
        ({"choose": ["eta"]}, "choose of 'ce' to be a mapping of settings to values"),
        ({"paper": "50"}, "paper of 'ce' to be a number, or one for each label, but got '50'"),
        ({"paper": {"bald": "50"}}, "paper of 'ce' to be a number, or one for each label"),
    ],
)
def test_a_wrong_cell_is_named_before_anything_is_trained(cell: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=f"Expected {text}"):
        Experiment("", "", "", show=lambda _: "", cells=[Cell(**{"row": "ce", **cell})])


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"seeds": 0}, "seeds to be a positive integer, but got 0"),
        ({"seeds": "3"}, "seeds to be a positive integer, but got '3'"),
        ({"recipe": {"lr": 0.1}}, "lr in recipe to be a list of values, but got 0.1"),
    ],
)
def test_a_wrong_experiment_is_refused(more: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=f"Expected {text}"):
        Experiment("", "", "", show=lambda _: "", cells=[Cell("ce")], **more)


@pytest.mark.parametrize("part", ["settings", "recipe", "choose"])
def test_seeds_cannot_be_set(part: str) -> None:
    cell = replace(CE, choose={"seed": (1, 2)}) if part == "choose" else CE
    settings = {"settings": {"seed": 1}} if part == "settings" else {"recipe": {"seed": (1, 2)}}
    with pytest.raises(ValueError, match="without a seed, because seeds are 0, 1, 2 and so on"):
        made(cell, **({} if part == "choose" else settings))


@pytest.mark.parametrize("cell", [replace(CE, settings={"lr": 1.0}), replace(CE, choose={"lr": (0.1, 1.0)})])
def test_what_a_recipe_chooses_is_no_cells_own(cell: Cell) -> None:
    with pytest.raises(
        ValueError,
        match="of 'CE' to be without settings of the recipe, which is chosen for the whole column, but got lr",
    ):
        made(cell, recipe={"lr": (0.1, 0.2)})


def test_a_small_version_varies_what_its_cells_say(tmp_path: Path) -> None:
    experiment = made(CE, replace(CRL, quick={"epochs": 7}), quick={"epochs": 2})
    assert [experiment.config(cell, quick=True).epochs for cell in experiment.cells] == [2, 7]
    assert {experiment.config(cell, quick=False).epochs for cell in experiment.cells}.isdisjoint({2, 7})


def test_a_small_version_keeps_the_rates_of_cells_alone() -> None:
    experiment = made(CE, settings={"lr": 0.3, "weight_decay": 0.3}, quick={"lr": 0.05, "weight_decay": 0.05})
    own = replace(CE, settings={**CE.settings, "lr": 0.2, "weight_decay": 0.2})

    def rate_and_decay(cell: Cell, **chosen: float) -> tuple[float | None, float]:
        config = experiment.config(cell, quick=True, more=chosen)
        return config.lr, config.weight_decay

    assert rate_and_decay(CE) == (0.05, 0.05)
    assert rate_and_decay(own) == (0.2, 0.05)
    assert rate_and_decay(own, lr=0.7) == rate_and_decay(CE, lr=0.7) == (0.7, 0.05)  # as validation chooses them


def test_settings_of_all_cells_are_checked_before_anything_is_trained(tmp_path: Path) -> None:
    cells = [
        Cell("crl", settings={"method": "crl"}, choose={"eta": (0.1, 0.5)}),
        Cell("odd", settings={"method": "ce", "epoch": 3}),
    ]
    experiment = Experiment("", "", "", show=lambda _: "", settings={"data": "digits", "network": "mlp"}, cells=cells)
    request = Request(results=tmp_path / "results", runs=tmp_path / "runs", settings={"accelerator": "cpu"})
    with pytest.raises(ValueError, match=r"Cell 'odd' of mine cannot be trained: .*epoch"):
        reproduce("mine", experiment, request)
    assert not (tmp_path / "runs").exists()
