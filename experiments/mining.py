"""Hard mining and joint learning."""

from rectifier.reproduce import Cell, Experiment, views

from .methods import CHOSEN, LMLE
from .paper import MINING as PAPER
from .paper import XDOMAIN
from .recipes import FASHION, GENTLE_ETA, QUICK_LABELS

EXPERIMENT = Experiment(
    title="Hard mining and joint learning",
    source="Table 11 of the paper, which uses X-Domain",
    about=(
        "Fashion products replace X-Domain. Without hard mining, pairs are drawn at random. LMLE uses cross-entropy"
        " for the first four fifths of training. It decides by distances, so subtracting a prior is meaningless."
    ),
    show=views.table(),
    settings=FASHION,
    cells=[
        Cell("MTCT", "fashion", {"method": "ce"}, XDOMAIN["MTCT"]),
        Cell("CRL", "fashion", {"method": "crl", "eta": GENTLE_ETA}, PAPER["CRL"], against="MTCT"),
        Cell(
            "CRL without hard mining",
            "fashion",
            {"method": "crl", "eta": GENTLE_ETA, "mining": "random"},
            PAPER["CRL without hard mining"],
            against="MTCT",
            control_of="CRL",
        ),
        Cell("LMLE", "fashion", LMLE, PAPER["LMLE"], against="MTCT", choose=CHOSEN["LMLE"]),
    ],
    quick=QUICK_LABELS,
)
