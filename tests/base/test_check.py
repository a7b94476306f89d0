"""Every check of a loss's input: the error says what was expected and what came."""

from __future__ import annotations

import pytest
import torch

from rectifier import ClassRectificationLoss, LabelSpace, RectifiedCrossEntropy, class_rectification_loss

SPACE = LabelSpace.from_names({"colour": ["red", "green", "blue"], "striped": ["no", "yes"]})
LOGITS = torch.zeros(4, 5)
TARGETS = torch.zeros(4, 2, dtype=torch.int64)


def out_of_range() -> torch.Tensor:
    wrong = TARGETS.clone()
    wrong[3, 1] = 2
    return wrong


INPUTS = {
    "target out of range, named": (
        dict(targets=out_of_range()),
        ValueError,
        r"Expected targets of label 'striped' to be below 2, its number of classes .*, but got 2 in row 3",
    ),
    "target out of range, numbered": (
        dict(targets=out_of_range(), sizes=[3, 2]),
        ValueError,
        "Expected targets of label 1 to be below 2",
    ),
    "float targets": (
        dict(targets=TARGETS.float()),
        TypeError,
        r"Expected targets to be an integer tensor of class indices, but got a torch.float32 tensor.*targets.long\(\)",
    ),
    "targets that are no numbers": (
        dict(targets="dog"),
        TypeError,
        "targets to be a tensor, an array or a list .* str",
    ),
    "targets of names": (
        dict(targets=["cat", "dog"]),
        TypeError,
        "targets to be a tensor, an array or a list of numbers",
    ),
    "wrong number of labels": (
        dict(targets=TARGETS[:, :1]),
        ValueError,
        r"targets to be of shape \(N, 2\), one column per label, but got shape \(4, 1\)",
    ),
    "a vector for two labels": (dict(targets=TARGETS[:, 0]), ValueError, r"targets to be of shape \(N, 2\)"),
    "other number of samples": (
        dict(targets=TARGETS[:3]),
        ValueError,
        r"targets to be as long as logits \(4 samples\), but got 3",
    ),
    "wrong number of columns": (
        dict(logits=torch.zeros(4, 6)),
        ValueError,
        r"logits to be of shape \(N, 5\) for sizes \[3, 2\], but got shape \(4, 6\)",
    ),
    "integer logits": (
        dict(logits=LOGITS.long()),
        TypeError,
        "logits to be a floating point tensor, but got a torch.int64",
    ),
    "logits that are no tensor": (
        dict(logits=[[0.0] * 5] * 4),
        TypeError,
        "logits to be a floating point tensor, .* list",
    ),
    "logits without a dimension": (dict(logits=torch.tensor(1.0)), ValueError, r"logits to be of shape \(N, K\)"),
    "forgotten sizes": (
        dict(logits=LOGITS, targets=TARGETS, sizes=None),
        ValueError,
        r"targets to be of shape \(N,\) or \(N, 1\), but got shape \(4, 2\). For several labels pass sizes",
    ),
    "logits of three dimensions": (dict(logits=LOGITS[None]), ValueError, r"logits to be of shape \(N, K\)"),
    "missing features": (
        dict(level="instance"),
        ValueError,
        r"features to be given \(shape \(N, D\) or \(N, A, D\)\), because this loss compares features, but got None",
    ),
    "features of a wrong shape": (
        dict(level="instance", features=torch.zeros(4, 3, 8)),
        ValueError,
        r"features to be of shape \(N, D\) or \(N, 2, D\), but got shape \(4, 3, 8\)",
    ),
    "features of other samples": (
        dict(level="instance", features=torch.zeros(5, 8)),
        ValueError,
        "features to be as long as logits",
    ),
    "integer features": (
        dict(level="instance", features=torch.zeros(4, 8).long()),
        TypeError,
        "features to be a floating point tensor",
    ),
    "targets elsewhere": (
        dict(targets=torch.zeros(4, 2, dtype=torch.int64, device="meta")),
        ValueError,
        "targets to be on cpu, the device of logits, but got meta",
    ),
    "sizes that are no list": (
        dict(sizes="5"),
        TypeError,
        "sizes to be a positive integer, a list of them, or a LabelSpace, but got '5'",
    ),
    "sizes of zero": (dict(sizes=[5, 0]), ValueError, r"sizes to be a positive integer, a list of them, .* \[5, 0\]"),
}


