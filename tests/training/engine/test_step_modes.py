"""A captured step gives what the eager one gives, and a message says why a step is not captured."""

from __future__ import annotations

from pathlib import Path
from shutil import which
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.fabric import Fabric
from torch._dynamo.exc import BackendCompilerFailed

from helpers.cases import StopsAfter
from rectifier import LabelSpace
from rectifier._base import console
from rectifier.data.loader import Batch
from rectifier.losses.objective import Objective
from rectifier.methods import build_objective
from rectifier.networks.registry import build_network
from rectifier.training import resume, train
from rectifier.training.config import Config
from rectifier.training.engine import fit as fitting
from rectifier.training.engine import step_modes as stepping
from rectifier.training.engine.interrupt import Stopped
from rectifier.training.engine.options import Options
from rectifier.training.engine.state import Tally
from rectifier.training.engine.step_modes import EagerStep, _obstacle, fastest, make_optimizer, set_rate
from rectifier.training.run.folder import Run

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
SPEC = "shapes:samples=400,size=40,ratio=8,labels=shape=4/colour=3,missing=0.1"


def fabric(kind: str, processes: int = 1) -> Any:
    return SimpleNamespace(device=torch.device(kind), world_size=processes)


@pytest.mark.parametrize(
    ("machine", "settings", "reason"),
    [
        (fabric("cpu"), {}, "needs a CUDA device, and this is cpu"),
        (fabric("cuda", 2), {}, "several processes"),
        (fabric("cuda"), {"precision": "16"}, "float16"),
        (fabric("cuda"), {"precision": "bf16", "clip": 1.0, "accumulate": 2}, None),
    ],
)
def test_what_stands_in_the_way_of_a_graph(machine: Any, settings: dict[str, Any], reason: str | None) -> None:
    found = _obstacle(machine, Options(**settings))
    assert found is None if reason is None else reason in str(found)


