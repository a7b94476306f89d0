"""Counts from anything: every form gives the same numbers, and what is no count is refused."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from rectifier import LabelSpace, RectifiedCrossEntropy, class_counts
from rectifier.data.dataset import ImageArray, ImageData
from rectifier.labels.counts import as_count_list
from rectifier.labels.imbalance import imbalance_measure, log_prior

TARGETS = [0, 2, 0, 1, 0, 2]
COUNTS = [3, 1, 2]
SPACE = LabelSpace.from_names({"kind": ["ant", "bee", "cat"]})
TWO = LabelSpace.from_names({"kind": ["ant", "bee", "cat"], "hat": ["no", "yes"]})


class Pairs(Dataset[Any]):
    """Samples (image, target) without an attribute that holds all targets."""

    def __len__(self) -> int:
        return len(TARGETS)

    def __getitem__(self, index: int) -> Any:
        return torch.zeros(2), TARGETS[index]


class Mappings(Pairs):
    def __getitem__(self, index: int) -> Any:
        return {"pixel_values": torch.zeros(2), "label": TARGETS[index]}


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter((torch.zeros(2), target) for target in TARGETS)


class Named(Pairs):
    """As torchvision's ImageFolder."""

    targets, classes = TARGETS, ("ant", "bee", "cat", "dog")

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("reads no image to count")


class Columns:
    """As a data set of Hugging Face."""

    column_names = ("image", "label")

    def __getitem__(self, name: str) -> Any:
        return {"label": TARGETS}[name]


PAIRS = TensorDataset(torch.zeros(6, 2), torch.tensor(TARGETS))

