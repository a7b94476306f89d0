"""DeepFashion: ResNet50 with and without CRL, top-5 class-balanced accuracy."""

from rectifier.reproduce import Cell, Experiment, ExperimentResult, views
from rectifier.reproduce.experiment import GROUPS

from .methods import CHOSEN
from .paper import DEEPFASHION as PAPER
from .paper import with_papers
from .recipes import QUICK_LABELS

GROUPS_OF_LABELS = "shapes:samples=160,size=16,ratio=10,labels=texture/shape,binary=yes,validation=30,test=30"


def show(result: ExperimentResult) -> str:
    """Show groups of labels in columns: top-5 class-balanced accuracy of each group, and gains."""
    of_groups = result.table.query("metric == @GROUPS and label.notna()")
    names = of_groups["label"].unique().tolist()
    if not names:
        note = "These labels have no groups. The tables cover all labels together, unlike the paper's numbers."
        return "\n\n".join([note, *(views.cells_under(result, rule, None) for rule in views.RULE_WORDS)])
    heads = [
        "top-5 class-balanced accuracy, %",
        "rule",
        *(head for name in (*names, "mean") for head in (name, "paper")),
    ]
    lines = []
    for cell in result.experiment.cells:
        for rule in views.RULE_WORDS:
            columns: list[str | None] = [*names, None]  # the last is their mean
            scores = [views.spread(result.score(cell, rule, name, GROUPS)) for name in columns]
            papers = [views.paper_text(cell.paper_of(name or "mean")) for name in columns]
            lines.append([cell.row, rule, *with_papers(scores, papers, rule)])
            if cell.against is not None:
                gains = [result.gain(cell, rule, name, GROUPS) for name in columns]
                papers = [views.paper_gain_text(result.paper_gain(cell, (name or "mean",))) for name in columns]
                lines.append([f"{cell.row}, gain", rule, *with_papers(map(views.gain_text, gains), papers, rule)])
    return views.markdown_table(heads, lines)


EXPERIMENT = Experiment(
    title="DeepFashion: ResNet50 with and without CRL",
    source="Table 7 of the paper",
    about=(
        "The metric is class-balanced accuracy over the five most likely attributes of a group. Eta, which the paper"
        " does not state, and the epoch are chosen on validation, by class-balanced accuracy over all attributes."
    ),
    show=show,
    metric=GROUPS,
    settings={"preset": "deepfashion", "tensorboard": False, "features": False},
    cells=[
        Cell("ResNet50", settings={"method": "ce"}, paper=PAPER["ResNet50"]),
        Cell(
            "ResNet50 + CRL",
            settings={"method": "crl"},
            paper=PAPER["ResNet50 + CRL"],
            against="ResNet50",
            choose=CHOSEN["CRL"],
        ),
    ],
    quick={**QUICK_LABELS, "data": GROUPS_OF_LABELS},
)
