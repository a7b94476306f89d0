"""How imbalanced the data sets are."""

from typing import Any

from rectifier.reproduce import Context, Experiment, ExperimentResult

from .datasets import data_table, describe, facts_of, label_table, not_here_text

DATA = ("cifar100", "celeba", "deepfashion", "xdomain", "fashion")
QUICK = ("digits", "shapes:samples=300,size=16,ratio=20")

# Table 2: labels, classes of a label, training images of a class. Images and ratios are in rectifier.report.published.
PAPER = {
    "cifar100": ("1", "100", "500"),
    "celeba": ("40", "2", "3,713 to 135,779"),
    "xdomain": ("9", "6 to 55", "13 to 132,870"),
}

REMARK = (
    "The largest ratio is that of the most imbalanced label, or of the most imbalanced group where labels come in"
    " groups. Classes without training images are ignored. Some of the paper's numbers disagree. CelebA's 1 : 43 is"
    " 3,713 : 159,057 in its introduction, where Table 2 has 135,779. X-Domain's 1 : 4,162 is 20 : 204,177, over all"
    " images and not over training images. Except for DeepFashion, the paper's training images include its validation"
    " images. It has as many test images of CelebA as there are official validation images."
)


def measure(context: Context) -> dict[str, Any]:
    specs = QUICK if context.quick else DATA
    root = context.data_root
    here, not_here = describe(specs, root, lambda found: facts_of(found, root), context.before.get("here", {}))
    return {"data": list(specs), "here": here, "not_here": not_here}


def show(result: ExperimentResult) -> str:
    found = result.found
    labels = [label_table(spec, facts) for spec, facts in found["here"].items() if len(facts["sizes"]) > 1]
    missing = not_here_text(found["not_here"], result.name)
    return "\n\n".join(filter(None, [data_table(found["here"], found["data"], PAPER), REMARK, missing, *labels]))


EXPERIMENT = Experiment(
    title="How imbalanced the data sets are",
    source="Tables 1 and 2 of the paper",
    about=(
        "The numbers are counted by this package's readers. For CIFAR-100, ten images of each class are held out for"
        " validation, as in the paper. Fashion products are not in the paper. Of Table 1, ILSVRC, MS-COCO, VOC and"
        " Caltech 256 have no reader here. Nothing is trained."
    ),
    show=show,
    measure=measure,
)
