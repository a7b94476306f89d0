"""Weights from files and runs: what fits, what does not, and what cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from rectifier.networks.pretrained.weights import fit, load_weights, read_weights
from rectifier.networks.registry import build_network


def network(classes: int = 3, seed: int = 0) -> nn.Module:
    return build_network("resnet32", [classes], (8, 8, 3), seed=seed, depth=8)


def same_trunk(first: nn.Module, second: nn.Module) -> bool:
    others = second.trunk.state_dict()
    return all(torch.equal(tensor, others[name]) for name, tensor in first.trunk.state_dict().items())


def prefixed(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {prefix + name: tensor for name, tensor in state.items()}


WRAPPED = {
    "plain": lambda state: state,
    "state_dict": lambda state: {"state_dict": state, "epoch": 3},
    "model": lambda state: {"model": state, "optimizer": {"lr": 0.1}},
    "module.": lambda state: prefixed(state, "module."),
    "compiled and parallel": lambda state: {"state_dict": prefixed(state, "module._orig_mod.")},
    "model.": lambda state: prefixed(state, "model."),
    "trunk alone": lambda state: {n.removeprefix("trunk."): t for n, t in state.items() if n.startswith("trunk.")},
    "backbone.": lambda state: {n.replace("trunk.", "backbone."): t for n, t in state.items()},
}


@pytest.mark.parametrize("form", WRAPPED)
def test_all_common_forms_of_a_state_dict_fit(form: str, tmp_path: Path) -> None:
    known, fresh = network(), network(seed=1)
    torch.save(WRAPPED[form](known.state_dict()), tmp_path / "weights.pt")
    assert not same_trunk(fresh, known)
    load_weights(fresh, tmp_path / "weights.pt")
    assert same_trunk(fresh, known)


def test_a_file_of_safetensors_and_a_run_fit(tmp_path: Path) -> None:
    known, fresh = network(), network(seed=1)
    save_file(known.state_dict(), tmp_path / "weights.safetensors")
    said = load_weights(fresh, tmp_path)  # as the folder of a run
    assert said == load_weights(network(seed=1), tmp_path / "weights.safetensors")
    assert said == "37 of 37 tensors fitted, 75,315 weights"
    assert all(torch.equal(tensor, known.state_dict()[name]) for name, tensor in fresh.state_dict().items())


def test_the_sentence_lists_what_did_not_fit(tmp_path: Path) -> None:
    state = network(classes=5).state_dict() | {"ema.decay": torch.ones(1)}
    del state["trunk.norm.bias"]
    torch.save(state, tmp_path / "weights.pt")
    fresh = network(seed=1)
    head = fresh.head.classifier.weight.clone()
    said = load_weights(fresh, tmp_path / "weights.pt")
    assert said == (
        "34 of 37 tensors fitted, 75,104 weights; of another shape: head.classifier.weight, head.classifier.bias; "
        "not in the file: trunk.norm.bias; not used: ema.decay"
    )
    assert torch.equal(fresh.head.classifier.weight, head)


def test_long_lists_are_cut(tmp_path: Path) -> None:
    torch.save(network().state_dict() | {f"other{n}": torch.ones(1) for n in range(9)}, tmp_path / "weights.pt")
    said = load_weights(network(), tmp_path / "weights.pt")
    assert said.endswith("; not used: other0, other1, other2, other3 and 5 more")


def test_weights_of_another_network_are_refused_and_change_nothing(tmp_path: Path) -> None:
    torch.save(build_network("cifarnet", [3], (8, 8, 3)).state_dict(), tmp_path / "weights.pt")
    fresh = network(seed=1)
    with pytest.raises(
        ValueError, match=r"weights\.pt does not hold weights of this network: \d+ of 37 tensors fitted"
    ):
        load_weights(fresh, tmp_path / "weights.pt")
    assert same_trunk(fresh, network(seed=1))


def test_another_head_alone_is_no_reason_to_refuse(tmp_path: Path) -> None:
    torch.save(network(classes=5).state_dict(), tmp_path / "weights.pt")
    wide = network(classes=9000)  # nearly all weights are in the classifier
    load_weights(wide, tmp_path / "weights.pt")
    assert same_trunk(wide, network())


@pytest.mark.parametrize("name", ["weights.pt", "weights.safetensors"])
@pytest.mark.parametrize("content", [b"", b"no weights at all", b"PK\x03\x04 half an archive"])
def test_a_damaged_file_is_named(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{name} to be weights in safetensors or saved by torch, but got a damaged"):
        read_weights(tmp_path / name)


@pytest.mark.parametrize("name", ["weights.pt", "weights.safetensors"])
def test_a_truncated_file_is_named(name: str, tmp_path: Path) -> None:
    save = save_file if name.endswith("safetensors") else torch.save
    save(network().state_dict(), tmp_path / name)
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=rf"{name} to be weights .* damaged or other file \(.+\)"):
        read_weights(tmp_path / name)


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    torch.save(network(), tmp_path / "model.pt")
    with pytest.raises(ValueError, match=r"model\.pt holds Python objects besides tensors.*Save the tensors alone"):
        read_weights(tmp_path / "model.pt")


@pytest.mark.parametrize("content", [{}, {"model": {"epoch": 3}}, [torch.ones(2)], 7])
def test_a_file_without_tensors_is_named(content: object, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "weights.pt")
    with pytest.raises(ValueError, match=r"weights\.pt to be weights: tensors by name, but got a file without any"):
        read_weights(tmp_path / "weights.pt")


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"does not exist. Pass a file of weights or the folder of a finished"):
        read_weights(tmp_path / "none.pt")
    with pytest.raises(
        ValueError, match=r"a finished run, with weights.safetensors, but got a folder without that file"
    ):
        read_weights(tmp_path)


def test_what_a_file_is_instead_of_weights_is_said(tmp_path: Path) -> None:
    for content, words in ((b"", "it is empty"), (b"hello, world!\n", "it starts with the text 'hello, world'")):
        (tmp_path / "weights.pt").write_bytes(content)
        with pytest.raises(ValueError, match=words):
            read_weights(tmp_path / "weights.pt")


def test_weights_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    state = network().state_dict()
    name = next(name for name, tensor in state.items() if tensor.dim() == 4)
    state[name][0] = torch.nan
    torch.save(state, tmp_path / "weights.pt")
    with pytest.raises(ValueError, match=f"finite numbers, but got others in {name}"):
        load_weights(network(seed=1), tmp_path / "weights.pt")


def test_safetensors_are_known_by_their_content(tmp_path: Path) -> None:
    save_file(network().state_dict(), tmp_path / "without a suffix")
    assert read_weights(tmp_path / "without a suffix").keys() == network().state_dict().keys()


def test_a_trunk_takes_no_tensor_of_another_shape() -> None:
    found = {**network().state_dict(), "head.classifier.bias": torch.zeros(7)}
    fit(network(), found, "weights.pt", "resnet32")
    with pytest.raises(ValueError, match=r"other shapes than resnet32 in head\.classifier\.bias\. .* set --size"):
        fit(network(), found, "weights.pt", "resnet32", same_shapes=True)
