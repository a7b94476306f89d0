"""rectifier reproduce, from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.command_line import contents, refuse, run, succeed
from helpers.experiments import FOLDER, NAMES, write_experiment
from rectifier.reproduce import load_experiment
from rectifier.training import many as suite
from rectifier.training.engine.interrupt import Stopped
from rectifier.training.run.folder import Run

CPU = ("--accelerator", "cpu")


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("RECTIFIER_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def nothing_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    def trained(*_: object, **__: object) -> None:
        raise AssertionError("nothing must be trained")

    for verb in ("train", "resume", "train_together"):
        monkeypatch.setattr(suite, verb, trained)


@pytest.fixture
def mine(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[str, Path]:
    """An experiment of one's own, in a folder elsewhere; its name is the test's."""
    name = request.node.name.partition("[")[0].removeprefix("test_")
    return name.replace("_", "-"), write_experiment(tmp_path / "elsewhere", name, "Mine alone")


# The list


@pytest.mark.usefixtures("nothing_is_trained")
def test_without_a_name_all_are_listed() -> None:
    lines = succeed("reproduce", "--experiments", FOLDER).stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(NAMES)
    for name, line in zip(NAMES, lines[1:], strict=True):
        experiment = load_experiment(name, FOLDER)
        assert experiment.title in line
        assert line.rstrip().endswith(experiment.source)
    assert succeed("reproduce").stdout.splitlines() == lines  # the checkout's own
    assert contents(Path()) == {}


# Wrong names and numbers


@pytest.mark.usefixtures("nothing_is_trained")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["celebA"], "Did you mean 'celeba'?"),
        (["celeba", "cifar100-imbalnaced", "--quick"], "Did you mean 'cifar100-imbalanced'?"),
        (["cifar100_imbalanced"], "Did you mean 'cifar100-imbalanced'?"),
        (["paper"], "No experiment 'paper'. `rectifier reproduce` shows all."),
        (["celeba", "--quick", "--seeds", "0"], "--seeds must be at least 1."),
        (["celeba", "--quick", "--seeds", "-2"], "--seeds must be at least 1."),
        (["celeba", "--quick", "--together", "0"], "--together must be at least 1."),
        (["celeba", "--quick", "--accelerator", "gpu"], "Expected accelerator to be one of "),
        (["all", "celebA"], "Did you mean 'celeba'?"),
        (["--quick"], "Give NAME: an experiment, or all."),
        (["--only", "CRL"], "Give NAME: an experiment, or all."),
        (["eta", "rho", "--only", "absent"], "'absent'"),
        (["imbalance", "--only", "CRL"], "'CRL'"),
    ],
)
def test_wrong_commands_train_nothing(arguments: list[str], message: str) -> None:
    assert message in refuse("reproduce", *arguments, "--experiments", FOLDER)


@pytest.mark.usefixtures("nothing_is_trained")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("celeba", "list_attr_celeba.txt"),
        ("cifar100-imbalanced", "cifar-100-python"),
        ("clothing", "styles.csv"),
        ("deepfashion", "list_eval_partition.txt"),
    ],
)
def test_missing_data_is_reported_with_where_to_get_it(name: str, message: str) -> None:
    Path("nowhere").mkdir()
    reported = refuse("reproduce", name, "--data-root", "nowhere", *CPU, "--experiments", FOLDER)
    assert f"{Path('nowhere').absolute()}" in reported
    assert message in reported
    assert "https://" in reported
    assert f"\nA small version needs no data: rectifier reproduce {name} --quick\n" in reported


@pytest.mark.usefixtures("nothing_is_trained")
@pytest.mark.parametrize("name", [None, "celeba"])
@pytest.mark.parametrize("there", ["nothing", "an empty folder", "a package without experiments"])
def test_a_folder_without_experiments(there: str, name: str | None, tmp_path: Path) -> None:
    folder = tmp_path / "bare"
    if there != "nothing":
        folder.mkdir()
    if there == "a package without experiments":
        (folder / "__init__.py").write_text("")
        (folder / "notes.py").write_text("ANSWER = 42\n")
    message = refuse("reproduce", *filter(None, [name]), "--experiments", folder)
    assert str(folder) in message


@pytest.mark.usefixtures("nothing_is_trained")
def test_a_data_root_that_does_not_exist() -> None:
    note = "--data-root gone does not exist"
    asked = ("reproduce", "imbalance", "--experiments", FOLDER, "--data-root", "gone")
    assert refuse(*asked) == f"Error: {note}.\n"
    assert note not in succeed(*asked, "--show").stderr
    Path("gone").mkdir()
    assert note not in succeed(*asked).stderr


# Experiments of one's own


def test_an_experiment_of_ones_own(mine: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    name, folder = mine
    listed = succeed("reproduce", "--experiments", folder).stdout
    assert name in listed
    assert "Mine alone" in listed

    result = succeed("reproduce", name, "--experiments", folder, "--out", "out", "--results", "found", *CPU)
    assert result.stderr.endswith(f"Written: {Path('found') / name}.md\n")
    assert "Mine alone" in result.stdout
    assert "64.5" in result.stdout  # the published number
    assert {path.name for path in Path("found").iterdir()} == {f"{name}.json", f"{name}.md", "README.md"}
    recorded = json.loads(Path(f"found/{name}.json").read_text())["runs"]
    runs = [Run(path) for path in Path("out/runs").iterdir()]
    assert len(recorded) == len(runs) == 4
    assert all(one.is_finished for one in runs)
    assert sorted(Path("out").iterdir()) == [Path("out/records"), Path("out/runs")]

    monkeypatch.setattr(suite, "train", lambda *_, **__: pytest.fail("trained again"))
    again = succeed("reproduce", name, "--experiments", folder, "--out", "out", "--results", "found", *CPU)
    assert again.stdout == result.stdout


def test_results_go_into_the_current_folder_by_default(mine: tuple[str, Path]) -> None:
    name, folder = mine
    succeed("reproduce", name, "--experiments", folder, "--seeds", 1, *CPU)
    assert len(json.loads(Path(f"results/{name}.json").read_text())["runs"]) == 2
    assert len(list(Path("reproduced/runs").iterdir())) == 2
    succeed("reproduce", name, "--experiments", folder, "--quick", "--seeds", 1, *CPU)
    assert Path(f"reproduced/quick/{name}.md").is_file()
    assert len(list(Path("reproduced/quick-runs").iterdir())) == 2


def test_all_means_all(mine: tuple[str, Path]) -> None:
    name, folder = mine
    write_experiment(folder, "another_of_all", "The other one")
    result = succeed("reproduce", "all", "--experiments", folder, "--seeds", 1, *CPU)
    assert {path.stem for path in Path("results").glob("*.json")} == {name, "another-of-all"}
    assert result.stderr.count("Written: ") == 2
    assert len(list(Path("reproduced/runs").iterdir())) == 2  # both are of the same runs
    assert Path("results/README.md").read_text(encoding="utf-8").count(".md) |") == 2


def test_a_name_given_twice_is_run_once(mine: tuple[str, Path]) -> None:
    name, folder = mine
    result = succeed("reproduce", name, name, "--experiments", folder, "--seeds", 1, *CPU)
    assert result.stderr.count("Written: ") == 1


def test_show_trains_nothing(mine: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    name, folder = mine
    asked = ("reproduce", name, "--experiments", folder, "--seeds", 1, *CPU)
    trained = succeed(*asked)
    before = contents(Path("results"))
    monkeypatch.setattr(suite, "train", lambda *_, **__: pytest.fail("trained"))
    assert succeed(*asked, "--show").stdout == trained.stdout
    assert contents(Path("results")) == before


def test_a_stopped_command_says_how_to_resume(mine: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    name, folder = mine
    start, started = suite.train, []

    def train(*arguments: object, **options: object) -> object:
        started.append(arguments)
        if len(started) == 2:
            raise Stopped(15, "epoch 1")
        return start(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(suite, "train", train)
    result = run("reproduce", name, "--experiments", folder, "--seeds", 1, *CPU)
    assert result.exit_code == 128 + 15
    assert "Run the same command again to resume." in result.stderr
    assert len(json.loads(Path(f"results/{name}.json").read_text())["runs"]) == 1
    succeed("reproduce", name, "--experiments", folder, "--seeds", 1, *CPU)
    assert len(started) == 3
    assert len(json.loads(Path(f"results/{name}.json").read_text())["runs"]) == 2


def test_a_quick_version_says_little(mine: tuple[str, Path]) -> None:
    name, folder = mine
    said = succeed("reproduce", name, "--experiments", folder, "--seeds", 1, "--quick", *CPU).stderr
    assert f"{name}.json:" not in said
