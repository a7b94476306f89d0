"""What every decision rule can do: any kind of logits, saving, moving, composing; and what it may not lose."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import oracles
from helpers.cases import make_batch
from rectifier import LabelSpace
from rectifier.evaluation.rules import (
    PriorRule,
    Rule,
    TemperatureScaling,
    ThresholdAdjustment,
    TunedThresholds,
    VectorScaling,
)

SIZES = [3, 2, 5]
COUNTS = [torch.tensor([80, 15, 5]), torch.tensor([90, 10]), torch.tensor([60, 20, 10, 8, 2])]

Make = Callable[[list[int] | None], Rule]


def counts_of(sizes: list[int] | None) -> list[Tensor] | Tensor:
    return [torch.arange(size, 0, -1) ** 3 for size in sizes] if sizes else torch.tensor([80, 15, 5])


RULES: dict[str, Make] = {
    "prior": lambda sizes: PriorRule(counts_of(sizes)),
    "threshold adjustment": lambda sizes: ThresholdAdjustment(counts_of(sizes)),
    "tuned": lambda sizes: TunedThresholds(sizes),
    "tuned from the prior": lambda sizes: TunedThresholds(class_counts=counts_of(sizes)),
    "temperature": lambda sizes: TemperatureScaling(sizes),
    "vector": lambda sizes: VectorScaling(sizes),
}
MUST_BE_FITTED = ["tuned", "tuned from the prior", "temperature", "vector"]
DECIDING = ["prior", "threshold adjustment", "tuned"]  # those that maximise class-balanced accuracy
every_rule = pytest.mark.parametrize("make", RULES.values(), ids=RULES)


def fitted(make: Make, sizes: list[int] | None = SIZES, dtype: torch.dtype = torch.float32) -> tuple[Rule, Tensor]:
    batch = make_batch(sizes or [3], 80, seed=1, skew=3.0, missing=0.1 if sizes else 0.0, dtype=dtype)
    targets = batch.targets if sizes else batch.targets[:, 0]
    return make(sizes).fit(batch.logits, targets), batch.logits


# Decisions and probabilities


@every_rule
def test_decisions_and_probabilities_follow_from_the_changed_logits(make: Make) -> None:
    rule, logits = fitted(make)
    changed = rule(logits)
    assert changed.shape == logits.shape
    assert not torch.equal(changed, logits)
    blocks = changed.split(SIZES, 1)
    assert torch.equal(rule.decide(logits), torch.stack([block.argmax(1) for block in blocks], 1))
    torch.testing.assert_close(rule.probabilities(logits), torch.cat([block.softmax(1) for block in blocks], 1))


@every_rule
def test_one_label_has_decisions_without_a_second_dimension(make: Make) -> None:
    rule, logits = fitted(make, None)
    assert rule.sizes == (3,)
    assert torch.equal(rule.decide(logits), rule(logits).argmax(1))


@pytest.mark.parametrize("name", DECIDING)
@settings(max_examples=100)
@given(
    sizes=st.lists(st.integers(2, 6), min_size=1, max_size=3),
    samples=st.integers(1, 60),
    seed=st.integers(0, 10**6),
    ties=st.booleans(),
    scale=st.sampled_from([1e-6, 0.1, 2.0, 1e4]),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
)
def test_no_fit_is_worse_than_argmax_on_its_own_data(
    name: str, sizes: list[int], samples: int, seed: int, ties: bool, scale: float, dtype: torch.dtype
) -> None:
    batch = make_batch(sizes, samples, seed, ties=ties, scale=scale, skew=1.0 + seed % 4)
    logits = batch.logits.to(dtype)
    found = RULES[name](sizes).fit(logits, batch.targets).decide(logits)
    hot = [nn.functional.one_hot(found.reshape(samples, -1)[:, a], size) for a, size in enumerate(sizes)]
    after = oracles.class_balanced_accuracy(torch.cat(hot, 1).double(), batch.targets, sizes)
    assert after >= oracles.class_balanced_accuracy(logits.double(), batch.targets, sizes) - 1e-6


def test_the_papers_strengths_can_lose_to_argmax_and_the_default_cannot() -> None:
    logits, targets = [[1.0, 0.5], [0.0, 1.0]], [0, 1]
    paper = ThresholdAdjustment([90, 10], strengths=(1, 2, 3, 4, 5)).fit(logits, targets)
    assert paper.decide(logits) == [1, 1]
    assert ThresholdAdjustment([90, 10]).fit(logits, targets).decide(logits) == targets


# Kinds of logits


@every_rule
def test_arrays_and_lists_give_what_tensors_give(make: Make) -> None:
    batch = make_batch(SIZES, 40, seed=2, missing=0.1)
    rule = make(SIZES).fit(batch.logits, batch.targets)
    for kind in (np.float64, np.float32, np.float16):
        array = batch.logits.numpy().astype(kind)
        by_array, by_tensor = rule(array), rule(torch.from_numpy(array))
        assert isinstance(by_array, np.ndarray)
        assert by_array.dtype == kind
        assert np.array_equal(by_array, by_tensor.numpy())
        assert np.array_equal(rule.decide(array), rule.decide(torch.from_numpy(array)).numpy())
        assert rule.probabilities(array).dtype == kind
    assert rule(batch.logits.tolist()) == rule(batch.logits).tolist()
    assert rule.decide(batch.logits.tolist()) == rule.decide(batch.logits).tolist()
    for other in (make(SIZES).fit(batch.logits.numpy(), batch.targets.numpy()),
                  make(SIZES).fit(batch.logits.tolist(), batch.targets.tolist())):  # fmt: skip
        assert same_state(other, rule)


@every_rule
def test_arrays_that_pytorch_does_not_take_as_they_are(make: Make) -> None:
    rule, logits = fitted(make)
    plain = logits.numpy().copy()
    frozen = plain.copy()
    frozen.flags.writeable = False
    for array in (plain[::-1][::-1], frozen, plain.astype(">f4"), np.asfortranarray(plain)):
        assert np.array_equal(rule(array), rule(plain))
    assert np.array_equal(frozen, logits.numpy())


@every_rule
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_float_type_comes_back(make: Make, dtype: torch.dtype) -> None:
    rule, logits = fitted(make, dtype=dtype)
    changed = rule(logits)
    assert changed.dtype == rule.probabilities(logits).dtype == dtype
    torch.testing.assert_close(changed, rule(logits.double()).to(dtype))


@every_rule
def test_in_half_precision_nothing_is_rounded_before_the_decision(make: Make) -> None:
    rule, logits = fitted(make, None)
    half = (300 + logits).half()  # numbers there are a quarter apart
    assert torch.equal(rule.decide(half), rule.decide(half.float()))


@every_rule
def test_the_output_of_a_model_may_hold_the_logits(make: Make) -> None:
    rule, logits = fitted(make)
    assert torch.equal(rule(SimpleNamespace(logits=logits)), rule(logits))


@every_rule
def test_a_gradient_passes(make: Make) -> None:
    rule, logits = fitted(make)
    rule(logits.requires_grad_()).square().sum().backward()
    assert logits.grad is not None
    assert logits.grad.abs().sum() > 0
    assert not list(rule.parameters())


# State


def same_state(one: Rule, other: Rule) -> bool:
    mine, its = one.state_dict(), other.state_dict()
    return mine.keys() == its.keys() and all(torch.equal(mine[name], its[name]) for name in mine)


@every_rule
@pytest.mark.parametrize("sizes", [SIZES, None])
@pytest.mark.parametrize("assign", [False, True])
def test_a_state_restores_a_rule_that_was_made_alike(make: Make, sizes: list[int] | None, assign: bool) -> None:
    rule, logits = fitted(make, sizes)
    kept = io.BytesIO()
    torch.save(rule.state_dict(), kept)
    kept.seek(0)
    other = make(sizes)
    other.load_state_dict(torch.load(kept, weights_only=True), assign=assign)
    assert same_state(other, rule)
    assert other.sizes == rule.sizes
    assert torch.equal(other(logits), rule(logits))
    assert torch.equal(other.decide(logits), rule.decide(logits))
    assert repr(other) == repr(rule)


@every_rule
def test_a_state_inside_a_model(make: Make) -> None:
    rule, _ = fitted(make, None)
    models = [nn.Sequential(nn.Linear(4, 3), part) for part in (rule, make(None))]
    models[1].load_state_dict(models[0].state_dict())
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    assert torch.equal(models[1](x), models[0](x))


@pytest.mark.parametrize("name", MUST_BE_FITTED)
def test_the_state_of_a_rule_that_is_not_fitted(name: str) -> None:
    rule, logits = fitted(RULES[name])
    rule.load_state_dict(RULES[name](SIZES).state_dict())
    assert not rule.is_fitted
    with pytest.raises(RuntimeError, match=r"is not fitted. Call fit\(logits, targets\)"):
        rule(logits)


@every_rule
def test_a_state_of_other_labels_is_refused(make: Make) -> None:
    rule, _ = fitted(make)
    other = make([2, 3, 5])
    with pytest.raises(RuntimeError, match=r"the state of the rule to be of sizes \(2, 3, 5\), but got \(3, 2, 5\)"):
        other.load_state_dict(rule.state_dict())
    with pytest.raises(RuntimeError, match="Missing key"):
        other.load_state_dict({})


@every_rule
def test_copies_decide_the_same_and_are_independent(make: Make) -> None:
    rule, logits = fitted(make)
    expected, before = rule(logits), copy.deepcopy(rule.state_dict())
    for other in (copy.deepcopy(rule), pickle.loads(pickle.dumps(rule))):
        assert torch.equal(other(logits), expected)
        other.fit(-logits, torch.arange(len(logits))[:, None] % torch.tensor(SIZES))
        assert not torch.equal(other(logits), expected)
    assert all(torch.equal(rule.state_dict()[name], value) for name, value in before.items())


@every_rule
def test_a_rule_that_is_fitted_again_forgets_the_first_fit(make: Make) -> None:
    rule, _ = fitted(make)
    again = make_batch(SIZES, 50, seed=8, dtype=torch.float32)
    assert same_state(rule.fit(again.logits, again.targets), make(SIZES).fit(again.logits, again.targets))


def test_without_sizes_each_fit_may_have_other_classes() -> None:
    rule = TunedThresholds().fit([[1.0, 0.0], [1.0, 0.5]], [0, 1])
    rule.fit([[1.0, 0.0, 0.0], [1.0, 0.5, 0.0]], [0, 1])
    assert rule.sizes == (3,)
    assert rule.label_sizes.tolist() == [3]


@every_rule
def test_a_rule_moves_with_its_model(make: Make) -> None:
    rule, logits = fitted(make)
    moved = copy.deepcopy(rule).to("meta")
    assert all(buffer.is_meta for buffer in moved.buffers())
    assert moved(logits.to("meta")).is_meta
    half = copy.deepcopy(rule).half()
    torch.testing.assert_close(half(logits), rule(logits), atol=0.02, rtol=0.01)
    assert half.label_sizes.dtype == torch.int64


@every_rule
def test_a_fit_does_not_depend_on_the_default_device(make: Make) -> None:
    batch = make_batch(SIZES, 80, seed=1, missing=0.1, dtype=torch.float32)
    expected, rule = make(SIZES).fit(batch.logits, batch.targets), make(SIZES)
    with torch.device("meta"):
        rule.fit(batch.logits, batch.targets)
    assert same_state(rule, expected)


@every_rule
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu(make: Make) -> None:
    rule, logits = fitted(make)
    batch = make_batch(SIZES, 80, seed=1, skew=3.0, missing=0.1, dtype=torch.float32)
    there = make(SIZES).cuda().fit(batch.logits.cuda(), batch.targets.cuda())
    assert {buffer.device.type for buffer in there.buffers()} == {"cuda"}
    assert same_state(copy.deepcopy(there).cpu(), rule)
    for one in (there, rule):  # a rule may also stay on the CPU
        torch.testing.assert_close(one(logits.cuda()).cpu(), rule(logits))
        assert torch.equal(one.decide(logits.cuda()).cpu(), rule.decide(logits))


def test_a_repr_shows_what_was_fitted() -> None:
    logits, targets = [[2.0, 0.0], [2.0, 0.1], [2.0, 1.0]], [0, 0, 1]
    assert repr(TunedThresholds()) == "TunedThresholds(not fitted)"
    assert repr(TunedThresholds([2])) == "TunedThresholds(sizes=[2], not fitted)"
    assert repr(TunedThresholds().fit(logits, targets)) == "TunedThresholds(sizes=[2], offsets=[0, 1.45])"
    assert repr(TemperatureScaling([2], [1.5])) == "TemperatureScaling(sizes=[2], temperatures=[1.5])"
    assert repr(PriorRule([50, 50], tau=0.5)) == "PriorRule(sizes=[2], offsets=[0.3466, 0.3466], tau=0.5)"
    assert repr(PriorRule([1] * 9)).endswith("2.197, ...], tau=1)")


# Inside models and compilers


@every_rule
def test_rules_in_sequence(make: Make) -> None:
    batch = make_batch(SIZES, 80, seed=1, skew=3.0, dtype=torch.float32)
    first = TemperatureScaling(SIZES).fit(batch.logits, batch.targets)
    second = make(SIZES).fit(first(batch.logits), batch.targets)
    both = nn.Sequential(first, second)
    assert torch.equal(both(batch.logits), second(first(batch.logits)))
    assert np.array_equal(both(batch.logits.numpy()), both(batch.logits).numpy())
    copied = nn.Sequential(TemperatureScaling(SIZES), make(SIZES))
    copied.load_state_dict(both.state_dict())
    assert torch.equal(copied(batch.logits), both(batch.logits))


@every_rule
def test_compiled(make: Make) -> None:
    rule, logits = fitted(make)
    torch.compiler.reset()
    compiled = torch.compile(nn.Sequential(nn.Identity(), rule), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(logits), rule(logits))
    decided = torch.compile(rule.decide, fullgraph=True, backend="aot_eager")
    assert torch.equal(decided(logits), rule.decide(logits))


@every_rule
@pytest.mark.parametrize("strict", [False, True])
def test_exported(make: Make, strict: bool) -> None:
    rule, _ = fitted(make)
    model = nn.Sequential(nn.Linear(4, sum(SIZES)), rule).eval()
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    dynamic = {"input": {0: torch.export.Dim("samples", min=2)}}
    program = torch.export.export(model, (x[:3],), dynamic_shapes=dynamic, strict=strict)
    torch.testing.assert_close(program.module()(x), model(x))


# What is refused


@pytest.mark.parametrize("name", MUST_BE_FITTED)
def test_a_rule_that_is_not_fitted(name: str) -> None:
    rule = RULES[name](SIZES)
    for use in (rule, rule.decide, rule.probabilities):
        with pytest.raises(
            RuntimeError, match=rf"This {type(rule).__name__} is not fitted. Call fit\(logits, targets\)"
        ):
            use(torch.zeros(2, 10))


@pytest.mark.parametrize("name", ["prior", "threshold adjustment"])
def test_a_rule_that_needs_no_fit(name: str) -> None:
    rule = RULES[name](SIZES)
    assert rule.is_fitted
    assert rule(torch.zeros(2, 10)).shape == (2, 10)


@every_rule
def test_wrong_logits(make: Make) -> None:
    rule, logits = fitted(make)
    for use in (rule, rule.decide, rule.probabilities):
        with pytest.raises(ValueError, match=r"logits to be of shape \(N, 10\) for sizes \[3, 2, 5\]"):
            use(logits[:, :9])
        with pytest.raises(ValueError, match=r"logits to be of shape \(N, K\)"):
            use(logits[0])
        with pytest.raises(TypeError, match="logits to be a floating point tensor"):
            use(logits.long())
        with pytest.raises(TypeError, match="logits to be a tensor, an array or lists of numbers, but got str"):
            use("logits")
        with pytest.raises(ValueError, match=r"logits to be .*lists of numbers, but got rows of different lengths"):
            use([[0.5] * 10, [0.5] * 9])


@every_rule
def test_nan_is_no_decision(make: Make) -> None:
    rule, logits = fitted(make)
    logits = logits.clone()
    logits[3, 1] = torch.nan
    for use in (rule.decide, rule.probabilities):
        with pytest.raises(ValueError, match="logits to be numbers, but got NaN in row 3"):
            use(logits)
    assert rule(logits)[3, 1].isnan()  # a layer passes it on


@every_rule
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_nothing_is_fitted_on_numbers_that_are_not_finite(make: Make, bad: float) -> None:
    batch = make_batch(SIZES, 20, dtype=torch.float32)
    batch.logits[7, 2] = bad
    rule = make(SIZES)
    before = copy.deepcopy(rule.state_dict())
    with pytest.raises(ValueError, match=r"logits to be finite, but got .* in row 7"):
        rule.fit(batch.logits, batch.targets)
    assert all(torch.equal(rule.state_dict()[name], value) for name, value in before.items())


@every_rule
def test_nothing_to_fit_on(make: Make) -> None:
    for logits, targets in (
        (torch.zeros(0, 10), torch.zeros(0, 3, dtype=torch.int64)),
        (torch.zeros(4, 10), torch.full((4, 3), -1)),
    ):
        with pytest.raises(ValueError, match="targets to be of at least one sample that has a label, but got none"):
            make(SIZES).fit(logits, targets)


@every_rule
def test_targets_that_do_not_fit(make: Make) -> None:
    with pytest.raises(ValueError, match=r"targets to be as long as logits \(4 samples\), but got 3"):
        make(SIZES).fit(torch.zeros(4, 10), torch.zeros(3, 3, dtype=torch.int64))
    with pytest.raises(ValueError, match="targets of label 1 to be below 2"):
        make(SIZES).fit(torch.zeros(1, 10), torch.tensor([[0, 2, 0]]))


def test_errors_name_the_label() -> None:
    space = LabelSpace.from_names({"colour": ["red", "blue"], "striped": ["no", "yes"]})
    for rule in (TunedThresholds(space), PriorRule([[9, 1], [8, 2]], sizes=space)):
        with pytest.raises(ValueError, match="targets of label 'striped' to be below 2"):
            rule.fit(torch.zeros(1, 4), torch.tensor([[0, 2]]))


def test_counts_of_other_sizes() -> None:
    for rule in (PriorRule, ThresholdAdjustment):
        with pytest.raises(ValueError, match=r"sizes to be those of class_counts, \(3,\), but got \(2, 1\)"):
            rule([80, 15, 5], sizes=[2, 1])
    with pytest.raises(ValueError, match=r"sizes to be those of class_counts, \(2,\), but got \(3,\)"):
        TunedThresholds([3], class_counts=[9, 1])


def test_rules_need_nothing_heavier_than_torch_and_numpy() -> None:
    code = (
        "import sys, numpy, torch._dynamo\nbefore = set(sys.modules)\nimport rectifier.evaluation.rules\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "heavy = new - set(sys.stdlib_module_names) - {'rectifier', 'torch', 'numpy'}\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
