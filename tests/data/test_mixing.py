"""Mixup and Remix against loops, their shares against the Beta distribution, and what mixing leaves alone."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import oracles
from helpers.cases import Batch, capture, make_batch
from rectifier import LabelSpace, class_counts
from rectifier.data.mixing import Mixup, Remix
from rectifier.losses.cross_entropy import CrossEntropyLoss
from rectifier.losses.objective import Objective

LAYOUTS = {"one label": [5], "celeba": [2] * 40, "mixed": [2, 3, 7]}
every_layout = pytest.mark.parametrize("sizes", LAYOUTS.values(), ids=LAYOUTS)


def some_images(samples: int, dtype: torch.dtype = torch.float32, channels: int = 3) -> Tensor:
    return torch.randn(samples, channels, 4, 5, generator=torch.Generator().manual_seed(0)).to(dtype)


def counts_of(sizes: list[int]) -> list[Tensor]:
    return class_counts(make_batch(sizes, 300, seed=1, skew=4.0).targets, sizes)


def shares(strength: float, samples: int = 200_000) -> Tensor:
    torch.manual_seed(0)
    return Mixup(strength)(torch.zeros(samples, 1), torch.zeros(samples, 1).long())[1][1]


def remixed(batch: Batch, images: Tensor, **options: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Mixed images, partner and share of Remix, and the share that Mixup draws from the same seed."""
    torch.manual_seed(3)
    mixed, (partner, share) = Remix(counts_of(batch.sizes), batch.sizes, **options)(images, batch.targets)
    torch.manual_seed(3)
    return mixed, partner, share, Mixup()(images, batch.targets)[1][1]


# Images and partners


@pytest.mark.parametrize("samples", [1, 2, 7])
def test_images_are_blended_with_the_next(samples: int) -> None:
    images, targets = some_images(samples), make_batch([3, 2], samples, missing=0.3).targets
    mixed, (partner, share) = Mixup()(images, targets)
    torch.testing.assert_close(mixed, oracles.mixed_images(images, share.tolist()))
    assert partner.tolist() == [targets[(i + 1) % samples].tolist() for i in range(samples)]
    assert share.shape == (samples,)
    assert share.dtype == torch.float32
    assert samples == 1 or not torch.allclose(mixed, images)


def test_remix_blends_as_mixup_does() -> None:
    batch, images = make_batch([2, 3], 20, missing=0.2), some_images(20)
    mixed, partner, share, plain = remixed(batch, images)
    torch.testing.assert_close(mixed, oracles.mixed_images(images, plain.tolist()))
    assert partner.tolist() == [batch.targets[(i + 1) % 20].tolist() for i in range(20)]
    assert share.shape == (20, 2)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(("samples", "channels"), [(1, 3), (2, 3), (6, 3), (6, 1)])
def test_type_and_memory_format_are_kept(
    samples: int, channels: int, form: torch.memory_format, dtype: torch.dtype
) -> None:
    images = some_images(samples, dtype, channels).contiguous(memory_format=form)
    mixed, (_, share) = Mixup()(images, torch.zeros(samples, 1).long())
    assert mixed.dtype == dtype
    assert mixed.stride() == images.stride()
    assert share.dtype == torch.float32
    tolerance = 2e-2 if dtype in (torch.bfloat16, torch.float16) else 1e-5
    expected = oracles.mixed_images(images.double(), share.tolist())
    torch.testing.assert_close(mixed.double(), expected, atol=tolerance, rtol=tolerance)


def test_images_may_have_any_shape_and_are_left_as_they_are() -> None:
    for shape in ((6,), (6, 4), (6, 2, 3, 4, 5)):
        images, targets = torch.randn(shape), torch.arange(6)
        before = images.clone()
        mixed, (partner, share) = Mixup()(images, targets)
        torch.testing.assert_close(mixed, oracles.mixed_images(images, share.tolist()))
        assert torch.equal(images, before)
        assert partner.tolist() == [1, 2, 3, 4, 5, 0]


# Shares


@pytest.mark.parametrize("strength", [0.001, 0.02, 0.2, 1.0, 4.0, 50.0])
def test_shares_are_beta_distributed(strength: float) -> None:
    """Mean 1/2, variance 1 / (4 (2 a + 1)), fourth central moment 3 / (16 (2 a + 1) (2 a + 3))."""
    share = shares(strength).double()
    assert ((share >= 0) & (share <= 1)).all()
    moved = share - 0.5
    variance = 1 / (4 * (2 * strength + 1))
    fourth = 3 / (16 * (2 * strength + 1) * (2 * strength + 3))
    assert moved.mean().item() == pytest.approx(0, abs=5 * (variance / len(share)) ** 0.5)
    assert moved.square().mean().item() == pytest.approx(variance, rel=0.02)
    assert moved.pow(4).mean().item() == pytest.approx(fourth, rel=0.03)


