"""Method: one way to train, as what it puts into which slot of a training; and methods that go together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from rectifier._base import check

Options = Mapping[str, Any]


@dataclass(frozen=True)
class Part:
    """What fills a slot, made when a training begins, and the names of the options that it takes."""

    build: Callable[..., Any]
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Afterwards:
    """What is done to the classifier of a trained network, after the publication on decoupling.

    ``crt`` trains it anew, ``lws`` trains a factor for each class, both for some epochs with classes drawn equally
    often; ``tau`` divides the weights of a class by a power of their norm, chosen on validation.
    """

    kind: str | None = None
    epochs: int = 0


@dataclass(frozen=True)
class Method:
    """One way to train: some slots filled, the others left as plain cross-entropy training has them.

    ========================  =====================================================================================
    ``loss``                  of a sample, ``build(counts, space, **options)``
    ``weights``               of classes, ``build(counts, **options)`` gives ``weights`` and ``weights_from``
    ``rectification``         CRL beside the loss, ``build(counts, **options)`` gives its options of ``Objective``
    ``objective``             in place of these three, ``build(counts, space, gather=, **options)``
    ``sampler``               which sample comes, ``build(targets, space, epochs=, **common)``
    ``mixing``                of images, ``build(counts, space, **options)``
    ``classifier``            that the network must have: ``"cosine"``
    ``rounds``                the epochs before which the sampler looks at the features, ``build(epochs, **options)``
    ``features``              in place of a network's, which is then not trained: ``"hog"``
    ``afterwards``            what is done to the classifier of the trained network: ``"crt"``, ``"lws"``, ``"tau"``
    ``posthoc``               what is added to the logits, fitted on validation
    ``decision``              made from features in place of the classifier: ``"neighbours"``, ``"clusters"``, ``"svm"``
    ========================  =====================================================================================
    """

    about: str
    reference: str = ""
    loss: Part | None = None
    weights: Part | None = None
    rectification: Part | None = None
    objective: Part | None = None
    sampler: Part | None = None
    mixing: Part | None = None
    classifier: str | None = None
    rounds: Part | None = None
    features: str | None = None
    afterwards: Part | None = None
    posthoc: str | None = None
    decision: str | None = None

    @property
    def options(self) -> tuple[str, ...]:
        """All options that the method takes."""
        return tuple(dict.fromkeys(name for part in self.parts.values() for name in part.options))

    @property
    def parts(self) -> dict[str, Part]:
        return {slot: part for slot in SLOTS if isinstance(part := getattr(self, slot), Part)}

    def build(self, slot: str, given: Options, *arguments: Any, **more: Any) -> Any:
        """Make what fills a slot, with those of the given options that are its own."""
        part = self.parts[slot]
        return part.build(*arguments, **more, **{name: given[name] for name in part.options if name in given})


SLOTS = tuple(f.name for f in fields(Method) if f.name not in ("about", "reference"))
_BRINGS = {
    "weights": "bring class weights",
    "objective": "bring an objective",
    "mixing": "mix images",
    "classifier": "need a classifier of their own",
    "afterwards": "do something to the classifier afterwards",
    "posthoc": "add something to the logits",
}
_OF_A_NETWORK = ("loss", "weights", "rectification", "objective", "sampler", "mixing", "classifier", "afterwards")
_EXCLUDES = {  # what a slot leaves nothing to do for
    "objective": ("which is a whole objective", ("loss", "weights", "rectification", "mixing")),
    "features": ("which trains no network", _OF_A_NETWORK),
    "decision": ("which decides without the classifier", ("afterwards",)),
}


def joined(name: str, methods: list[tuple[str, Method]]) -> Method:
    """Return several methods as one, or say why they do not go together."""
    filled: dict[str, str] = {}
    values: dict[str, Any] = {}
    for own, method in methods:
        for slot in SLOTS:
            value = getattr(method, slot)
            if value is None:
                continue
            # A cosine classifier beside another is the same one; everything else there can be but one of.
            if slot in filled and value != values[slot]:
                both = f"{filled[slot]} and {own}, which both {_BRINGS.get(slot, f'bring a {slot}')}"
                check.fail(f"method {name!r}", "of methods that go together", both)
            filled[slot], values[slot] = own, value
    for slot, (what, others) in _EXCLUDES.items():
        beside = [filled[other] for other in others if other in filled and filled[other] != filled.get(slot)]
        if slot in filled and beside:
            got = f"{filled[slot]}, {what}, and {beside[0]}"
            check.fail(f"method {name!r}", "of methods that go together", got)
    taken = Counter(option for _, method in methods for option in method.options)
    if twice := [option for option, times in taken.items() if times > 1]:
        check.fail(f"method {name!r}", "of methods whose options differ", f"{', '.join(twice)} of both")
    references = dict.fromkeys(method.reference for _, method in methods if method.reference)
    return Method("; ".join(method.about for _, method in methods), "; ".join(references), **values)
