"""The minority criterion rho."""

from rectifier.reproduce import Cell, Experiment, views

from .paper import RHO as PAPER
from .paper import XDOMAIN
from .recipes import FASHION, GENTLE_ETA, QUICK_LABELS

EXPERIMENT = Experiment(
    title="The minority criterion rho",
    source="Table 13 of the paper, which uses X-Domain",
    about="Fashion products replace X-Domain.",
    show=views.table(),
    settings=FASHION,
    cells=[
        Cell("MTCT", "fashion", {"method": "ce"}, XDOMAIN["MTCT"]),
        *(
            Cell(
                f"rho {rho:.0%}",
                "fashion",
                # The default is left out, so that other tables share the run.
                {"method": "crl", "eta": GENTLE_ETA, **({} if rho == 0.5 else {"rho": rho})},
                paper,
                against="MTCT",
            )
            for rho, paper in PAPER.items()
        ),
    ],
    quick=QUICK_LABELS,
)
