"""Features of two frequent classes and a rare one: trained on balanced and imbalanced classes, and with CRL."""

from typing import Any

from rectifier.report.comparison import difference, estimate
from rectifier.reproduce import Context, Experiment, ExperimentResult, views

from . import neighbourhoods
from .cifar100_imbalanced import CELLS as ALL_CELLS
from .recipes import CIFAR, QUICK_ONE_LABEL

BASE, RECTIFIED = "imb(1)", "imb(1) + CRL"
CELLS = [cell for cell in ALL_CELLS if cell.column == "ResNet32" and cell.row in ("bln(1)", BASE, RECTIFIED)]


def measure(context: Context) -> dict[str, Any]:
    runs = {cell.row: context.runs(cell.row, cell.column) for cell in CELLS}
    return neighbourhoods.compare_neighbourhoods(runs, BASE, context.data_root)


def show(result: ExperimentResult) -> str:
    found = result.found
    neighbourhoods.draw_maps(found, result.folder / f"{result.name}.png")
    named = {role: f"{one['name']} ({one['images']})" for role, one in found["classes"].items()}
    heads = {
        "overwhelmed": "Min-1 among Maj-1 and Maj-2",
        "silhouette": "100 x silhouette of Min-1",
        "overwhelmed_of_all": "rarest third among most frequent third",
    }
    lines = [[row, *(views.spread(estimate(values[name])) for name in heads)] for row, values in found["rows"].items()]
    after, before = found["rows"][RECTIFIED], found["rows"][BASE]
    gains = [views.gain_text(difference(after[name], before[name])) for name in heads]
    k = found["neighbours"]
    return "\n\n".join(
        [
            f"![maps of the features of three classes]({result.name}.png)",
            f"t-SNE of the features of test images, first seed. {', '.join(f'{r}: {n}' for r, n in named.items())};"
            " brackets give the training images of imb(1).",
            views.markdown_table(["training data", *heads.values()], [*lines, [f"{RECTIFIED}, difference", *gains]]),
            f"A test image is among other classes if more than half of the {k} test images nearest to it in features"
            " are of those classes. The first and last column give the share of such images in percent; lower is"
            " better."
            " The silhouette is 100 where Min-1 is apart from the two others, and below 0 where it is among them. The"
            " last"
            f" column covers all classes, the {found['third']} rarest against the {found['third']} most frequent.",
        ]
    )


EXPERIMENT = Experiment(
    title="CIFAR-100: ResNet32 features of two frequent classes and a rare one",
    source="Figure 2 of the paper",
    about=(
        "The paper does not say which classes it draws. Here they are the two most frequent and the rarest of imb(1);"
        " of equally rare classes, the last. They were fixed before anyone looked at the results."
    ),
    show=show,
    settings={**CIFAR, "features": True},
    cells=CELLS,
    quick=QUICK_ONE_LABEL,
    seeds=5,
    measure=measure,
)
