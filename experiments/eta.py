"""The weight eta of the rectification."""

from rectifier.reproduce import Cell, Experiment

from .figures import curve
from .paper import XDOMAIN
from .recipes import FASHION, QUICK_LABELS

PAPER = {0.01: XDOMAIN["CRL"]}

EXPERIMENT = Experiment(
    title="The weight eta of the rectification, from 0.001 to 0.1 and beyond",
    source="Figure 11 of the paper, which uses X-Domain",
    about=(
        "Fashion products replace X-Domain. The paper's range ends at 0.1. The paper draws a curve for each label;"
        " this is the mean over all labels."
    ),
    show=curve(
        "eta",
        "The paper shows its numbers in a figure. Its text repeats only that of 0.01, which it finds best.",
        logarithmic=True,
    ),
    settings=FASHION,
    cells=[
        Cell("CE", settings={"method": "ce"}, paper=XDOMAIN["MTCT"]),
        *(
            Cell(f"{eta:g}", settings={"method": "crl", "eta": eta}, paper=PAPER.get(eta), against="CE")
            for eta in (0.001, 0.01, 0.05, 0.1, 0.5)
        ),
    ],
    quick=QUICK_LABELS,
)
