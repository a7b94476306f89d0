"""The loss against its slow twin, its identities, and what it must survive."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import oracles
from helpers.cases import DESIGNS, Batch, batches, make_batch
from rectifier import ClassRectificationLoss, LabelSpace, class_rectification_loss
from rectifier.losses.crl import chunks

KAPPAS = st.sampled_from([1, 2, 3, 7, 25, 100])
RHOS = st.sampled_from([0.1, 0.3, 0.5, 0.8, 1.0])
SCOPES = st.sampled_from(["minority", "all"])
MININGS = st.sampled_from(["hard", "all"])


def value_and_gradient(loss: object, batch: Batch, level: str, **options: object) -> tuple[Tensor, Tensor]:
    logits, features = batch.logits.clone().requires_grad_(), batch.features.clone().requires_grad_()
    per_label = loss(logits, batch.targets, features, sizes=batch.sizes, level=level, **options)  # type: ignore[operator]
    # Unequal weights, so that a gradient sent to the wrong label shows.
    (per_label * torch.linspace(1, 2, len(batch.sizes), dtype=per_label.dtype)).sum().backward()
    gradient = logits.grad if level == "class" else features.grad
    assert gradient is not None
    return per_label.detach(), gradient


def ours(*args: object, **options: object) -> Tensor:
    return class_rectification_loss(*args, label_reduction="none", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("level", "comparison"), DESIGNS)
@settings(max_examples=100)
@given(batch=batches(most_labels=4, most_samples=24), kappa=KAPPAS, rho=RHOS, scope=SCOPES, mining=MININGS)
def test_equals_the_loop_version(
    level: str, comparison: str, batch: Batch, kappa: int, rho: float, scope: str, mining: str
) -> None:
    options = {"comparison": comparison, "kappa": kappa, "rho": rho, "scope": scope, "mining": mining}
    value, gradient = value_and_gradient(ours, batch, level, **options)
    expected, expected_gradient = value_and_gradient(oracles.crl, batch, level, **options)
    torch.testing.assert_close(value, expected, atol=1e-9, rtol=0)
    torch.testing.assert_close(gradient, expected_gradient, atol=1e-9, rtol=0)


@pytest.mark.parametrize(("level", "comparison"), DESIGNS)
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(
    ("sizes", "kappa"), [([2, 2, 2], 4), ([2, 30, 7, 3], 25), ([30], 3), ([2, 2, 2, 2, 2, 2, 40], 5)]
)
def test_equals_the_loop_version_on_full_batches(
    level: str, comparison: str, ties: bool, sizes: list[int], kappa: int
) -> None:
    """The large end of the cases, where every label has something to mine."""
    batch = make_batch(sizes, 60, seed=13, ties=ties, missing=0.1)
    value, gradient = value_and_gradient(ours, batch, level, comparison=comparison, kappa=kappa)
    expected, expected_gradient = value_and_gradient(oracles.crl, batch, level, comparison=comparison, kappa=kappa)
    assert value.min() > 0
    torch.testing.assert_close(value, expected, atol=1e-9, rtol=0)
    torch.testing.assert_close(gradient, expected_gradient, atol=1e-9, rtol=0)


@pytest.mark.parametrize(("level", "comparison"), [d for d in DESIGNS if d[1] != "distribution"])
def test_margin_is_used(level: str, comparison: str) -> None:
    batch = make_batch([2, 5], 40, seed=1)
    for margin in (0.1, 3.0):
        value, gradient = value_and_gradient(ours, batch, level, comparison=comparison, margin=margin)
        expected, expected_gradient = value_and_gradient(
            oracles.crl, batch, level, comparison=comparison, margin=margin
        )
        torch.testing.assert_close(value, expected, atol=1e-9, rtol=0)
        torch.testing.assert_close(gradient, expected_gradient, atol=1e-9, rtol=0)


@pytest.mark.parametrize(("level", "comparison"), DESIGNS)
@pytest.mark.parametrize("mining", ["hard", "random", "all"])
def test_chunks_change_nothing(level: str, comparison: str, mining: str, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = make_batch([2, 3, 9], 30, seed=2, missing=0.2)
    results = []
    for limit in (chunks.CHUNK_BYTES, 30_000):
        monkeypatch.setattr(chunks, "CHUNK_BYTES", limit)
        options = {"comparison": comparison, "mining": mining, "kappa": 4}
        generator = torch.Generator().manual_seed(7)
        results.append(value_and_gradient(ours, batch, level, generator=generator, **options))
    (value, gradient), (chunked, chunked_gradient) = results
    assert value.abs().sum() > 0
    torch.testing.assert_close(chunked, value, atol=1e-12, rtol=0)
    torch.testing.assert_close(chunked_gradient, gradient, atol=1e-12, rtol=0)


@pytest.mark.parametrize(("level", "comparison"), DESIGNS)
@pytest.mark.parametrize("scope", ["minority", "all"])
def test_order_of_samples_and_classes_is_irrelevant(level: str, comparison: str, scope: str) -> None:
    # Counts that all differ: with ties the class index would decide who is minority.
    counts = [[20, 15, 10, 5], [14, 11, 9, 7, 5, 3, 1]]
    targets = torch.stack([torch.arange(len(c)).repeat_interleave(torch.tensor(c)) for c in counts], 1)
    logits, _, features, sizes = make_batch([4, 7], 50, seed=3)
    options = {"comparison": comparison, "kappa": 5, "scope": scope, "rho": 0.45, "sizes": sizes, "level": level}
    value = ours(logits, targets, features, **options)
    assert value.min() > 0

    g = torch.Generator().manual_seed(0)
    rows = torch.randperm(50, generator=g)
    shuffled = ours(logits[rows], targets[rows], features[rows], **options)
    torch.testing.assert_close(shuffled, value, atol=1e-12, rtol=0)

    names = [torch.randperm(4, generator=g), torch.randperm(7, generator=g)]  # class c becomes names[c]
    columns = torch.cat([names[0].argsort(), 4 + names[1].argsort()])
    renamed = torch.stack([names[a][targets[:, a]] for a in range(2)], 1)
    torch.testing.assert_close(ours(logits[:, columns], renamed, features, **options), value, atol=1e-12, rtol=0)


@pytest.mark.parametrize(("level", "comparison"), DESIGNS)
def test_forty_copies_of_a_label_give_forty_times_one(level: str, comparison: str) -> None:
    one = make_batch([3], 40, seed=4)
    copies = Batch(one.logits.repeat(1, 40), one.targets.repeat(1, 40), one.features.repeat(1, 40, 1), [3] * 40)
    single = class_rectification_loss(*one[:3], sizes=[3], level=level, comparison=comparison)
    assert single > 0
    for reduction, factor in (("sum", 40), ("mean", 1)):
        loss = ClassRectificationLoss(level, comparison, sizes=copies.sizes, label_reduction=reduction)
        torch.testing.assert_close(loss(*copies[:3]), factor * single, atol=1e-9, rtol=0)


@pytest.mark.parametrize("level", ["class", "instance"])
def test_random_mining_draws_from_its_generator_and_differs_from_hard(level: str) -> None:
    batch = make_batch([2, 6], 60, seed=5)

    def draw(seed: int) -> Tensor:
        loss = ClassRectificationLoss(
            level, mining="random", kappa=3, sizes=batch.sizes, generator=torch.Generator().manual_seed(seed)
        )
        return loss(*batch[:3])

    hard = ClassRectificationLoss(level, kappa=3, sizes=batch.sizes)(*batch[:3])
    assert draw(0) == draw(0)
    assert draw(0) != draw(1)
    assert draw(0) < hard  # random samples are easier


@pytest.mark.parametrize(("level", "comparison"), DESIGNS)
def test_random_mining_of_everything_is_mining_everything(level: str, comparison: str) -> None:
    batch = make_batch([2, 6], 40, seed=6, ties=True)
    options = {"level": level, "comparison": comparison, "sizes": batch.sizes}
    drawn = class_rectification_loss(*batch[:3], mining="random", kappa=40, **options)
    torch.testing.assert_close(drawn, class_rectification_loss(*batch[:3], mining="all", **options))


def test_all_classes_scope_adds_the_majority() -> None:
    batch = make_batch([4], 60, seed=7)
    minority = class_rectification_loss(*batch[:2], sizes=[4])
    assert class_rectification_loss(*batch[:2], sizes=[4], scope="all") != minority
    # Scope "minority" with rho = 1 takes every class too.
    full = class_rectification_loss(*batch[:2], sizes=[4], rho=1.0)
    torch.testing.assert_close(full, class_rectification_loss(*batch[:2], sizes=[4], scope="all"))


def test_normalize_compares_unit_features() -> None:
    batch = make_batch([3], 30, seed=8, shared=True)
    scaled = batch.features * torch.linspace(1, 9, 30, dtype=torch.float64)[:, None]
    unit = torch.nn.functional.normalize(batch.features, dim=1)
    loss = ClassRectificationLoss("instance", normalize=True)
    plain = ClassRectificationLoss("instance")
    torch.testing.assert_close(loss(batch.logits, batch.targets, scaled), plain(batch.logits, batch.targets, unit))


def test_a_vector_of_targets_and_every_missing_value_are_accepted() -> None:
    batch = make_batch([5], 30, seed=9, missing=0.3)
    value = class_rectification_loss(*batch[:2])
    vector = batch.targets[:, 0]
    assert class_rectification_loss(batch.logits, vector) == value
    assert class_rectification_loss(batch.logits, vector.where(vector >= 0, -100)) == value
    assert class_rectification_loss(batch.logits, vector.int(), sizes=LabelSpace.from_sizes([5])) == value


def test_it_can_train() -> None:
    """Rectification alone pulls a rare class apart from a frequent one."""
    g = torch.Generator().manual_seed(0)
    targets = (torch.arange(64) >= 56).long()
    x = torch.randn(64, 2, generator=g) + 1.5 * targets[:, None]
    for level in ("class", "instance"):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh())
        head = torch.nn.Linear(8, 2)
        loss = ClassRectificationLoss(level)
        optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()], 0.02)
        history = []
        for _ in range(60):
            value = loss(head(model(x)), targets, model(x))
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            history.append(value.item())
        assert history[-1] < 0.7 * history[0]


DEGENERATE = {
    "one sample": torch.tensor([[0, 1]]),
    "no sample": torch.empty(0, 2, dtype=torch.int64),
    "one class": torch.zeros(8, 2, dtype=torch.int64),
    "all missing": torch.full((8, 2), -1),
    "two samples, two classes": torch.tensor([[0, 0], [1, 1]]),
    "every class once": torch.tensor([[0, 0], [1, 1], [-1, 2]]),
}


@pytest.mark.parametrize("case", DEGENERATE)
@pytest.mark.parametrize(("level", "comparison"), DESIGNS)
@pytest.mark.parametrize("mining", ["hard", "random", "all"])
def test_nothing_to_mine_is_an_exact_zero_with_a_gradient(case: str, level: str, comparison: str, mining: str) -> None:
    targets = DEGENERATE[case]
    g = torch.Generator().manual_seed(0)
    logits = torch.randn(len(targets), 5, generator=g).requires_grad_()
    features = torch.randn(len(targets), 4, generator=g).requires_grad_()
    loss = ClassRectificationLoss(level, comparison, mining=mining, sizes=[2, 3], label_reduction="none")
    value = loss(logits, targets, features)
    assert value.tolist() == [0.0, 0.0]
    value.sum().backward()
    gradient = logits.grad if level == "class" else features.grad
    assert gradient is not None
    assert gradient.shape[0] == len(logits)
    assert not gradient.any()


@pytest.mark.parametrize(("level", "comparison"), DESIGNS)
@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e4])
@pytest.mark.parametrize("normalize", [False, True])
def test_extreme_inputs_stay_finite(level: str, comparison: str, scale: float, normalize: bool) -> None:
    """Identical features and scores (0), nearly identical ones, and logits of +-10,000."""
    batch = make_batch([2, 5], 40, seed=10, dtype=torch.float32)
    logits = (scale * batch.logits.sign()).requires_grad_()
    features = (scale * batch.features).requires_grad_()
    loss = ClassRectificationLoss(level, comparison, sizes=batch.sizes, normalize=normalize)
    value = loss(logits, batch.targets, features)
    value.backward()
    gradient = logits.grad if level == "class" else features.grad
    assert gradient is not None
    assert torch.isfinite(value)
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize(("level", "comparison"), DESIGNS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(level: str, comparison: str, dtype: torch.dtype) -> None:
    batch = make_batch([2, 5], 40, seed=11)
    logits, features = batch.logits.to(dtype).requires_grad_(), batch.features.to(dtype).requires_grad_()
    loss = ClassRectificationLoss(level, comparison, sizes=batch.sizes)
    with torch.autocast("cpu", dtype=dtype):
        value = loss(logits, batch.targets, features)
    assert value.dtype == torch.float32
    value.backward()
    gradient = logits.grad if level == "class" else features.grad
    assert gradient is not None
    assert gradient.dtype == dtype
    assert torch.isfinite(gradient).all()
    reference = loss(logits.detach().double(), batch.targets, features.detach().double())
    torch.testing.assert_close(value.double(), reference, atol=1e-5, rtol=1e-5)


def test_a_loss_first_used_in_evaluation_can_train_later() -> None:
    loss = ClassRectificationLoss(sizes=[3, 4, 11])  # a layout that no other test uses
    batch = make_batch([3, 4, 11], 30, seed=12)
    with torch.inference_mode():
        loss(*batch[:2])
    logits = batch.logits.clone().requires_grad_()
    loss(logits, batch.targets).backward()
    assert logits.grad is not None


def test_options_are_shown() -> None:
    assert "comparison='absolute'" in repr(ClassRectificationLoss(comparison="absolute"))


def test_options_are_checked_in_each_call() -> None:
    """Also if an equal one was accepted before, and if it cannot be hashed."""
    batch = make_batch([4], 10)
    class_rectification_loss(*batch[:2], kappa=1)
    for kappa in (True, [1], 0):
        with pytest.raises(ValueError, match="kappa to be a positive integer"):
            class_rectification_loss(*batch[:2], kappa=kappa)  # type: ignore[arg-type]
