"""The state of a training: its counters, its best epoch, its sums against loops, and that a checkpoint holds all."""

from __future__ import annotations

import io
import math
from typing import Any

import pytest
import torch
from torch import nn

from rectifier.losses.cross_entropy import RectifiedCrossEntropy
from rectifier.losses.objective import LossParts
from rectifier.training.engine.state import TERMS, State, Tally

CPU = torch.device("cpu")
NAMES = ("colour", "striped", "sleeve")


def network(value: float) -> nn.Linear:
    made = nn.Linear(2, 1)
    with torch.no_grad():
        made.weight.fill_(value)
    return made


def judged(scores: list[float], keep_last: bool = False) -> State:
    """Validate once an epoch, with weights that are the number of the epoch."""
    state = State()
    for epoch, score in enumerate(scores, start=1):
        state.end_epoch({"epoch": epoch}, [])
        state.judge(score, network(float(epoch)), keep_last)
    return state


def kept_epoch(state: State) -> int:
    assert state.best_weights is not None
    return int(state.best_weights["weight"][0, 0])


def through_a_file(content: Any) -> Any:
    file = io.BytesIO()
    torch.save(content, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def test_batches_count_within_an_epoch_and_steps_through_all() -> None:
    state = State()
    for epoch in (1, 2):
        for window in (2, 2, 1):
            state.advance(window)
        assert (state.batch, state.step) == (5, 3 * epoch)
        state.end_epoch({"loss": epoch}, [{"epoch": epoch, "label": label} for label in ("colour", "striped")])
        assert (state.epoch, state.batch, state.step) == (epoch, 0, 3 * epoch)
    assert [row["loss"] for row in state.epochs] == [1, 2]
    assert [(row["epoch"], row["label"]) for row in state.labels] == [
        (epoch, label) for epoch in (1, 2) for label in ("colour", "striped")
    ]


@pytest.mark.parametrize(
    "scores", [[0.5], [0.1, 0.2, 0.3], [0.3, 0.2, 0.1], [0.2, 0.5, 0.5, 0.1], [0.0, 0.0], [0.4, 0.6, 0.5, 0.6, 0.7]]
)
def test_the_first_of_the_best_epochs_is_kept(scores: list[float]) -> None:
    state = judged(scores)
    best = scores.index(max(scores)) + 1
    assert (state.best, state.best_epoch, kept_epoch(state)) == (max(scores), best, best)
    assert state.waited == len(scores) - best


def test_the_last_epoch_is_kept_on_request() -> None:
    assert kept_epoch(judged([0.9, 0.5, 0.1], keep_last=True)) == 3


@pytest.mark.parametrize("keep_last", [False, True])
def test_validations_without_a_gain_are_counted(keep_last: bool) -> None:
    # Which weights are kept is one thing, whether validation still gains another.
    scores = [0.3, 0.6, 0.5, 0.6, 0.4]
    waited = [judged(scores[:count], keep_last).waited for count in range(1, len(scores) + 1)]
    assert waited == [0, 0, 1, 2, 3]


def test_the_best_weights_do_not_change_with_training() -> None:
    state, trained = State(), network(1.0)
    state.judge(0.5, trained)
    with torch.no_grad():
        trained.weight.fill_(7.0)
    assert kept_epoch(state) == 1


def test_buffers_are_kept_with_the_weights() -> None:
    state, normalised = State(), nn.BatchNorm1d(3)
    normalised(torch.randn(8, 3, generator=torch.Generator().manual_seed(0)))
    state.judge(0.5, normalised)
    assert state.best_weights is not None
    assert state.best_weights.keys() == normalised.state_dict().keys()
    assert torch.equal(state.best_weights["running_mean"], normalised.running_mean)


def test_a_checkpoint_holds_everything() -> None:
    state = judged([0.2, 0.6, 0.5])
    state.end_epoch({"epoch": 4, "validation": None}, [{"label": "colour", "alpha": 0.5}])
    state.advance(3)
    plain = State()
    written = vars(state)
    assert not [name for name in written if repr(written[name]) == repr(getattr(plain, name))], "a field at its default"
    saved = through_a_file({**written, "network": {}})
    again = State.from_checkpoint(saved)
    for name in written.keys() - {"best_weights"}:
        assert getattr(again, name) == getattr(state, name)
    assert again.best_weights is not None
    assert state.best_weights is not None
    assert all(torch.equal(again.best_weights[name], weight) for name, weight in state.best_weights.items())


def test_judging_continues_after_a_checkpoint_as_without() -> None:
    scores = [0.2, 0.6, 0.5, 0.6, 0.7, 0.1]
    whole = judged(scores)
    for stopped in range(len(scores) + 1):
        state = State.from_checkpoint(through_a_file(vars(judged(scores[:stopped]))))
        for epoch in range(stopped + 1, len(scores) + 1):
            state.end_epoch({"epoch": epoch}, [])
            state.judge(scores[epoch - 1], network(float(epoch)))
        assert (state.best, state.best_epoch, state.waited) == (whole.best, whole.best_epoch, whole.waited)
        assert kept_epoch(state) == kept_epoch(whole)
        assert state.epochs == whole.epochs


def test_no_checkpoint_is_the_beginning() -> None:
    assert State.from_checkpoint(None) == State()
    one, two = State.from_checkpoint(None), State.from_checkpoint(None)
    one.end_epoch({"epoch": 1}, [])
    assert two.epochs == []


# Sums over an epoch


def batch(seed: int, labels: int = 3, loss: float | None = None) -> LossParts:
    g = torch.Generator().manual_seed(seed)
    found = torch.rand((), generator=g) * 5 if loss is None else torch.tensor(loss)
    entropy, rectification, alpha = torch.rand(3, labels, generator=g)
    mined, comparisons = torch.randint(0, 100, (2, labels), generator=g)
    return LossParts(found, entropy, rectification, alpha, mined, comparisons)


def tallied(batches: list[LossParts], labels: int = 3) -> Tally:
    tally = Tally(labels, CPU)
    for parts in batches:
        tally.add(parts)
        tally.count(1)
    return tally


def everything(tally: Tally) -> tuple[Any, ...]:
    return tally.batches, tally.means(), tally.by_label(NAMES), tally.first_bad()


@pytest.mark.parametrize("batches", [1, 2, 17])
def test_means_are_those_of_a_loop_over_batches(batches: int) -> None:
    seen = [batch(seed) for seed in range(batches)]
    tally = tallied(seen)
    assert tally.batches == batches
    assert tally.means()["loss"] == pytest.approx(sum(float(parts.loss) for parts in seen) / batches)
    labels = tally.by_label(NAMES)
    assert [row["label"] for row in labels] == list(NAMES)
    for name, field in TERMS.items():
        own = [sum(float(getattr(parts, field)[a]) for parts in seen) / batches for a in range(3)]
        assert [row[name] for row in labels] == pytest.approx(own)
        assert tally.means()[name] == pytest.approx(sum(own) / 3)
    assert [row["alpha"] for row in labels] == pytest.approx(seen[-1].alpha.tolist())


def test_many_small_numbers_next_to_a_large_one_are_not_lost() -> None:
    losses = [1e6, *[1e-2] * 2000]
    tally = tallied([batch(0, loss=loss) for loss in losses])
    exact = math.fsum(float(torch.tensor(loss)) for loss in losses) / len(losses)
    assert tally.means()["loss"] == pytest.approx(exact, rel=1e-12)


def test_before_the_first_batch_there_is_nothing() -> None:
    tally = Tally(3, CPU)
    assert set(tally.means().values()) == {0.0}
    assert (tally.batches, tally.first_bad()) == (0, None)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("first", [0, 3, 5])
def test_the_first_bad_batch_is_remembered(value: float, first: int) -> None:
    losses = [value if number in (first, 5) else 1.0 for number in range(7)]
    tally = tallied([batch(number, loss=loss) for number, loss in enumerate(losses)])
    assert tally.first_bad() == first


def test_finite_losses_are_not_bad() -> None:
    assert tallied([batch(0, loss=loss) for loss in (0.0, -1.0, 3e38)]).first_bad() is None


@pytest.mark.parametrize("losses", [[1.0] * 9, [1.0, math.nan, *[2.0] * 7], [*[2.0] * 7, math.nan, 1.0]])
@pytest.mark.parametrize("stopped", [0, 1, 4, 9])
def test_a_tally_goes_on_from_the_middle_of_an_epoch(losses: list[float], stopped: int) -> None:
    seen = [batch(number, loss=loss) for number, loss in enumerate(losses)]
    file = io.BytesIO()
    torch.save(tallied(seen[:stopped]).state(), file)
    file.seek(0)
    resumed = Tally(3, CPU)
    resumed.load(torch.load(file, weights_only=True))
    for parts in seen[stopped:]:
        resumed.add(parts)
        resumed.count(1)
    whole = tallied(seen)
    assert repr(everything(resumed)) == repr(everything(whole))  # bit for bit, NaN too


def test_a_state_is_what_was_when_it_was_taken() -> None:
    seen = [batch(number) for number in range(6)]
    tally = tallied(seen[:3])
    state = tally.state()
    for parts in seen[3:]:
        tally.add(parts)
        tally.count(1)
    earlier = Tally(3, CPU)
    earlier.load(state)
    assert everything(earlier) == everything(tallied(seen[:3]))


def test_two_that_go_on_from_one_state_do_not_meet() -> None:
    state = tallied([batch(0)]).state()
    one, two = Tally(3, CPU), Tally(3, CPU)
    one.load(state)
    two.load(state)
    one.add(batch(1))
    one.count(1)
    assert everything(two) == everything(tallied([batch(0)]))


def test_nothing_of_a_batch_is_kept_for_its_gradient() -> None:
    objective = RectifiedCrossEntropy([torch.tensor([9, 3]), torch.tensor([5, 4, 3])])
    logits = torch.randn(12, 5, generator=torch.Generator().manual_seed(0)).requires_grad_()
    targets = torch.stack([torch.arange(12) % 2, torch.arange(12) % 3], 1)
    parts = objective(logits, targets, return_parts=True)
    assert parts.loss.requires_grad
    tally = tallied([parts], labels=2)
    assert not any(value.requires_grad for value in tally.state().values() if isinstance(value, torch.Tensor))
    assert tally.means()["loss"] == pytest.approx(parts.loss.item())
