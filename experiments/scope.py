"""Which classes are rectified: the minority or all."""

from rectifier.reproduce import Cell, Experiment, ExperimentResult, views

from .paper import SCOPE, SCOPE_HOURS, XDOMAIN
from .recipes import FASHION, GENTLE_ETA, QUICK_LABELS
from .times import time_remark, time_table, times_of

CRL = {"method": "crl", "eta": GENTLE_ETA}
ROWS = {"minority classes": "minority", "all classes": "all"}


def show(result: ExperimentResult) -> str:
    hours = {row: SCOPE_HOURS[scope] for row, scope in ROWS.items()}
    table = time_table(times_of(result, ROWS, "fashion"), "minority classes", hours)
    return "\n\n".join([views.table()(result), "## Training time", table, time_remark(table)])


EXPERIMENT = Experiment(
    title="Which classes are rectified: the minority or all",
    source="Table 12 of the paper, which uses X-Domain",
    about=(
        "Fashion products replace X-Domain. Runs are trained one after another, so that their times can be compared."
        " They leave out the last, smaller batch, so that no other experiment shares them."
    ),
    show=show,
    settings={**FASHION, "drop_last": True},
    cells=[
        Cell("MTCT", "fashion", {"method": "ce"}, XDOMAIN["MTCT"]),
        Cell("minority classes", "fashion", CRL, SCOPE["minority"], against="MTCT", control_of="all classes"),
        Cell("all classes", "fashion", {**CRL, "scope": "all"}, SCOPE["all"], against="MTCT"),
    ],
    quick=QUICK_LABELS,
    alone=True,
)
