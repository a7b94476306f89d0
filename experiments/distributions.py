"""Class distributions."""

from typing import Any

from rectifier.reproduce import Context, Experiment, ExperimentResult

from .datasets import describe, draw_distributions, not_here_text, series_table, sorted_sizes

DATA = {"CelebA": "celeba", "Fashion products": "fashion"}
SERIES = {f"gamma {gamma}": f"cifar100:imb={gamma}" for gamma in (0.2, 0.4, 0.6, 0.8, 1.0)}

_SHAPES = "shapes:samples=300,size=16,ratio=20,validation=30,test=30,labels="
QUICK_DATA = {
    "Shapes, labels of two classes": f"{_SHAPES}shape=2/colour=2/texture=2",
    "Shapes": f"{_SHAPES}shape=6/colour=5/texture=3",
}
QUICK_SERIES = {f"1 : {ratio}": f"digits:ratio={ratio}" for ratio in (5, 10, 20)}


def measure(context: Context) -> dict[str, Any]:
    data, series = (QUICK_DATA, QUICK_SERIES) if context.quick else (DATA, SERIES)
    specs = [*data.values(), *series.values()]
    here, not_here = describe(specs, context.data_root, sorted_sizes, context.before.get("here", {}))
    return {
        "labels": {title: spec for title, spec in data.items() if spec in here},
        "made": "Digits" if context.quick else "CIFAR-100 imb(gamma)",
        "series": {name: spec for name, spec in series.items() if spec in here},
        "here": here,
        "not_here": not_here,
    }


def show(result: ExperimentResult) -> str:
    found, here = result.found, result.found["here"]
    labels = {title: here[spec] for title, spec in found["labels"].items()}
    lines = {name: next(iter(here[spec].values())) for name, spec in found["series"].items()}  # of their one label
    series = {found["made"]: lines} if lines else {}
    drawn = draw_distributions(labels, series, result.folder / f"{result.name}.png")
    picture = f"![class sizes of each label, the largest first]({result.name}.png)" if drawn else ""
    tables = [f"## {title}\n\n{series_table(sizes)}" for title, sizes in series.items()]
    return "\n\n".join(filter(None, [picture, *tables, not_here_text(found["not_here"], result.name)]))


EXPERIMENT = Experiment(
    title="Class distributions: CelebA, fashion products, and imbalanced CIFAR-100",
    source="Figures 1 and 10 (a) of the paper, which show X-Domain and CelebA",
    about=(
        "The figure shows the training images of every class; the experiment `imbalance` has the numbers of every"
        " label. Fashion products replace X-Domain. CIFAR-100 imb(gamma) is the paper's power law between 500 and 25"
        " images; the paper draws it without numbers. Nothing is trained."
    ),
    show=show,
    measure=measure,
)
