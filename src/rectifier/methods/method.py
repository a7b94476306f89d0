"""Method: one way to train, as the parts it puts into the slots of a training; and combinations of methods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from rectifier._base import check

Options = Mapping[str, Any]


@dataclass(frozen=True)
class Part:
    """A builder for a slot, called when a training starts, and the names of its options."""

    build: Callable[..., Any]
    options: tuple[str, ...] = ()
    adjusts_prior: bool = False  #: a loss that corrects for class frequencies


@dataclass(frozen=True)
class Afterwards:
    """What happens to the classifier of a trained network (Kang et al. 2020, "Decoupling").

    ``crt`` retrains it and ``lws`` trains one factor per class, both for some epochs on class-balanced samples. ``tau``
    divides the weights of each class by a power of their norm, chosen on validation.
    """

    kind: str | None = None
    epochs: int = 0


@dataclass(frozen=True)
class Method:
    """One way to train. Empty slots are those of plain cross-entropy training."""

    about: str
    reference: str = ""
    loss: Part | None = None  #: the sample loss, ``build(counts, space, **options)``
    weights: Part | None = None  #: ``build(counts, **options)`` gives ``weights`` and ``weights_from``
    rectification: Part | None = None  #: CRL; ``build(counts, **options)`` gives options of ``Objective``
    objective: Part | None = None  #: replaces these three, ``build(counts, space, gather=, **options)``
    sampler: Part | None = None  #: the order of samples, ``build(targets, space, epochs=, **common)``
    mixing: Part | None = None  #: mixes images, ``build(counts, space, **options)``
    classifier: str | None = None  #: required of the network: ``"cosine"``
    rounds: Part | None = None  #: epochs before which the sampler reads the features, ``build(epochs, **options)``
    features: str | None = None  #: replaces a trained network: ``"hog"``
    afterwards: Part | None = None  #: changes the classifier of the trained network: crt, lws or tau
    posthoc: str | None = None  #: adjusts the logits, fitted on validation
    decision: str | None = None  #: decides from features: ``"neighbours"``, ``"clusters"`` or ``"svm"``

    @property
    def options(self) -> tuple[str, ...]:
        """The names of all options of the method."""
        return tuple(dict.fromkeys(name for part in self.parts.values() for name in part.options))

    @property
    def filled(self) -> dict[str, Any]:
        return {slot: value for slot in SLOTS if (value := getattr(self, slot)) is not None}

    @property
    def parts(self) -> dict[str, Part]:
        return {slot: part for slot, part in self.filled.items() if isinstance(part, Part)}

    @property
    def balances_training(self) -> bool:
        """Whether the network is trained as if classes were more equally frequent: by loss, weights or sampler."""
        by_loss = self.loss is not None and self.loss.adjusts_prior
        return by_loss or self.weights is not None or self.sampler is not None

    @property
    def moves_threshold(self) -> bool:
        """Whether the finished classifier already corrects for class frequencies, so that no rule may do so again."""
        return self.balances_training or self.afterwards is not None

    def build(self, slot: str, given: Options, *arguments: Any, **more: Any) -> Any:
        """Build the content of a slot, with those of the given options that belong to it. An empty slot gives None."""
        part = self.parts.get(slot)
        if part is None:
            return None
        return part.build(*arguments, **more, **{name: given[name] for name in part.options if name in given})


SLOTS = tuple(f.name for f in fields(Method) if f.name not in ("about", "reference"))
_BRINGS = {
    "weights": "set class weights",
    "objective": "set an objective",
    "mixing": "mix images",
    "classifier": "need their own classifier",
    "afterwards": "change the classifier after training",
    "posthoc": "adjust the logits",
}
_OF_A_NETWORK = ("loss", "weights", "rectification", "objective", "sampler", "mixing", "classifier", "afterwards")
_EXCLUDES = {  # slots that have no effect together with another slot
    "objective": ("which replaces the whole objective", ("loss", "weights", "rectification", "mixing")),
    "features": ("which trains no network", _OF_A_NETWORK),
    "decision": ("which decides without the classifier", ("afterwards",)),
}


def joined(name: str, methods: list[tuple[str, Method]]) -> Method:
    """Return several methods as one, or raise an error that says why they do not combine."""
    filled: dict[str, str] = {}
    values: dict[str, Any] = {}
    compatible = f"method {name!r}", "a combination of compatible methods"
    for own, method in methods:
        for slot, value in method.filled.items():
            # Two methods may both ask for a cosine classifier. Every other slot takes one method.
            if slot in filled and value != values[slot]:
                both = f"{filled[slot]} and {own}, which both {_BRINGS.get(slot, f'set a {slot}')}"
                check.fail(*compatible, both)
            filled[slot], values[slot] = own, value
    for slot, (what, others) in _EXCLUDES.items():
        useless = [filled[other] for other in others if other in filled and filled[other] != filled.get(slot)]
        if slot in filled and useless:
            check.fail(*compatible, f"{filled[slot]}, {what}, and {useless[0]}")
    taken = Counter(option for _, method in methods for option in method.options)
    if twice := [option for option, times in taken.items() if times > 1]:
        check.fail(f"method {name!r}", "a combination of methods with different options", f"{', '.join(twice)} twice")
    references = dict.fromkeys(method.reference for _, method in methods if method.reference)
    return Method("; ".join(method.about for _, method in methods), "; ".join(references), **values)