def test_hardly_any_strength_gives_pure_images() -> None:
    images = some_images(300)
    mixed, (_, share) = Mixup(1e-4)(images, torch.zeros(300, 1).long())
    pure = torch.where((share > 0.5)[:, None, None, None], images, images.roll(-1, 0))
    assert ((share < 1e-6) | (share > 1 - 1e-6)).float().mean() > 0.98
    assert torch.isclose(mixed, pure, atol=1e-5).flatten(1).all(1).float().mean() > 0.98


def test_the_generator_decides() -> None:
    assert torch.equal(shares(0.4, 50), shares(0.4, 50))
    torch.manual_seed(1)
    other = Mixup(0.4)(torch.zeros(50, 1), torch.zeros(50, 1).long())[1][1]
    assert not torch.equal(other, shares(0.4, 50))
    assert len(other.unique()) == 50


# Remix


@settings(max_examples=60)
@given(
    st.sampled_from(list(LAYOUTS.values())),
    st.integers(1, 25),
    st.integers(0, 10**6),
    st.sampled_from([1.5, 3.0, 20.0]),
    st.sampled_from([0.0, 0.5, 0.8, 1.0]),
)
def test_label_shares_equal_the_loop_version(
    sizes: list[int], samples: int, seed: int, kappa: float, tau: float
) -> None:
    batch = make_batch(sizes, samples, seed, missing=0.2)
    remix = Remix(counts_of(sizes), sizes, kappa=kappa, tau=tau)
    share = torch.rand(samples, generator=torch.Generator().manual_seed(seed))
    found = remix.label_share(share, batch.targets, batch.targets.roll(-1, 0))
    counts = [label.tolist() for label in counts_of(sizes)]
    assert found.tolist() == oracles.remixed_shares(share.tolist(), batch.targets.tolist(), counts, kappa, tau)


@every_layout
def test_called_it_gives_these_shares(sizes: list[int]) -> None:
    batch = make_batch(sizes, 40, missing=0.2)
    _, _, share, plain = remixed(batch, some_images(40))
    counts = [label.tolist() for label in counts_of(sizes)]
    assert share.tolist() == oracles.remixed_shares(plain.tolist(), batch.targets.tolist(), counts, 3.0, 0.5)
    assert (share != plain[:, None]).any()
    assert (share == plain[:, None]).any()


def test_the_borders_are_those_of_the_publication() -> None:
    """n_own / n_next = kappa is enough; a share of tau is not below it."""
    pairs = torch.tensor([[0], [0], [0], [1], [1], [1]]), torch.tensor([[1], [1], [1], [0], [0], [0]])
    share = torch.tensor([0.25, 0.5, 0.75] * 2)
    exact = Remix([30, 10], [2]).label_share(share, *pairs).flatten().tolist()
    assert exact == [0.0, 0.5, 0.75, 0.25, 0.5, 1.0]
    assert torch.equal(Remix([29, 10], [2]).label_share(share, *pairs).flatten(), share)


@pytest.mark.parametrize("missing", [0.0, 0.5])
@pytest.mark.parametrize("options", [{"counts": 30}, {"tau": 0.0}, {"kappa": 1e9}], ids=str)
@every_layout
def test_equal_counts_no_tau_and_a_vast_kappa_are_mixup(
    sizes: list[int], options: dict[str, float], missing: float
) -> None:
    batch, images = make_batch(sizes, 30, missing=missing), some_images(30)
    limits = {key: value for key, value in options.items() if key != "counts"}
    counts = [torch.full((size,), 30) for size in sizes] if "counts" in options else counts_of(sizes)
    torch.manual_seed(5)
    plain, (partner, share) = Mixup(0.7)(images, batch.targets)
    torch.manual_seed(5)
    mixed, (other, by_label) = Remix(counts, sizes, 0.7, **limits)(images, batch.targets)
    assert torch.equal(mixed, plain)
    assert torch.equal(other, partner)
    assert torch.equal(by_label, share[:, None].expand(-1, len(sizes)))


def test_missing_labels_leave_the_share() -> None:
    remix, share = Remix([900, 1], [2]), torch.tensor([0.25, 0.25])
    absent, there = torch.tensor([[-1], [0]]), torch.tensor([[1], [-100]])
    assert remix.label_share(share, absent, there).flatten().tolist() == [0.25, 0.25]
    assert remix.label_share(share, absent.clamp(min=0), there.clamp(min=1)).flatten().tolist() == [0.0, 0.0]