@pytest.mark.parametrize("name", INPUTS)
def test_wrong_input(name: str) -> None:
    changes, error, message = INPUTS[name]
    call = {"logits": LOGITS, "targets": TARGETS, "sizes": SPACE} | changes
    with pytest.raises(error, match=message):
        class_rectification_loss(**call)  # type: ignore[arg-type]


OPTIONS = {
    "level": ("clas", r"Expected level to be one of 'class', 'instance', but got 'clas'. Did you mean 'class'"),
    "comparison": ("relativ", "comparison .* Did you mean 'relative'"),
    "scope": ("minorities", "scope .* Did you mean 'minority'"),
    "mining": ("semi", "mining to be one of 'hard', 'random', 'all', but got 'semi'"),
    "kappa": (0, "kappa to be a positive integer, but got 0"),
    "rho": (1.5, "rho to be a number above 0 and at most 1, but got 1.5"),
    "margin": (-1, "margin to be a positive number or None, but got -1"),
    "bins": (1, "bins to be an integer of at least 2, but got 1"),
    "label_reduction": ("avg", "label_reduction to be one of 'sum', 'mean', 'none', but got 'avg'"),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_wrong_option(name: str) -> None:
    value, message = OPTIONS[name]
    with pytest.raises(ValueError, match=message):
        ClassRectificationLoss(**{name: value})  # type: ignore[arg-type]


def test_all_wrong_options_are_reported_at_once() -> None:
    with pytest.raises(ValueError, match=r"level(.|\n)*kappa(.|\n)*rho"):
        ClassRectificationLoss(level="x", kappa=-1, rho=0)


OBJECTIVES = {
    "unknown option": (
        dict(kapa=3),
        TypeError,
        "every option of RectifiedCrossEntropy to be among level, .* 'kapa'. Did you mean 'kappa'",
    ),
    "misspelt reduction": (dict(label_reducton="sum"), TypeError, "Did you mean 'label_reduction'"),
    "infinite eta": (dict(eta=float("inf")), ValueError, "eta to be a number of at least 0, but got inf"),
    "infinite margin": (dict(margin=float("inf")), ValueError, "margin to be a positive number or None, but got inf"),
    "negative eta": (dict(eta=-1), ValueError, "eta to be a number of at least 0, but got -1"),
    "alpha above one": (dict(alpha=1.5), ValueError, r"alpha to be from 0 to 1, but got 1.5"),
    "alpha for other labels": (
        dict(alpha=[0.1, 0.2]),
        ValueError,
        r"alpha to be one number, or one for each of the 1 labels",
    ),
    "sizes that disagree": (dict(sizes=[3]), ValueError, r"sizes to be those of class_counts, \(2,\), but got \(3,\)"),
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_wrong_objective(name: str) -> None:
    options, error, message = OBJECTIVES[name]
    with pytest.raises(error, match=message):
        RectifiedCrossEntropy(torch.tensor([9, 1]), **options)


def test_probabilities_are_never_guessed() -> None:
    """Numbers that could be probabilities are logits all the same."""
    p = torch.rand(20, 3, generator=torch.Generator().manual_seed(0)).softmax(1)
    targets = torch.arange(20) % 3
    shifted = class_rectification_loss(p + 7, targets, scope="all")  # a softmax does not see a shift
    torch.testing.assert_close(class_rectification_loss(p, targets, scope="all"), shifted)