def test_a_message_says_why_a_graph_is_impossible(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = {"network": "mlp", "epochs": 1, "tensorboard": False, "accelerator": "cpu"}
    asked = train(Config("digits").with_settings({**settings, "step": "captured"}), tmp_path / "asked")
    assert "The step is not captured: a graph needs a CUDA device" in capsys.readouterr().err
    plain = train(Config("digits").with_settings(settings), tmp_path / "plain")
    assert "captured" not in capsys.readouterr().err
    assert (asked.path / "weights.safetensors").read_bytes() == (plain.path / "weights.safetensors").read_bytes()


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_the_rate_is_set_wherever_it_lies(optimizer: str) -> None:
    network = build_network("mlp", [2], (8, 8, 1), seed=0)
    made = make_optimizer(network, Options(optimizer=optimizer))
    set_rate(made, 0.25)
    assert made.param_groups[0]["lr"] == 0.25
    tensor = torch.tensor(0.1)
    made.param_groups[0]["lr"] = tensor
    set_rate(made, 0.5)
    assert made.param_groups[0]["lr"] is tensor
    assert float(tensor) == 0.5


def distance(first: Run, second: Run) -> float:
    weights = first.weights()
    return max(float((weights[name] - weight).abs().max()) for name, weight in second.weights().items())


def runs_of(tmp_path: Path, spec: str, steps: tuple[str, ...], **settings: Any) -> list[Run]:
    common = {"tensorboard": False, "batch_size": 40, "epochs": 20, "lr": 0.01, "select": "last", "accelerator": "cuda"}
    with console.quiet(), torch.backends.cudnn.flags(deterministic=True, benchmark=False):
        return [
            train(Config(spec).with_settings({**common, **settings, "step": step}), tmp_path / f"{number}-{step}")
            for number, step in enumerate(steps)
        ]


def assert_alike(first: Run, second: Run, within: float) -> None:
    weights = first.weights()
    for name, weight in second.weights().items():
        assert torch.allclose(weight, weights[name], atol=within, rtol=within), name
    tables = [(run.path / "history.csv").read_text().splitlines()[1:] for run in (first, second)]
    for row, other in zip(*tables, strict=True):
        for value, its in zip(row.split(","), other.split(","), strict=True):
            assert value == its or float(value) == pytest.approx(float(its), abs=within, rel=within)


@on_gpu
@pytest.mark.parametrize("network", ["resnet32", "deepid2"])
@pytest.mark.parametrize("method", ["ce", "crl"])
def test_two_hundred_captured_steps_are_eager_ones(tmp_path: Path, method: str, network: str) -> None:
    options = {"eta": 0.5} if method == "crl" else {}
    eager, captured, again = runs_of(
        tmp_path, SPEC, ("eager", "captured", "eager"), method=method, network=network, precision="64", **options
    )
    # A GPU adds up in an order that changes, and 200 steps amplify that: no run need be nearer to an eager one than
    # an eager one is to itself.
    assert distance(eager, captured) <= min(10 * distance(eager, again) + 1e-9, 1e-3)
    assert_alike(eager, captured, 1e-3)  # the losses, too


@on_gpu
@pytest.mark.parametrize(
    "settings",
    [
        {"network": "resnet32", "network.dropout": 0.3, "padding": 2, "flip": True, "clip": 0.5},
        {
            "network": "mlp",
            "accumulate": 3,
            "batch_size": 24,
            "warmup": 2,
        },  # a last batch and a last window are smaller
        {"network": "mlp", "optimizer": "adamw", "lr": 0.001, "precision": "bf16"},
        {"network": "mlp", "method": "over-sampling", "schedule": "step"},
        {"network": "mlp", "method": "crl-instance-relative", "eta": 0.5},
    ],
    ids=lambda settings: "-".join(map(str, settings)),
)
def test_whatever_belongs_to_a_step_is_captured_with_it(tmp_path: Path, settings: dict[str, Any]) -> None:
    eager, captured = runs_of(tmp_path, SPEC, ("eager", "captured"), **{"precision": "32", "epochs": 3, **settings})
    assert_alike(eager, captured, 1e-3 if settings.get("precision") == "bf16" else 1e-5)


@on_gpu
def test_a_captured_run_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"network": "resnet32", "network.dropout": 0.3, "epochs": 3, "precision": "32"}
    unbroken, _ = runs_of(tmp_path, SPEC, ("captured", "eager"), **settings)
    config = unbroken.config

    with console.quiet(), torch.backends.cudnn.flags(deterministic=True, benchmark=False):
        with monkeypatch.context() as patch:
            patch.setattr(StopsAfter, "steps", 7)
            patch.setattr(fitting, "Interrupt", StopsAfter)
            with pytest.raises(Stopped):
                train(config, tmp_path / "stopped")
        assert_alike(resume(tmp_path / "stopped"), unbroken, 1e-5)


