"""Records: what they say is what the run's folder says, and one key names one run on any machine."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.records import SHAPES, SMALL
from rectifier._base import console
from rectifier.evaluation.scoring import RULES
from rectifier.reproduce.records import key_of, read_records, record_of, write_results
from rectifier.training import train
from rectifier.training.config import Config
from rectifier.training.run.folder import Run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    config = Config(SHAPES).with_settings({**SMALL, "method": "crl", "eta": 0.5, "seed": 3})
    with console.quiet():
        return train(config, tmp_path_factory.mktemp("records") / "run")


@pytest.fixture
def copy(run: Run, tmp_path: Path) -> Run:
    """A copy of the run, to be changed."""
    return Run(shutil.copytree(run.path, tmp_path / "run"))


def content(run: Run, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run.path / name).read_text())
    return found


def change(run: Run, name: str, edit: Callable[[dict[str, Any]], object]) -> None:
    found = content(run, name)
    edit(found)
    (run.path / name).write_text(json.dumps(found))


def test_a_record_says_what_the_folder_says(run: Run) -> None:
    record = record_of(run)
    asked, config, data, made, metrics = (
        content(run, f"{name}.json") for name in ("asked", "config", "data", "environment", "metrics")
    )
    (session,) = made["sessions"]

    assert record["key"] == key_of(Config.from_dict(asked)) != key_of(Config.from_dict(config))  # what the recipe chose
    assert record["seed"] == config["seed"] == 3
    assert record["config"]["method.eta"] == config["method_options"]["eta"] == 0.5
    for name in ("data", "method", "network", "epochs", "batch_size", "lr", "weight_decay", "schedule"):
        assert record["config"][name] == config[name]

    ratios = {label: max(n.values()) / min(n.values()) for label, n in data["counts"]["train"].items()}
    assert set(ratios) == {"shape", "colour"}
    assert record["data"].pop("ratios") == pytest.approx(ratios, abs=0.005)
    assert record["data"] == {name: data[name] for name in ("name", "fingerprint", "split_hash", "samples")}

    assert record["parameters"] == made["decided"]["parameters"]
    assert record["precision"] == made["decided"]["precision"]
    assert record["hardware"] == made["processor"]
    assert record["versions"] == {"python": made["python"], "torch": made["packages"]["torch"]}
    assert record["commit"] == session["commit"] == made["commit"]
    assert record["seconds"] == pytest.approx(session["seconds"], abs=0.051)
    assert record["together"] == session["together"] == 1

    assert record["preferred_rule"] == metrics["preferred_rule"]
    for part in ("validation", "test"):
        assert list(record[part]) == list(RULES)
        for rule in RULES:
            known, kept = metrics[part]["rules"][rule], dict(record[part][rule])
            labels = {name: one["class_balanced_accuracy"] for name, one in known["labels"].items()}
            assert kept.pop("labels") == pytest.approx(labels, abs=1e-5)
            assert kept.pop("group_top5") == {}
            assert kept == pytest.approx({metric: known[metric] for metric in kept}, abs=1e-5)
            assert {"class_balanced_accuracy", "accuracy", "top5_class_balanced_accuracy"} <= set(kept)


def test_a_record_goes_through_json_unchanged(run: Run, tmp_path: Path) -> None:
    write_results(tmp_path / "one.json", {"experiment": "one"}, {"runs": [record_of(run)]})
    assert read_records(tmp_path) == {record_of(run)["key"]: record_of(run)}


def test_the_time_is_that_of_all_stretches_and_the_commit_that_of_the_last(copy: Run) -> None:
    sessions = [{"commit": "a", "seconds": 10.0}, {"commit": "b"}, {"commit": "c", "seconds": 2.5, "together": 4}]
    change(copy, "environment.json", lambda made: made.update(sessions=sessions))
    record = record_of(copy)
    assert (record["seconds"], record["commit"], record["together"]) == (None, "c", 4)  # the second was killed
    change(copy, "environment.json", lambda made: made.update(sessions=sessions[::2]))
    assert record_of(copy)["seconds"] == pytest.approx(10.0 + 2.5 / 4, abs=0.006)


@pytest.mark.parametrize("together", [(4, 2), (2, 4), (1, 2, 1)])
def test_together_is_the_largest_number_over_all_sessions(copy: Run, together: tuple[int, ...]) -> None:
    sessions = [{"commit": "a", "seconds": 6.0, "together": n} for n in together]
    change(copy, "environment.json", lambda made: made.update(sessions=sessions))
    record = record_of(copy)
    assert record["together"] == max(together)
    assert record["seconds"] == pytest.approx(sum(6.0 / n for n in together), abs=0.006)


def test_the_hardware_is_what_it_was_trained_on(run: Run, copy: Run) -> None:
    change(copy, "environment.json", lambda made: made.update(gpus=["NVIDIA H200"]))
    assert record_of(copy)["hardware"] == content(run, "environment.json")["processor"]
    change(copy, "environment.json", lambda made: made["decided"].update(device="cuda:0"))
    assert record_of(copy)["hardware"] == "NVIDIA H200"


def test_a_class_without_samples_has_no_part_in_the_ratio(copy: Run) -> None:
    counts = {"shape": {"a": 30, "b": 0, "c": 20}, "colour": {"red": 0, "blue": 0}}
    change(copy, "data.json", lambda data: data["counts"].update(train=counts))
    assert record_of(copy)["data"]["ratios"] == {"shape": 1.5, "colour": None}


def test_the_scores_of_a_single_label_stand_once(copy: Run) -> None:

    def leave_one(metrics: dict[str, Any]) -> None:
        for part in ("validation", "test"):
            for scores in metrics[part]["rules"].values():
                scores["labels"].pop("colour")

    change(copy, "metrics.json", leave_one)
    assert {json.dumps(record_of(copy)["test"][rule]["labels"]) for rule in RULES} == {"{}"}


# Keys


CONFIG = Config("cifar100:imb=1").with_settings({"method": "crl", "eta": 0.5, "network.dropout": 0.1})


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"data_root": "/another/disk"},
        {"accelerator": "cuda"},
        {"accelerator": "cpu", "devices": 2},
        {"nodes": 2},
        {"step": "eager"},
        {"checkpoint_seconds": 5.0},
        {"tensorboard": False, "features": False},
    ],
    ids=str,
)
def test_where_a_run_is_trained_does_not_change_its_key(elsewhere: dict[str, Any]) -> None:
    assert key_of(CONFIG.with_settings(elsewhere)) == key_of(CONFIG)


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 1},
        {"eta": 0.1},
        {"method": "ce"},
        {"data": "cifar100:bln=1"},
        {"data.seed": 5},
        {"split_seed": 5},
        {"network": "densenet"},
        {"network.dropout": 0.2},
        {"lr": 0.05},
        {"epochs": 31},
        {"precision": "bf16"},
    ],
    ids=str,
)
def test_what_changes_what_is_learned_changes_the_key(other: dict[str, Any]) -> None:
    assert key_of(CONFIG.with_settings(other)) != key_of(CONFIG)


def test_a_key_does_not_depend_on_the_order_of_options() -> None:
    options = {"kappa": 10, "rho": 0.3, "eta": 0.5}
    turned = dict(reversed(options.items()))
    assert list(options) != list(turned)
    assert key_of(replace(CONFIG, method_options=options)) == key_of(replace(CONFIG, method_options=turned))


def test_a_table_has_its_key_wherever_it_lies(tmp_path: Path) -> None:
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "pets.csv").write_text("image,kind\na.png,cat\n")
    keys = {key_of(Config(str(tmp_path / folder / "pets.csv")).anchored()) for folder in ("here", "there")}
    assert len(keys) == 1


def test_a_key_is_a_short_name_for_a_folder() -> None:
    assert len(key_of(CONFIG)) == 12
    assert set(key_of(CONFIG)) <= set("0123456789abcdef")


# Files


def test_results_are_json_with_a_line_for_each_run(tmp_path: Path) -> None:
    facts = {"experiment": "näme", "title": "π ± 1", "found": {"a": [1, None]}, "chosen": []}
    runs = [{"key": "a", "seed": 0}, {"key": "b", "seed": 1}]
    write_results(tmp_path / "new" / "one.json", facts, {"runs": runs, "candidates": []})
    text = (tmp_path / "new" / "one.json").read_text(encoding="utf-8")
    assert json.loads(text) == {**facts, "runs": runs, "candidates": []}
    lines = [line.strip().rstrip(",") for line in text.splitlines()]
    assert all(json.dumps(run) in lines for run in runs)
    assert "π ± 1" in text


def test_what_is_no_number_is_refused_and_harms_nothing(tmp_path: Path) -> None:
    write_results(tmp_path / "one.json", {"experiment": "one"}, {"runs": [{"key": "a"}]})
    before = (tmp_path / "one.json").read_bytes()
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_results(tmp_path / "one.json", {"experiment": "one"}, {"runs": [{"key": "a", "nll": math.nan}]})
    assert (tmp_path / "one.json").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["one.json"]


def bare(key: str, seed: int = 0) -> dict[str, Any]:
    return {"key": key, "config": {}, "seed": seed, "data": {}}


def test_records_are_gathered_from_all_results_of_a_folder(tmp_path: Path) -> None:
    for name, keys in {"one": "ab", "two": "bc"}.items():
        write_results(tmp_path / f"{name}.json", {"experiment": name}, {"runs": [bare(key) for key in keys]})
    write_results(tmp_path / "three.json", {"experiment": "three"}, {"runs": [], "candidates": [bare("d", 1000)]})
    # Other results may lie in the same folder.
    (tmp_path / "speed.json").write_text('{"hardware": "H200", "rounds": 5}')
    (tmp_path / "list.json").write_text("[1, 2]")
    (tmp_path / "count.json").write_text('{"runs": 3}')
    (tmp_path / "timings.json").write_text('{"runs": [{"seconds": 1.5}, 2.5, "a key"]}')
    assert {key: one["key"] for key, one in read_records(tmp_path).items()} == {key: key for key in "abcd"}
    assert read_records(tmp_path)["d"] == bare("d", 1000)
    assert read_records(tmp_path / "nowhere") == {}


def test_damaged_results_are_named(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text('{"runs": [')
    with pytest.raises(ValueError, match=r"one\.json is damaged: it is not JSON"):
        read_records(tmp_path)


def test_labels_that_no_image_changes_are_counted(run: Run, copy: Run) -> None:
    assert record_of(run)["blind"] == 0
    known = copy.predictions("validation")
    logits = known.logits.clone()
    logits[:, : known.space.sizes[0]] = 1.5
    copy.save_predictions("validation", replace(known, logits=logits))
    assert record_of(copy)["blind"] == 1


BARE = {"key": "shared", "config": {}, "seed": 0, "data": {}}


@pytest.mark.parametrize("own", ["one", "two"])
def test_of_a_run_that_two_have_an_experiments_own_record_prevails(tmp_path: Path, own: str) -> None:
    for name in ("one", "two"):
        write_results(tmp_path / f"{name}.json", {"experiment": name}, {"runs": [{**BARE, "test": name}]})
    assert read_records(tmp_path, tmp_path / f"{own}.json")["shared"]["test"] == own


@pytest.mark.parametrize("scored", ["one", "two"])
@pytest.mark.parametrize("own", ["one", "two"])
def test_a_record_without_scores_does_not_replace_one_that_has_them(tmp_path: Path, scored: str, own: str) -> None:
    for name in ("one", "two"):
        run = {**BARE, **({"test": name} if name == scored else {})}
        write_results(tmp_path / f"{name}.json", {"experiment": name}, {"runs": [run]})
    assert read_records(tmp_path, tmp_path / f"{own}.json")["shared"] == {**BARE, "test": scored}