def test_a_class_without_a_training_sample_is_the_rarest() -> None:
    remix = Remix([2, 0, 0], [3])
    own, other = torch.tensor([[0], [1], [1]]), torch.tensor([[1], [0], [2]])
    assert remix.label_share(torch.tensor([0.25, 0.75, 0.25]), own, other).flatten().tolist() == [0.0, 1.0, 0.25]


# With an objective


@every_layout
def test_an_objective_takes_what_mixing_gives(sizes: list[int]) -> None:
    batch = make_batch(sizes, 30, missing=0.2, dtype=torch.float32)
    objective = Objective(CrossEntropyLoss(), sizes)
    values = []
    for mixing in (Mixup(), Remix(counts_of(sizes), sizes)):
        torch.manual_seed(0)
        _, partner = mixing(some_images(30), batch.targets)
        logits = batch.logits.clone().requires_grad_()
        loss = objective(logits, batch.targets, partner=partner)
        loss.backward()
        assert torch.isfinite(logits.grad).all()
        values.append(loss.item())
    assert len({*values, objective(batch.logits, batch.targets).item()}) == 3


def test_mixing_is_one_graph() -> None:
    torch._dynamo.reset()
    batch, images = make_batch([2, 3, 7], 24, missing=0.2), some_images(24).to(memory_format=torch.channels_last)
    for mixing in (Mixup(0.4), Remix(counts_of([2, 3, 7]), [2, 3, 7])):
        compiled = torch.compile(mixing, fullgraph=True, backend="aot_eager")
        found = []
        for function in (mixing, compiled):
            torch.manual_seed(0)
            mixed, (partner, share) = function(images, batch.targets)
            assert mixed.stride() == images.stride()
            found.append((mixed, partner, share))
        torch.testing.assert_close(*found)
    torch._dynamo.reset()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_on_a_gpu_nothing_waits_and_a_captured_step_draws_again() -> None:
    batch, images = make_batch([2, 3, 7], 64, missing=0.2), some_images(64).cuda().to(memory_format=torch.channels_last)
    targets, counts = batch.targets.cuda(), counts_of([2, 3, 7])
    remix = Remix(counts, [2, 3, 7]).cuda()
    remix(images, targets)  # tables are made once
    torch.cuda.set_sync_debug_mode("error")
    try:
        remix(images, targets)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph, (mixed, (partner, share)) = capture(lambda: remix(images, targets))
    seen = []
    for _ in range(2):
        graph.replay()
        seen.append(share.clone())
        own = mixed.std().item()
        assert mixed.is_contiguous(memory_format=torch.channels_last)
        assert 0.5 < own < 1.0
        assert torch.equal(partner, targets.roll(-1, 0))
    assert not torch.equal(*seen)
    assert (seen[0] == 0).any()
    assert (seen[0] == 1).any()


# Wrong input


def test_wrong_options() -> None:
    for strength in (0, -1.0, float("nan"), "1", True):
        with pytest.raises(ValueError, match="strength to be a positive number, but got"):
            Mixup(strength)  # type: ignore[arg-type]
    with pytest.raises(
        ValueError, match=r"kappa of remix to be a number above 1, but got 1\.0\.\n.*tau of remix to be .*, but got 2"
    ):
        Remix([9, 1], [2], kappa=1.0, tau=2)
    with pytest.raises(ValueError, match=r"counts to be those of labels of sizes \(3,\), but got of sizes \(2,\)"):
        Remix([9, 1], [3])


def test_wrong_images_and_targets() -> None:
    targets = torch.tensor([[0], [1]])
    with pytest.raises(TypeError, match=r"images to be a floating point tensor, but got a torch\.uint8 tensor"):
        Mixup()(torch.zeros(2, 3, dtype=torch.uint8), targets)
    with pytest.raises(ValueError, match=r"targets to be as long as images \(3 samples\), but got 2"):
        Mixup()(torch.zeros(3, 4), targets)
    space = LabelSpace.from_names({"kind": ["cat", "dog"]})
    with pytest.raises(ValueError, match=r"targets of label 'kind' to be below 2.*, but got 5 in row 1"):
        Remix([9, 1], space)(torch.zeros(2, 3), torch.tensor([[0], [5]]))
    with pytest.raises(ValueError, match=r"targets to be of shape \(N,\) or \(N, 1\)"):
        Remix([9, 1], space)(torch.zeros(2, 3), torch.tensor([[0, 0], [0, 0]]))
