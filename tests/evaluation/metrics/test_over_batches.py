"""The metric inside torchmetrics: batches, collections, trackers, processes, files, figures."""

from __future__ import annotations

import copy
import gc
import math
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor
from torchmetrics import MetricCollection, MetricTracker
from torchmetrics.classification import MulticlassAccuracy, MulticlassRecall

from helpers.cases import Batch, make_batch
from rectifier import ClassBalancedAccuracy, LabelSpace, class_balanced_accuracy

BATCH = make_batch([5], 60, seed=3, dtype=torch.float32)
ROWS = torch.arange(60).split(17)
SIZED_OR_NOT = pytest.mark.parametrize("sizes", [[5], None], ids=["sized", "by the first batch"])


def counted(metric: ClassBalancedAccuracy, batch: Batch = BATCH, rows: Any = ROWS) -> ClassBalancedAccuracy:
    for own in rows:
        metric.update(batch.logits[own], batch.targets[own])
    return metric


def expected(batch: Batch = BATCH, rows: Any = slice(None)) -> Tensor:
    return class_balanced_accuracy(batch.logits[rows], batch.targets[rows], batch.sizes)


def assert_counts(metric: ClassBalancedAccuracy, batch: Batch = BATCH, rows: Any = slice(None)) -> None:
    torch.testing.assert_close(metric.compute(), expected(batch, rows))
    assert metric.total.sum() == (batch.targets[rows] >= 0).sum()
    assert metric.total.dtype == metric.correct.dtype == torch.int64


# Batches


def test_batches_of_several_labels_add_up() -> None:
    batch = make_batch([2, 7, 3], 100, seed=2, missing=0.2)
    metric = counted(ClassBalancedAccuracy(batch.sizes), batch, torch.arange(100).split(17))
    assert_counts(metric, batch)


@SIZED_OR_NOT
def test_batches_of_one_label_add_up(sizes: list[int] | None) -> None:
    metric = counted(ClassBalancedAccuracy(sizes))
    assert_counts(metric)
    assert metric.sizes == (5,)


def test_absent_classes_are_left_out_and_counted() -> None:
    metric = ClassBalancedAccuracy(LabelSpace.from_sizes([3, 2]))
    metric.update(torch.tensor([[9.0, 0, 0, 9, 0], [9, 0, 0, 9, 0]]), torch.tensor([[0, -1], [2, -1]]))
    assert metric.compute() == 0.5  # class 0 found, class 2 missed; class 1 and the second label do not count
    assert metric.absent == 3
    assert [math.isnan(share) for share in metric.sensitivity.tolist()] == [False, True, False, True, True]


@SIZED_OR_NOT
def test_a_call_gives_the_value_of_the_batch_and_counts_it(sizes: list[int] | None) -> None:
    metric = ClassBalancedAccuracy(sizes)
    for rows in ROWS:
        torch.testing.assert_close(metric(BATCH.logits[rows], BATCH.targets[rows]), expected(rows=rows))
    assert_counts(metric)
    assert metric.update_count == len(ROWS)


def test_after_a_reset_the_first_batch_may_have_another_size() -> None:
    metric = counted(ClassBalancedAccuracy())
    metric.reset()
    assert metric.sizes == ()
    metric.update(torch.zeros(2, 3), torch.tensor([0, 1]))
    assert metric.sensitivity.shape == (3,)
    sized = counted(ClassBalancedAccuracy([5]))
    sized.reset()
    assert sized.total.tolist() == [0] * 5


def test_class_indices_count_as_the_logits_they_come_from() -> None:
    batch = make_batch([2, 7, 3], 100, seed=2, missing=0.2)
    classes = torch.stack([block.argmax(1) for block in batch.logits.split(batch.sizes, 1)], 1)
    metric = ClassBalancedAccuracy(batch.sizes)
    metric.update(classes, batch.targets)
    assert_counts(metric, batch)
    single = ClassBalancedAccuracy(5)
    single.update(preds=BATCH.logits.argmax(1), target=BATCH.targets[:, 0])
    assert_counts(single)
    single.reset()
    single.update(BATCH.logits.argmax(1).tolist(), BATCH.targets.numpy())
    assert_counts(single)


