"""Resetting the classifier: it is drawn like a new one, and nothing else changes."""

from __future__ import annotations

import pytest
import torch

from helpers.network_forms import FORMS, images_for, make
from rectifier.networks.registry import build_network


@pytest.mark.parametrize("form", [form for form in FORMS if form != "resnet50"])
def test_the_classifier_changes_and_nothing_else(form: str) -> None:
    network = make(form)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    held = list(network.parameters())
    state = torch.get_rng_state()
    network.reset_classifier(seed=5)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(one is other for one, other in zip(network.parameters(), held, strict=True))
    changed = {name for name, value in network.state_dict().items() if not torch.equal(value, before[name])}
    assert "head.classifier.weight" in changed
    assert changed <= {"head.classifier.weight", "head.classifier.bias"}


@pytest.mark.parametrize("classifier", ["linear", "cosine"])
def test_one_seed_gives_the_classifier_that_a_network_is_born_with(classifier: str) -> None:
    # Nothing but the classifier is drawn for this network, so its seed is the classifier's.
    options = {"hidden": 0, "classifier": classifier}
    network = build_network("mlp", [3, 4], (20,), seed=0, **options)
    born = build_network("mlp", [3, 4], (20,), seed=1, **options)
    assert not torch.equal(network.head.classifier.weight, born.head.classifier.weight)
    network.reset_classifier(1)
    for name, value in born.state_dict().items():
        assert torch.equal(network.state_dict()[name], value), name


@pytest.mark.parametrize(("name", "options"), [("cifarnet", {}), ("cifarnet", {"branch": 50}), ("resnet32", {})])
def test_a_network_with_its_own_initial_classifier_gets_that_again(name: str, options: dict) -> None:
    network = build_network(name, [500], (8, 8, 3), seed=0, **options)
    classifier = network.head.classifier
    born, bias = classifier.weight.detach().clone(), classifier.bias.detach().clone()
    with torch.no_grad():
        classifier.bias.fill_(9.0)
    network.reset_classifier(1)
    assert torch.equal(classifier.bias, bias)  # 0 in both
    assert not torch.equal(classifier.weight, born)
    assert float(classifier.weight.detach().std()) == pytest.approx(float(born.std()), rel=0.03)
    assert float(classifier.weight.detach().abs().max()) == pytest.approx(float(born.abs().max()), rel=0.03)


def test_precision_and_seed() -> None:
    single, double = make("mlp"), make("mlp").double()
    single.reset_classifier(3)
    double.reset_classifier(3)
    assert double.head.classifier.weight.dtype == torch.float64
    assert torch.equal(double.head.classifier.weight, single.head.classifier.weight.double())
    single.reset_classifier(4)
    assert not torch.equal(double.head.classifier.weight, single.head.classifier.weight.double())


def test_without_a_seed_it_draws_from_the_global_state() -> None:
    network = make("mlp")
    drawn = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        network.reset_classifier()
        drawn.append(network.head.classifier.weight.detach().clone())
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_it_may_be_trained_alone_afterwards() -> None:
    network = make("mlp deep").eval()
    network.requires_grad_(False).head.classifier.requires_grad_(True)
    network.reset_classifier(0)
    network(images_for(network)).logits.sum().backward()
    learning = {name for name, parameter in network.named_parameters() if parameter.grad is not None}
    assert learning == {"head.classifier.weight", "head.classifier.bias"}
