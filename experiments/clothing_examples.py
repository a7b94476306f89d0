"""What a network says about clothes, photograph by photograph."""

from rectifier.compare import difference, estimate
from rectifier.reproduce import Experiment, Laboratory, Outcome, answers, pictures, views
from rectifier.reproduce.outcome import PREFERRED

from .clothing import CELLS as ALL_CELLS
from .recipes import FASHION, QUICK_LABELS

BASE, OTHER = "MTCT", "CRL"
SHOWN = 12
RULES = ("argmax", PREFERRED)


def measure(laboratory: Laboratory) -> dict:
    runs = {row: laboratory.runs(row, "") for row in (BASE, OTHER)}
    first = runs[OTHER][0]
    said = answers.first_answers(first, SHOWN, PREFERRED)
    images = pictures.read_images(pictures.open_images(first, laboratory.data_root), list(said))
    answers.draw_answers(images, list(said.values()), laboratory.pictures / "clothing-examples.png")
    return {
        rule: {row: {str(run.config.seed): answers.shares_right(run, rule) for run in own} for row, own in runs.items()}
        for rule in RULES
    }


def show(outcome: Outcome) -> str:
    parts = [
        "The picture is `pictures/clothing-examples.png` in the folder given by `--out` (`reproduced`); the photographs"
        f" are not ours to put here. It shows the first {SHOWN} test images with the answers of {OTHER}, first seed,"
        " under the rule that validation prefers, wrong ones in red.",
        "Right answers in percent of the test images that have the label; classes count by their images here, so that"
        " rare ones hardly count.",
    ]
    for rule, by_row in outcome.found.items():
        labels = next(iter(by_row[BASE].values()))
        lines = [[label, *_texts(by_row, label)] for label in labels]
        table = views.markdown_table(["", BASE, OTHER, "difference"], lines)
        parts.append(f"## {views.RULE_WORDS[rule]}\n\n{table}")
    return "\n\n".join(parts)


def _texts(by_row: dict, label: str) -> list[str]:
    base, other = ({seed: shares[label] for seed, shares in by_row[row].items()} for row in (BASE, OTHER))
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
