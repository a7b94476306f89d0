"""Faces with rare attributes that cross-entropy misses and CRL finds, and the reverse."""

from collections.abc import Mapping
from typing import Any

from rectifier.report.comparison import difference, estimate
from rectifier.reproduce import Context, Experiment, ExperimentResult, views

from . import pictures
from .celeba import CELLS as ALL_CELLS
from .recipes import CELEBA, QUICK_LABELS

BASE, OTHER = "DeepID2", "CRL, class level"
NOT_RECORDED = " (not recorded here; `--again` retrains these runs and finds them)"
LABELS, DRAWN = 8, 4  # the most imbalanced: in the tables, and in the picture


def measure(context: Context) -> dict[str, Any]:
    others = {run.config.seed: run for run in context.runs(OTHER, "")}
    pairs = [(run, others[run.config.seed]) for run in context.runs(BASE, "") if run.config.seed in others]
    found = pictures.count_exchanges(pairs, views.RULE_WORDS, LABELS)
    return {**found, "shown": pictures.find_examples(*pairs[0], DRAWN)}


def draw(context: Context) -> None:
    found, data = context.before, pictures.open_images(context.config(BASE, ""), context.data_root)
    rows = [
        pictures.ExampleRow(
            f"{_name(one)}\n1:{one['ratio']:,.0f}".replace("_", " "),
            *(pictures.read_images(data, found["shown"][one["label"]].get(kind, [])) for kind in ("found", "lost")),
        )
        for one in found["labels"][:DRAWN]
    ]
    heads = (
        f"missed by {BASE}, found by {OTHER}",
        f"found by {BASE}, missed by {OTHER}{' (not recorded)' * _lacks(found)}",
    )
    pictures.draw_examples(rows, heads, context.pictures / "examples.png")


def _lacks(found: Mapping[str, Any]) -> bool:
    """Return whether the measurement is from before lost faces were recorded."""
    return any("lost" not in kinds for kinds in found.get("shown", {}).values())


def _name(one: Mapping[str, Any]) -> str:
    return one["label"] if one["class"] == "yes" else f"{one['label']}: {one['class']}"


def show(result: ExperimentResult) -> str:
    found = result.found
    heads = ["rare class", "1 : x", "images", f"{BASE} misses", f"{OTHER} alone finds", f"{BASE} alone finds"]
    heads += ["balance", f"{BASE}, false alarms", f"{OTHER}, false alarms"]
    parts = [
        f"{pictures.whereabouts('examples')}, because the terms of the data do not allow publishing it. For the"
        f" {DRAWN} most imbalanced labels it shows test images of the rare class (first seed, argmax). Green frames"
        f" are the first images that {BASE} misses and {OTHER} finds, red frames the first that {BASE} finds and"
        f" {OTHER}"
        f" misses{NOT_RECORDED * _lacks(found)}.",
        "Numbers are percent of the rare class's test images; false alarms are percent of all other test images. The"
        f" balance is what {OTHER} alone finds minus what {BASE} alone finds.",
    ]
    for rule, words in views.RULE_WORDS.items():
        rows = [(_name(one), f"{one['ratio']:,.0f}", one) for one in found["labels"]]
        lines = [_line(*row, rule) for row in [*rows, ("all labels", "", found["all"])]]
        parts.append(f"## {words}\n\n{views.markdown_table(heads, lines)}")
    return "\n\n".join(parts)


def _line(name: str, ratio: str, one: Mapping[str, Any], rule: str) -> list[str]:
    def shares(kind: str, whole: str) -> dict[str, float | None]:
        return {seed: n / max(1, one[whole]) for seed, n in one["rules"][rule][kind].items()}

    missed, found, lost = (shares(kind, "rare") for kind in ("missed", "found", "lost"))
    alarms = [shares(kind, "others") for kind in ("alarms", "other_alarms")]
    texts = [views.spread(estimate(values)) for values in (missed, found, lost, *alarms)]
    texts.insert(3, views.gain_text(difference(found, lost)))
    return [name, ratio, f"{one['rare']:,}", *texts]


EXPERIMENT = Experiment(
    title="CelebA: faces that cross-entropy misses and CRL finds, and the reverse",
    source="Figure 7 of the paper",
    about=(
        "The paper shows three pairs of images. Here all test images of the rare class are counted, also those that"
        " CRL loses, and what finding more of them costs in false alarms."
    ),
    show=show,
    settings=CELEBA,
    cells=[cell for cell in ALL_CELLS if cell.row in (BASE, OTHER)],
    quick=QUICK_LABELS,
    measure=measure,
    draw=draw,
)