def test_class_indices_need_a_number_of_classes() -> None:
    metric = ClassBalancedAccuracy()
    with pytest.raises(ValueError, match="sizes to be given, because class indices do not tell the number of classes"):
        metric.update(torch.tensor([0, 1]), torch.tensor([0, 1]))
    metric.update(BATCH.logits[:30], BATCH.targets[:30])
    metric.update(BATCH.logits[30:].argmax(1), BATCH.targets[30:, 0])  # known from the first batch
    assert_counts(metric)


def test_wrong_input_says_so() -> None:
    metric = ClassBalancedAccuracy(LabelSpace.from_names({"hat": ["no", "yes"]}))
    with pytest.raises(ValueError, match="targets of label 'hat' to be below 2"):
        metric.update(torch.zeros(1, 2), torch.tensor([2]))
    with pytest.raises(ValueError, match=r"logits to be of shape \(N, 2\) for sizes \[2\]"):
        metric.update(torch.zeros(1, 3), torch.tensor([1]))
    unsized = counted(ClassBalancedAccuracy())
    with pytest.raises(ValueError, match=r"logits to be of shape \(N, 5\) for sizes \[5\]"):
        unsized.update(torch.zeros(1, 3), torch.tensor([1]))
    with pytest.raises(ValueError, match=r"logits to be of shape \(N, K\)"):
        ClassBalancedAccuracy().update(torch.zeros(3), torch.tensor([1]))


def test_half_precision() -> None:
    metric = counted(ClassBalancedAccuracy().half(), BATCH._replace(logits=BATCH.logits.half()))
    assert metric.compute() == class_balanced_accuracy(BATCH.logits.half(), BATCH.targets)
    assert metric.total.dtype == torch.int64


# torchmetrics


@SIZED_OR_NOT
def test_states_are_merged(sizes: list[int] | None) -> None:
    parts = [counted(ClassBalancedAccuracy(sizes), rows=ROWS[:2]), counted(ClassBalancedAccuracy(sizes), rows=ROWS[2:])]
    fresh = ClassBalancedAccuracy(sizes)
    fresh.merge_state(parts[0])  # one that has counted nothing, and one that has
    fresh.merge_state(parts[1].metric_state)
    fresh.merge_state(ClassBalancedAccuracy(sizes))
    with pytest.warns(UserWarning, match="before the ``update`` method"):
        assert_counts(fresh)


@SIZED_OR_NOT
def test_a_saved_state_goes_on(sizes: list[int] | None) -> None:
    before = counted(ClassBalancedAccuracy(sizes), rows=ROWS[:2])
    before.persistent(True)
    metric = ClassBalancedAccuracy(sizes)
    metric.persistent(True)
    metric.load_state_dict(before.state_dict())
    assert metric.sizes == (5,)
    assert torch.equal(metric.sensitivity.nan_to_num(9), before.sensitivity.nan_to_num(9))
    assert_counts(counted(metric, rows=ROWS[2:]))


@SIZED_OR_NOT
def test_copies_go_on(sizes: list[int] | None) -> None:
    metric = counted(ClassBalancedAccuracy(sizes), rows=ROWS[:2])
    for other in (copy.deepcopy(metric), pickle.loads(pickle.dumps(metric)), metric.clone()):
        assert_counts(counted(other, rows=ROWS[2:]))
    assert_counts(counted(metric, rows=ROWS[2:]))


@SIZED_OR_NOT
def test_a_collection_shares_what_is_equal(sizes: list[int] | None) -> None:
    members = {"ours": ClassBalancedAccuracy(sizes), "again": ClassBalancedAccuracy(sizes)}
    others = {"recall": MulticlassRecall(5, average="macro"), "accuracy": MulticlassAccuracy(5, average="micro")}
    metrics: Any = MetricCollection({**members, **others})
    for rows in ROWS:
        metrics.update(preds=BATCH.logits[rows], target=BATCH.targets[rows, 0])
    found = metrics.compute()
    assert ["again", "ours"] in [sorted(group) for group in metrics.compute_groups.values()]
    torch.testing.assert_close(found["ours"], expected())
    torch.testing.assert_close(found["again"], expected())
    torch.testing.assert_close(found["recall"], expected())  # all five classes occur
    assert metrics["again"].sizes == (5,)
    metrics.reset()
    torch.testing.assert_close(metrics(BATCH.logits, BATCH.targets[:, 0])["again"], expected())


