"""What came after the paper: log-probabilities in place of probabilities, and easy anchors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import oracles
from helpers.cases import DESIGNS, Batch, batches, make_batch
from rectifier import ClassRectificationLoss, RectifiedCrossEntropy, class_rectification_loss
from rectifier.labels.columns import own_columns, softmax
from rectifier.losses.crl import chunks, mining

LOGARITHMIC = [("class", kind, "log-probability") for kind in ("relative", "absolute")]
KINDS = [(*design, "probability") for design in DESIGNS] + LOGARITHMIC
KAPPAS = st.sampled_from([1, 2, 3, 7, 25])


def value_and_gradient(loss: Any, batch: Batch, level: str, **options: Any) -> tuple[Tensor, Tensor]:
    logits, features = batch.logits.clone().requires_grad_(), batch.features.clone().requires_grad_()
    per_label = loss(logits, batch.targets, features, sizes=batch.sizes, level=level, **options)
    (per_label * torch.linspace(1, 2, len(batch.sizes), dtype=per_label.dtype)).sum().backward()
    gradient = logits.grad if level == "class" else features.grad
    assert gradient is not None
    return per_label.detach(), gradient


def ours(*args: Any, **options: Any) -> Tensor:
    return class_rectification_loss(*args, label_reduction="none", **options)


def assert_equals_the_twin(batch: Batch, level: str, **options: Any) -> Tensor:
    value, gradient = value_and_gradient(ours, batch, level, **options)
    expected, expected_gradient = value_and_gradient(oracles.extended_crl, batch, level, **options)
    torch.testing.assert_close(value, expected, atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(gradient, expected_gradient, atol=1e-9, rtol=1e-9)
    return value


@pytest.mark.parametrize(("level", "comparison", "scores"), KINDS)
@settings(max_examples=40)
@given(batch=batches(most_samples=30), kappa=KAPPAS, scope=st.sampled_from(["minority", "all"]))
def test_easy_anchors_equal_the_loop_version(
    level: str, comparison: str, scores: str, batch: Batch, kappa: int, scope: str
) -> None:
    options = {"comparison": comparison, "scores": scores, "anchors": "easy", "kappa": kappa, "scope": scope}
    assert_equals_the_twin(batch, level, **options)


@pytest.mark.parametrize(("level", "comparison", "scores"), LOGARITHMIC)
@settings(max_examples=60)
@given(batch=batches(most_samples=40), kappa=KAPPAS, scope=st.sampled_from(["minority", "all"]))
def test_log_probabilities_equal_the_loop_version(
    level: str, comparison: str, scores: str, batch: Batch, kappa: int, scope: str
) -> None:
    assert_equals_the_twin(batch, level, comparison=comparison, scores=scores, kappa=kappa, scope=scope)


@pytest.mark.parametrize(("level", "comparison", "scores"), KINDS)
@pytest.mark.parametrize("sizes", [[4], [2] * 12, [2, 30, 7]])
@pytest.mark.parametrize("anchors", ["easy", "all"])
def test_equals_the_loop_version_on_full_batches(
    level: str, comparison: str, scores: str, sizes: list[int], anchors: str
) -> None:
    """The large end, where every label has something to mine; both ways to sum triplets are met."""
    batch = make_batch(sizes, 24 if len(sizes) == 12 else 50, seed=13, missing=0.1, skew=1.5)
    options = {"comparison": comparison, "scores": scores, "anchors": anchors, "kappa": 3}
    assert assert_equals_the_twin(batch, level, **options).max() > 0


@settings(max_examples=60)
@given(batch=batches(), kappa=KAPPAS)
def test_the_easiest_equal_the_loop_version(batch: Batch, kappa: int) -> None:
    sizes = tuple(batch.sizes)
    scores = softmax(batch.logits, sizes)
    found = mining.easiest(own_columns(batch.targets, sizes).t().contiguous(), scores, kappa)
    first = 0
    for a, size in enumerate(sizes):
        labels = batch.targets[:, a].tolist()
        for c in range(size):
            chosen = [i for i, y in enumerate(labels) if y == c and found[a, i]]
            assert chosen == sorted(oracles.easy_anchors(scores[:, first + c].tolist(), labels, c, kappa))
        first += size


@pytest.mark.parametrize(("level", "comparison"), DESIGNS)
def test_easy_anchors_are_all_where_kappa_holds_the_class(level: str, comparison: str) -> None:
    batch = make_batch([2, 5], 30, seed=1, missing=0.1)
    options: dict[str, Any] = {"level": level, "comparison": comparison, "sizes": batch.sizes}
    every = ours(*batch[:3], kappa=30, **options)
    assert every.min() > 0
    torch.testing.assert_close(ours(*batch[:3], kappa=30, anchors="easy", **options), every)
    few = ours(*batch[:3], kappa=2, **options)
    assert not torch.allclose(ours(*batch[:3], kappa=2, anchors="easy", **options), few)


def test_easy_anchors_are_the_triplets_counted() -> None:
    """Of 4 samples of the rare class the best 2 are anchors, with 2 hard positives and 2 hard negatives each."""
    targets = torch.tensor([1] * 4 + [0] * 6)
    logits = torch.stack([torch.zeros(10), torch.arange(10.0)], 1)
    parts = RectifiedCrossEntropy(torch.tensor([6, 4]), kappa=2, anchors="easy")(logits, targets, return_parts=True)
    # The anchors, samples 2 and 3, are not among the hard positives, samples 0 and 1.
    assert parts.comparisons.tolist() == [2 * 2 * 2]


def test_log_probabilities_pull_where_the_softmax_is_saturated() -> None:
    """All samples of the rare class are lost for certain: probabilities do not feel it, their logarithms do."""
    targets = torch.tensor([1, 1, 0, 0, 0])
    margin = torch.tensor([60.0, 70.0, -50.0, -60.0, -70.0])
    slopes = {}
    for scores in ("probability", "log-probability"):
        logits = torch.stack([margin, torch.zeros(5)], 1).requires_grad_()
        ClassRectificationLoss(scores=scores)(logits, targets).backward()
        assert logits.grad is not None
        slopes[scores] = logits.grad.abs().max().item()
    assert slopes["probability"] < 1e-20
    assert slopes["log-probability"] > 0.01


def test_the_margin_between_log_probabilities_is_one() -> None:
    batch = make_batch([2, 5], 40, seed=2)
    for comparison in ("relative", "absolute"):
        options: dict[str, Any] = {"comparison": comparison, "sizes": batch.sizes, "scores": "log-probability"}
        default = class_rectification_loss(*batch[:2], **options)
        assert default == class_rectification_loss(*batch[:2], margin=1.0, **options)
        assert default != class_rectification_loss(*batch[:2], margin=0.5, **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_both_scores_mine_the_same_samples(dtype: torch.dtype) -> None:
    """With one positive and one negative, the anchor's gradient shows whom it is compared with."""
    batch = make_batch([4], 40, seed=3, dtype=dtype)
    touched = []
    for scores in ("probability", "log-probability"):
        logits = batch.logits.clone().requires_grad_()
        loss = ClassRectificationLoss(kappa=1, margin=100.0, comparison="relative", scores=scores, anchors="easy")
        loss(logits, batch.targets).backward()
        assert logits.grad is not None
        touched.append(logits.grad.abs().sum(1) > 1e-7)
    assert torch.equal(*touched)
    assert 0 < touched[0].sum() < 20