@on_gpu
def test_a_step_that_cannot_be_captured_is_taken_eagerly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    forward = Objective.forward

    def waiting(objective: Any, logits: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        logits.detach().sum().item()  # the host waits for the device
        return forward(objective, logits, *arguments, **options)

    settings = {"network": "mlp", "method": "ce", "epochs": 2, "tensorboard": False, "precision": "32"}
    plain = train(Config(SPEC).with_settings({**settings, "step": "eager"}), tmp_path / "plain")
    monkeypatch.setattr(Objective, "forward", waiting)
    run = train(Config(SPEC).with_settings(settings), tmp_path / "run")
    assert "The step is not captured: " in capsys.readouterr().err
    assert_alike(run, plain, 1e-5)


@pytest.mark.skipif(which("g++") is None, reason="needs a C++ compiler")
@pytest.mark.filterwarnings("ignore::UserWarning")  # the compiler has remarks, other ones in every version
def test_a_compiled_step_learns_the_same(tmp_path: Path) -> None:
    settings = {"network": "mlp", "method": "crl", "eta": 0.5, "epochs": 2, "precision": "32", "accelerator": "auto"}
    eager, compiled = runs_of(tmp_path, SPEC, ("eager", "compiled"), **settings)
    assert_alike(eager, compiled, 1e-3)


@pytest.mark.parametrize(
    ("asked", "steps", "compiled"),
    [
        ("auto", {"network": 10, "loss": 10}, []),
        ("auto", {"network": 60_000, "loss": 10_000}, ["network"]),  # many runs of one network, each with its own loss
        ("auto", {"network": 200_000, "loss": 200_000}, ["network", "loss"]),
        ("captured", {"network": 200_000, "loss": 200_000}, []),
        ("compiled", {"network": 10, "loss": 10}, ["network", "loss"]),
    ],
)
def test_what_enough_steps_share_is_compiled(
    monkeypatch: pytest.MonkeyPatch, asked: str, steps: dict[str, int], compiled: list[str]
) -> None:
    made: list[list[str]] = []
    monkeypatch.setattr(stepping, "CapturedStep", lambda *_, **__: None)
    step: Any = SimpleNamespace(fabric=fabric("cuda"), compile=made.append)
    fastest(step, Options(step=asked), steps)
    assert made == [compiled]


@on_gpu
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("network", ["resnet32", "deepid2"])
def test_a_long_training_is_compiled_and_captured_and_learns_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, network: str
) -> None:
    monkeypatch.setattr(stepping, "COMPILE_FROM", {"network": 1, "loss": 1})
    settings = {"network": network, "method": "crl", "eta": 0.5, "epochs": 2, "precision": "64"}
    settings["lr"] = 0.001  # ten times larger, twenty steps make 1e-3 of a loss in float32, summed in another order
    eager, compiled = runs_of(tmp_path, SPEC, ("eager", "auto"), **settings)
    assert_alike(eager, compiled, 1e-5)


@pytest.mark.parametrize("precision", ["32", "bf16", "64"])
def test_what_is_compiled_computes_in_the_precision_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    monkeypatch.setattr(torch, "compile", lambda function: function)
    settings = {"network": "mlp", "method": "crl", "epochs": 2, "precision": precision, "accelerator": "cpu"}
    eager, compiled = runs_of(tmp_path, SPEC, ("eager", "compiled"), **settings)
    assert_alike(eager, compiled, 0.0)


def fails(*_: Any, **__: Any) -> Any:
    def compiled(*_: Any, **__: Any) -> Any:
        raise BackendCompilerFailed(print, RuntimeError("no compiler\nand pages of traceback"), None)

    return compiled


def test_a_compiler_that_fails_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"network": "mlp", "epochs": 2, "tensorboard": False, "accelerator": "cpu"}
    with monkeypatch.context() as patch:
        patch.setattr(torch, "compile", fails)
        with pytest.raises(ValueError, match=r"This machine cannot compile the step: .*no compiler") as raised:
            train(Config(SPEC).with_settings({**settings, "step": "compiled"}), tmp_path / "run")
    assert "traceback" not in str(raised.value)
    run = resume(tmp_path / "run", step="eager")  # the run resumes without the compiler
    plain = train(Config(SPEC).with_settings(settings), tmp_path / "plain")
    assert_alike(run, plain, 0)


def test_a_step_works_without_the_compiler_when_that_fails(capsys: pytest.CaptureFixture[str]) -> None:
    """As the graph's work does, when capturing it has failed."""
    fabric = Fabric(accelerator="cpu", devices=1)
    space = LabelSpace.from_sizes([3])
    network = build_network("mlp", space, (8, 8, 1), seed=0)
    objective = build_objective("crl", [torch.tensor([9, 5, 2])], space, eta=0.5)
    wrapped, optimizer = fabric.setup(network, make_optimizer(network, Options()))
    step = EagerStep(fabric, network, wrapped, optimizer, objective, Tally(1, fabric.device))
    step.compile(["network", "loss"])
    step.simplify("no compiler")
    assert capsys.readouterr().err == "The step is not compiled: no compiler\n"
    batch = Batch(torch.randn(6, 1, 8, 8), torch.tensor([[0], [0], [0], [1], [1], [2]]), torch.arange(6))
    before = [weight.clone() for weight in network.parameters()]
    step([batch], 0.1)
    assert not all(torch.equal(a, b) for a, b in zip(before, network.parameters(), strict=True))
