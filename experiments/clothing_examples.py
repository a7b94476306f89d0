"""Predictions about clothes, photograph by photograph."""

from collections.abc import Mapping
from typing import Any

from rectifier._base import console
from rectifier.report.comparison import PREFERRED, difference, estimate
from rectifier.reproduce import Context, Experiment, ExperimentResult, views
from rectifier.training.run.folder import Run

from . import answers, pictures
from .clothing import CELLS as ALL_CELLS
from .recipes import FASHION, QUICK_LABELS

BASE, OTHER = "MTCT", "CRL"
SHOWN = 12
RULES = ("argmax", PREFERRED)
NOT_SHOWN = " (Its predictions are not recorded here: `--again` retrains these runs and draws it.)"


def measure(context: Context) -> dict[str, Any]:
    runs = {row: context.runs(row, "") for row in (BASE, OTHER)}
    first = runs[OTHER][0]
    said = answers.first_answers(first, first.predictions("test"), SHOWN, PREFERRED)
    shares = {row: {str(run.config.seed): _shares(run) for run in own} for row, own in runs.items()}
    return {**shares, "shown": said}


def draw(context: Context) -> None:
    said = context.before.get("shown")
    if said is None:
        console.say("The predictions for the picture are not recorded. Use --again to retrain these runs and draw it.")
        return
    images = pictures.read_images(pictures.open_images(context.config(OTHER, ""), context.data_root), list(said))
    own = [[answers.Answer(*one) for one in those] for those in said.values()]
    answers.draw_answers(images, own, context.pictures / "clothing-examples.png")


def _shares(run: Run) -> dict[str, dict[str, float]]:
    predictions = run.predictions("test")
    return {rule: answers.shares_right(run, predictions, rule) for rule in RULES}


def show(result: ExperimentResult) -> str:
    parts = [
        f"{pictures.whereabouts('clothing-examples')}, because the photographs are not ours to publish. It shows the"
        f" first {SHOWN} test images with the predictions of {OTHER} (first seed, preferred rule), wrong ones in"
        f" red.{'' if 'shown' in result.found else NOT_SHOWN}",
        "The tables give correct predictions in percent of the test images that have the label. Every image counts the"
        " same, so rare classes hardly count.",
    ]
    labels = next(iter(result.found[BASE].values()))["argmax"]
    for rule in RULES:
        lines = [[label, *_texts(result.found, rule, label)] for label in labels]
        table = views.markdown_table(["label", BASE, OTHER, "difference"], lines)
        parts.append(f"## {views.RULE_WORDS[rule]}\n\n{table}")
    return "\n\n".join(parts)


def _texts(found: Mapping[str, Any], rule: str, label: str) -> list[str]:
    base, other = ({seed: shares[rule][label] for seed, shares in found[row].items()} for row in (BASE, OTHER))
    return [*(views.spread(estimate(own)) for own in (base, other)), views.gain_text(difference(other, base))]


EXPERIMENT = Experiment(
    title="Fashion products: CRL's predictions, photograph by photograph",
    source="Figure 9 of the paper, which uses X-Domain",
    about=(
        "Fashion products replace X-Domain. The paper shows some photographs with CRL's predictions, wrong ones in"
        " red. Here the predictions are also counted, next to those of cross-entropy."
    ),
    show=show,
    settings=FASHION,
    cells=[cell for cell in ALL_CELLS if cell.row in (BASE, OTHER)],
    quick=QUICK_LABELS,
    measure=measure,
    draw=draw,
)