@pytest.mark.parametrize(("level", "comparison", "scores"), KINDS)
@pytest.mark.parametrize("mining", ["hard", "random", "all"])
def test_chunks_change_nothing(
    level: str, comparison: str, scores: str, mining: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = make_batch([2, 3, 9], 30, seed=4, missing=0.2)
    results = []
    for limit in (chunks.CHUNK_BYTES, 30_000):
        monkeypatch.setattr(chunks, "CHUNK_BYTES", limit)
        options = {"comparison": comparison, "mining": mining, "kappa": 4, "scores": scores, "anchors": "easy"}
        results.append(value_and_gradient(ours, batch, level, generator=torch.Generator().manual_seed(7), **options))
    assert results[0][0].abs().sum() > 0
    torch.testing.assert_close(results[1], results[0], atol=1e-12, rtol=1e-9)


@pytest.mark.parametrize(("level", "comparison", "scores"), KINDS)
def test_one_graph(level: str, comparison: str, scores: str) -> None:
    torch._dynamo.reset()
    sizes = [3, 7, 2]
    for anchors in ("easy", "all"):
        loss = ClassRectificationLoss(level, comparison, kappa=3, scores=scores, anchors=anchors, sizes=sizes)
        compiled = torch.compile(loss, fullgraph=True, backend="eager")
        for seed in range(2):
            batch = make_batch(sizes, 20, seed, missing=0.1, dtype=torch.float32)
            torch.testing.assert_close(compiled(*batch[:3]), loss(*batch[:3]))
    torch._dynamo.reset()


@pytest.mark.parametrize(("level", "comparison", "scores"), KINDS)
@pytest.mark.parametrize("case", ["one sample", "all missing", "one class"])
def test_nothing_to_mine_is_an_exact_zero_with_a_gradient(level: str, comparison: str, scores: str, case: str) -> None:
    targets = {"one sample": torch.tensor([[0]]), "all missing": torch.full((6, 1), -1)}.get(
        case, torch.zeros(6, 1, dtype=torch.int64)
    )
    logits, features = (torch.randn(len(targets), 3, requires_grad=True) for _ in range(2))
    value = ClassRectificationLoss(level, comparison, scores=scores, anchors="easy")(logits, targets, features)
    assert value.item() == 0.0
    value.backward()
    gradient = logits.grad if level == "class" else features.grad
    assert gradient is not None
    assert not gradient.any()


@pytest.mark.parametrize("anchors", ["all", "easy"])
def test_a_certain_mistake_is_the_hardest_negative(anchors: str) -> None:
    """Its log-probability is 0, and the bits of -0 would read as those of the easiest."""
    targets = torch.tensor([1, 1, 0, 0, 0, 0])
    margin = torch.tensor([1.0, 2.0, -1.0, 1e4, 0.5, -3.0])
    logits = torch.stack([torch.zeros(6), margin], 1)
    options: dict[str, Any] = {"scores": "log-probability", "anchors": anchors, "kappa": 1}
    twin = oracles.extended_crl(logits, targets[:, None], sizes=[2], **options)
    torch.testing.assert_close(class_rectification_loss(logits, targets, **options), twin.sum())


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e4])
@pytest.mark.parametrize("anchors", ["all", "easy"])
@pytest.mark.parametrize("comparison", ["relative", "absolute"])
def test_extreme_logits_stay_finite(comparison: str, anchors: str, scale: float) -> None:
    batch = make_batch([2, 5], 40, seed=5, dtype=torch.float32)
    logits = (scale * batch.logits.sign()).requires_grad_()
    value = ours(
        logits,
        batch.targets,
        sizes=batch.sizes,
        comparison=comparison,
        anchors=anchors,
        scores="log-probability",
        kappa=4,
    )
    value.sum().backward()
    assert logits.grad is not None
    assert torch.isfinite(value).all()
    assert torch.isfinite(logits.grad).all()
    twin = oracles.extended_crl(
        logits.detach(), batch.targets, sizes=batch.sizes, comparison=comparison, anchors=anchors,
        scores="log-probability", kappa=4,
    )  # fmt: skip
    torch.testing.assert_close(value, twin, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scores": "logit"}, "scores to be one of 'probability', 'log-probability', but got 'logit'"),
        ({"anchors": "hard"}, "anchors to be one of 'all', 'easy', but got 'hard'"),
        (
            {"scores": "log-probability", "comparison": "distribution"},
            "scores to be 'probability' for comparison='distribution', whose histograms are from -1 to 1",
        ),
        ({"scores": "log-probability", "level": "instance"}, "scores to be 'probability' for level='instance'"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ClassRectificationLoss(**options)
