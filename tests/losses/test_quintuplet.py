from __future__ import annotations

import math

import pytest
import torch

import oracles
from rectifier.losses.lmle import MARGINS, quintuplet_loss


def on_circle(*degrees: float) -> list[torch.Tensor]:
    """Unit vectors, one row each; the squared distance from angle 0 is 2 - 2 cos."""
    return [torch.tensor([[math.cos(math.radians(d)), math.sin(math.radians(d))]]) for d in degrees]


@pytest.mark.parametrize(
    ("degrees", "expected"),
    [
        ((0, 0, 60, 90, 180), 0.0),  # distances 0, 1, 2, 4: every margin is kept
        ((0, 60, 60, 90, 180), 0.5),  # p+ as far as p-: g1
        ((0, 0, 90, 60, 180), 0.75 + 1),  # p-- nearer than p- by 1: g2 + 1
        ((0, 0, 60, 180, 90), 1.0 + 2),  # n nearer than p-- by 2: g3 + 2
        ((0, 180, 90, 60, 0), 0.5 + 2 + 0.75 + 1 + 1 + 1),  # all the wrong way round
    ],
)
def test_by_hand(degrees: tuple[float, ...], expected: float) -> None:
    assert quintuplet_loss(*on_circle(*degrees), margins=(0.5, 0.75, 1.0)).item() == pytest.approx(expected, abs=1e-6)


def quintuplets(rows: int, seed: int = 0) -> list[torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(rows, 3, generator=g, dtype=torch.float64).requires_grad_() for _ in range(5)]


@pytest.mark.parametrize("margins", [MARGINS, (1.0, 0.0, 2.0)])
def test_equals_the_loop_version(margins: tuple[float, float, float]) -> None:
    five = quintuplets(20)
    valid = torch.arange(20) % 3 > 0
    value = quintuplet_loss(*five, valid=valid, margins=margins)
    rows = [[part[r] for part in five] for r in range(20) if valid[r]]
    expected = oracles.quintuplet_hinges(rows, margins)
    torch.testing.assert_close(value, expected)
    for got, want in zip(torch.autograd.grad(value, five), torch.autograd.grad(expected, five), strict=True):
        torch.testing.assert_close(got, want)
        assert not got[~valid].any()


def test_margins_increase_and_can_be_met() -> None:
    assert 0 < MARGINS[0] < MARGINS[1] < MARGINS[2]
    assert sum(MARGINS) < 4


def test_all_masked_is_zero_with_a_gradient_path() -> None:
    five = quintuplets(4)
    value = quintuplet_loss(*five, valid=torch.zeros(4, dtype=torch.bool))
    assert value.item() == 0
    value.backward()
    assert not any(part.grad.any() for part in five)


def test_gradcheck_and_one_graph() -> None:
    five = quintuplets(6, seed=1)
    assert torch.autograd.gradcheck(lambda *parts: quintuplet_loss(*parts), five)
    torch._dynamo.reset()
    compiled = torch.compile(quintuplet_loss, fullgraph=True, backend="aot_eager")
    valid = torch.arange(6) < 4
    torch.testing.assert_close(compiled(*five, valid=valid), quintuplet_loss(*five, valid=valid))


def test_float32_inside_autocast() -> None:
    five = [part.detach().bfloat16() for part in quintuplets(6)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert quintuplet_loss(*five).dtype == torch.float32


def test_wrong_input() -> None:
    five = quintuplets(4)
    with pytest.raises(ValueError, match=r"five tensors of one shape \(R, D\)"):
        quintuplet_loss(*five[:4], five[4][:3])
    with pytest.raises(ValueError, match=r"valid to be one boolean for each of the 4 rows"):
        quintuplet_loss(*five, valid=torch.ones(3, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"margins to be three numbers of at least 0"):
        quintuplet_loss(*five, margins=(0.1, -0.2, 0.3))
