"""What a network says about clothes, photograph by photograph."""

from collections.abc import Mapping

from rectifier.compare import PREFERRED, difference, estimate
from rectifier.reproduce import Experiment, Laboratory, Outcome, answers, pictures, views
from rectifier.runs.folder import Run

from .clothing import CELLS as ALL_CELLS
from .recipes import FASHION, QUICK_LABELS

BASE, OTHER = "MTCT", "CRL"
SHOWN = 12
RULES = ("argmax", PREFERRED)


def measure(laboratory: Laboratory) -> dict:
    runs = {row: laboratory.runs(row, "") for row in (BASE, OTHER)}
    _draw(runs[OTHER][0], laboratory)
    return {row: {str(run.config.seed): _shares(run) for run in own} for row, own in runs.items()}


def _draw(run: Run, laboratory: Laboratory) -> None:
    said = answers.first_answers(run, run.predictions("test"), SHOWN, PREFERRED)
    images = pictures.read_images(pictures.open_images(run, laboratory.data_root), list(said))
    answers.draw_answers(images, list(said.values()), laboratory.pictures / "clothing-examples.png")


def _shares(run: Run) -> dict[str, dict[str, float]]:
    predictions = run.predictions("test")
    return {rule: answers.shares_right(run, predictions, rule) for rule in RULES}


def show(outcome: Outcome) -> str:
    parts = [
        f"{pictures.whereabouts('clothing-examples')}; the photographs are not ours to put here. It shows the first"
        f" {SHOWN} test images with the answers of {OTHER}, first seed, under the rule that validation prefers, wrong"
        " ones in red.",
        "Right answers in percent of the test images that have the label; classes count by their images here, so that"
        " rare ones hardly count.",
    ]
    labels = next(iter(outcome.found[BASE].values()))["argmax"]
    for rule in RULES:
        lines = [[label, *_texts(outcome.found, rule, label)] for label in labels]
        table = views.markdown_table(["", BASE, OTHER, "difference"], lines)
        parts.append(f"## {views.RULE_WORDS[rule]}\n\n{table}")
    return "\n\n".join(parts)


def _texts(found: Mapping, rule: str, label: str) -> list[str]:
    base, other = ({seed: shares[rule][label] for seed, shares in found[row].items()} for row in (BASE, OTHER))
    return [*(views.spread(estimate(own)) for own in (base, other)), views.gain_text(difference(other, base))]


EXPERIMENT = Experiment(
    title="Fashion products: what CRL says about them, photograph by photograph",
    source="Figure 9 of the paper, which is of X-Domain",
    about=(
        "Fashion products stand in X-Domain's place. The paper shows some photographs with CRL's answers, wrong ones in"
        " red. Here answers are counted, too, beside those of cross-entropy."
    ),
    show=show,
    settings=FASHION,
    cells=[cell for cell in ALL_CELLS if cell.row in (BASE, OTHER)],
    quick=QUICK_LABELS,
    measure=measure,
)