@SIZED_OR_NOT
def test_a_tracker_finds_the_best_epoch(sizes: list[int] | None) -> None:
    tracker: Any = MetricTracker(ClassBalancedAccuracy(sizes))
    for rows in ROWS:
        tracker.increment()
        tracker.update(BATCH.logits[rows], BATCH.targets[rows])
    values = [expected(rows=rows).item() for rows in ROWS]
    assert tracker.best_metric() == pytest.approx(max(values))
    assert tracker.compute_all().tolist() == pytest.approx(values)


def test_metrics_can_be_added() -> None:
    both = ClassBalancedAccuracy([5]) + 1
    both.update(BATCH.logits, BATCH.targets)
    torch.testing.assert_close(both.compute(), expected() + 1)


@SIZED_OR_NOT
def test_a_figure(sizes: list[int] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib.pyplot as plt

    metric = counted(ClassBalancedAccuracy(sizes))
    for figure, axes in (metric.plot(), metric.plot([metric.compute(), torch.tensor(0.5)])):
        assert axes.get_ylabel() == "ClassBalancedAccuracy"
        low, high = axes.get_ylim()
        assert low <= 0
        assert high >= 1
        plt.close(figure)
    monkeypatch.setattr("torchmetrics.utilities.plot._MATPLOTLIB_AVAILABLE", False)
    with pytest.raises(ModuleNotFoundError, match=r"pip install matplotlib"):
        metric.plot()


def test_nothing_counted() -> None:
    for metric in (ClassBalancedAccuracy(), ClassBalancedAccuracy([5])):
        with pytest.warns(UserWarning, match="before the ``update`` method"):
            assert metric.compute().isnan()


# Several processes


def run_rank(rank: int, folder: str, batch: Batch) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    parts = [slice(0, 25), slice(25, 60)]
    results: dict[str, list[Tensor]] = {}
    for name, sizes in (("sized", [5]), ("unsized", None)):
        metric = counted(ClassBalancedAccuracy(sizes), batch, [parts[rank]])
        results[name] = [metric.compute(), metric.sensitivity, metric.absent]
    idle = ClassBalancedAccuracy()
    if rank == 0:  # the other has no batch, and does not know the number of classes
        counted(idle, batch, [parts[0]])
        results["idle"] = [idle.compute(), idle.sensitivity, idle.absent]
    else:
        with pytest.warns(UserWarning, match="before the ``update`` method"):
            results["idle"] = [idle.compute(), idle.sensitivity, idle.absent]
        assert idle.sizes == ()
    if rank == 0:  # alone: any synchronisation would wait for ever
        for name, alone in (
            ("off", {"sync_on_compute": False}),
            ("hidden", {"distributed_available_fn": lambda: False}),
        ):
            metric = counted(ClassBalancedAccuracy(**alone), batch, [parts[0]])  # type: ignore[arg-type]
            results[name] = [metric(batch.logits[parts[1]], batch.targets[parts[1]])]
            results[name] += [metric.compute(), metric.sensitivity, metric.absent]
    torch.save(results, f"{folder}/{rank}.pt")
    dist.barrier()
    gc.collect()
    dist.destroy_process_group()


@pytest.mark.skipif(sys.platform == "win32", reason="gloo and files")
def test_processes_add_up_and_one_may_evaluate_alone(tmp_path: Path) -> None:
    mp.start_processes(run_rank, (str(tmp_path), BATCH), nprocs=2, start_method="spawn")
    whole, first = counted(ClassBalancedAccuracy([5])), counted(ClassBalancedAccuracy([5]), rows=[slice(0, 25)])
    for rank in range(2):
        results = torch.load(tmp_path / f"{rank}.pt")
        for name, metric in (("sized", whole), ("unsized", whole), ("idle", first)):
            wanted = [metric.compute(), metric.sensitivity, metric.absent]
            torch.testing.assert_close(results[name], wanted, equal_nan=True)
    alone = torch.load(tmp_path / "0.pt")
    wanted = [expected(rows=slice(25, 60)), whole.compute(), whole.sensitivity, whole.absent]
    for name in ("off", "hidden"):
        torch.testing.assert_close(alone[name], wanted, equal_nan=True)


def test_an_ignored_target_is_missing() -> None:
    preds, target = torch.tensor([0, 1, 1, 0]), torch.tensor([0, 1, 255, 255], dtype=torch.uint8)
    metric = ClassBalancedAccuracy(2, ignore_index=255)
    metric.update(preds, target)
    assert metric.compute() == 1
