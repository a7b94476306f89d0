"""The degree gamma of imbalance."""

from rectifier.reproduce import Cell, Experiment

from .figures import curve
from .recipes import CIFAR, HELD_OUT, HELD_OUT_WORDS, QUICK_ONE_LABEL, small_classes

GAMMAS = (0.2, 0.4, 0.6, 0.8, 1.0)

EXPERIMENT = Experiment(
    title="The degree gamma of imbalance: ResNet32 on CIFAR-100 imb(gamma) with and without CRL",
    source="Figure 10 (b) of the paper",
    about=(
        "Settings are the paper's, with a cosine schedule, but 30 epochs instead of 200, which leaves networks half"
        " trained. With a larger gamma there are more training images between the 500 of the most frequent class and"
        " the 25 of the least frequent. So scores of different gammas cannot be compared, but gains can."
        f" {HELD_OUT_WORDS}"
    ),
    show=curve(
        "gamma",
        "The paper shows its numbers in a figure. It sees gains at every gamma, and no clear trend."
        " At gamma 1 its Table 9 has 42.1, and 45.2 with CRL, by argmax.",
    ),
    settings={**CIFAR, "epochs": 30},
    cells=[
        Cell(
            f"{gamma:g}",
            column,
            {
                "data": f"cifar100:imb={gamma:g},{HELD_OUT}",
                "method": method,
                **({"eta": 0.5} if method == "crl" else {}),
            },
            against=(f"{gamma:g}", "CE") if method == "crl" else None,
            quick=small_classes(round(20 * gamma)),
        )
        for column, method in (("CE", "ce"), ("CRL", "crl"))
        for gamma in GAMMAS
    ],
    quick=QUICK_ONE_LABEL,
)