FORMS: dict[str, Any] = {
    "list": COUNTS,
    "tuple": tuple(COUNTS),
    "array": np.array(COUNTS),
    "tensor": torch.tensor(COUNTS),
    "whole floats": torch.tensor(COUNTS).double(),
    "series": pd.Series(COUNTS),
    "value_counts of indices": pd.Series(TARGETS).value_counts(),
    "value_counts of names": pd.Series("cat bee ant cat ant ant".split()).value_counts(),  # noqa: SIM905
    "Counter of a tensor": Counter(torch.tensor(TARGETS)),
    "tensors with an index": TensorDataset(torch.zeros(6, 2), torch.tensor(TARGETS), torch.arange(6)),
    "numpy numbers": [np.int64(3), np.int64(1), np.int64(2)],
    "Counter of indices": Counter(TARGETS),
    "Counter of names": Counter(["cat", "bee", "ant", "cat", "ant", "ant"]),
    "mapping by name, unsorted": {"cat": 2, "ant": 3, "bee": 1},
    "data set of tensors": PAIRS,
    "pairs": Pairs(),
    "mappings": Mappings(),
    "stream": Stream(),
    "columns": Columns(),
    "subset": Subset(ConcatDataset([PAIRS, PAIRS]), [0, 1, 2, 9, 10, 11]),
    "loader": DataLoader(Pairs(), batch_size=4, shuffle=True),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_counts(form: str) -> None:
    labels, single = as_count_list(FORMS[form])
    assert single
    assert [label.tolist() for label in labels] == [COUNTS]
    assert torch.equal(imbalance_measure(FORMS[form]), imbalance_measure(COUNTS))


@pytest.mark.parametrize("source", [TARGETS, np.array(TARGETS), torch.tensor(TARGETS), Pairs(), DataLoader(PAIRS)])
def test_counting(source: Any) -> None:
    assert [label.tolist() for label in class_counts(source)] == [COUNTS]
    assert [label.tolist() for label in class_counts(source, 4)] == [[*COUNTS, 0]]


def test_a_data_set_that_names_its_classes_counts_those_without_samples() -> None:
    assert class_counts(Named())[0].tolist() == [*COUNTS, 0]
    for wrapped in (DataLoader(Named()), Subset(Named(), range(6)), DataLoader(Subset(Named(), range(6)))):
        assert as_count_list(wrapped)[0][0].tolist() == [*COUNTS, 0]


def test_targets_count_as_the_samples_have_them() -> None:
    class Reversed(Named):
        @staticmethod
        def target_transform(target: int) -> int:
            return 2 - target

    assert class_counts(Reversed())[0].tolist() == [*COUNTS[::-1], 0]
    longer = Named()
    longer.targets = [*TARGETS, 0]  # type: ignore[misc]
    with pytest.raises(ValueError, match=r"targets of Named to be as long as the data set \(6\), but got 7"):
        class_counts(longer)


def test_counting_names_mappings_and_ignored_targets() -> None:
    names = ["cat", "bee", "ant", "cat", "ant", "ant"]
    for source in (names, np.array(names), pd.Series(names, index=range(5, 11))):
        assert class_counts(source)[0].tolist() == COUNTS
    assert class_counts(Counter(names))[0].tolist() == COUNTS
    assert class_counts(["cat", "ant"], SPACE)[0].tolist() == [1, 0, 1]
    ignored = torch.tensor([*TARGETS, 255], dtype=torch.uint8)
    assert class_counts(ignored, ignore_index=255)[0].tolist() == COUNTS
    assert class_counts(pd.Series(TARGETS, index=range(5, 11)))[0].tolist() == COUNTS
    data = TensorDataset(torch.zeros(7, 2), ignored)
    counts = RectifiedCrossEntropy(data, ignore_index=255).class_counts
    assert counts is not None
    assert counts.tolist() == COUNTS


def test_of_image_data_the_training_part_counts() -> None:
    images = ImageArray(np.zeros((6, 8, 8, 1), np.uint8))
    split = torch.tensor([0, 0, 0, 0, 1, 2])
    data = ImageData("tiny", images, torch.tensor(TARGETS)[:, None], SPACE, split)
    assert torch.equal(as_count_list(data, SPACE)[0][0], data.counts("train")[0])


def test_a_label_space_orders_names_and_knows_absent_classes() -> None:
    assert as_count_list({"cat": 2, "ant": 3}, SPACE)[0][0].tolist() == [3, 0, 2]
    assert as_count_list({2: 5}, SPACE)[0][0].tolist() == [0, 0, 5]
    assert as_count_list({2: 5}, 4)[0][0].tolist() == [0, 0, 5, 0]
    numbers = LabelSpace.from_names({"age": [3, 7, 20]})
    assert as_count_list(Counter([7, 7, 3]), numbers)[0][0].tolist() == [1, 2, 0]
    assert as_count_list(Counter(["20", "7", "7"]))[0][0].tolist() == [2, 1]  # numbers in their order, as names


def test_counts_of_several_labels() -> None:
    expected = [[3, 1, 2], [5, 1]]
    several: list[Any] = [
        [COUNTS, [5, 1]],
        {"hat": [5, 1], "kind": {"ant": 3, "bee": 1, "cat": 2}},
        {"hat": Counter({"yes": 1, "no": 5}), "kind": Counter(TARGETS)},
    ]
    for counts in several:
        labels, single = as_count_list(counts, TWO)
        assert not single
        assert [label.tolist() for label in labels] == expected
    assert [n.tolist() for n in as_count_list({"hat": [5, 1], "kind": COUNTS})[0]] == expected[::-1]


SHARES = [0.9, 0.09, 0.01]


@pytest.mark.parametrize(
    ("counts", "sizes", "error", "message"),
    [
        (SHARES, None, ValueError, r"whole numbers of training samples, but got 0\.9.*times the number of samples"),
        (torch.tensor([3.0, float("inf")]), None, ValueError, "whole numbers"),
        ({"a": 0.5, "b": 0.5}, None, ValueError, "whole numbers"),
        ({"ant": 3, "bea": 1}, SPACE, ValueError, r"among ant, bee, cat, but got 'bea'. Did you mean 'bee'\?"),
        ({0: 3, 7: 1}, SPACE, ValueError, "classes from 0 to 2, but got class 7"),
        ({"ant": 3}, TWO, ValueError, "counts for each label, by the label's name, but got one count for 'ant'"),
        ({"kind": COUNTS}, TWO, ValueError, "all of kind, hat, but got none named 'hat'"),
        ("auto", None, TypeError, "one count per class"),
        (3, None, TypeError, "one count per class"),
    ],
)
def test_what_is_no_count(counts: Any, sizes: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        as_count_list(counts, sizes)


def test_shares_are_refused_everywhere() -> None:
    from rectifier.losses import LDAMLoss, LogitAdjustedLoss, RectifiedCrossEntropy, class_weights
    from rectifier.losses.weights import cost_weights, effective_number_weights

    for function in (
        log_prior,
        imbalance_measure,
        effective_number_weights,
        cost_weights,
        class_weights,
        LDAMLoss,
        LogitAdjustedLoss,
        RectifiedCrossEntropy,
    ):
        with pytest.raises(ValueError, match="whole numbers of training samples"):
            function(SHARES)


def test_samples_without_targets() -> None:
    with pytest.raises(TypeError, match=r"pairs \(image, target\), or mappings .*, but got Tensor"):
        class_counts(Subset(Bare(), [0]))


class Bare(Dataset[Any]):
    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Any:
        return torch.zeros(2)
