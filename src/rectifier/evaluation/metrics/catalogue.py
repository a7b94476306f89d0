"""The one list of metrics: printed name, unit, direction, and the level at which each exists."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Level = Literal["overall", "label", "class", "group"]
"""Over all labels, per label, per class, or per group of labels (those named ``group/label``)."""


class Metric(NamedTuple):
    """How a metric is called, what it counts, and where it is defined.

    A value in ``%`` is stored as a fraction. ``higher_is_better`` is None for plain counts.
    """

    words: str
    levels: tuple[Level, ...]
    unit: Literal["%", "nats", "classes", "samples"] = "%"
    higher_is_better: bool | None = True

    @property
    def title(self) -> str:
        """The name as the head of a table, with unit and direction.

        >>> METRICS["nll"].title
        'Negative log-likelihood (nats, lower is better)'
        """
        direction = {True: ", higher is better", False: ", lower is better", None: ""}[self.higher_is_better]
        return f"{self.words[:1].upper()}{self.words[1:]} ({self.unit}{direction})"


_BOTH: Final[tuple[Level, ...]] = ("overall", "label")

METRICS: Final[dict[str, Metric]] = {
    "class_balanced_accuracy": Metric("class-balanced accuracy", _BOTH),
    "accuracy": Metric("accuracy", _BOTH),
    "macro_f1": Metric("macro F1", _BOTH),
    "g_mean": Metric("G-mean", _BOTH),
    "mean_average_precision": Metric("mean average precision", _BOTH),
    "top5_class_balanced_accuracy": Metric("top-5 class-balanced accuracy", _BOTH),
    "nll": Metric("negative log-likelihood", _BOTH, "nats", higher_is_better=False),
    "expected_calibration_error": Metric("expected calibration error", _BOTH, higher_is_better=False),
    "calibrated_nll": Metric("negative log-likelihood after calibration", _BOTH, "nats", higher_is_better=False),
    "calibrated_expected_calibration_error": Metric(
        "expected calibration error after calibration", _BOTH, higher_is_better=False
    ),
    "many": Metric("recall of classes with more than 100 training samples", ("overall",)),
    "medium": Metric("recall of classes with 20 to 100 training samples", ("overall",)),
    "few": Metric("recall of classes with fewer than 20 training samples", ("overall",)),
    "rarest": Metric("recall of the rarest class of each label", ("overall",)),
    "absent": Metric("classes without a sample", ("overall",), "classes", higher_is_better=None),
    "group_top5": Metric("recall among the top 5 of the group", ("group",)),
    "sensitivity": Metric("recall", ("class",)),
    "average_precision": Metric("average precision", ("class",)),
    "samples": Metric("samples", ("class",), "samples", higher_is_better=None),
}

COMPARED_METRICS: Final = tuple(
    key
    for key, metric in METRICS.items()
    if metric.levels[0] == "overall" and metric.unit == "%" and not key.startswith("calibrated_")
)
"""The metrics that a comparison of runs shows."""
