"""Groups of runs: mean, interval, paired difference."""

from rectifier.evaluation.scoring import COMPARED, PREFERRED, RULES
from rectifier.report.comparison.groups import Entry
from rectifier.report.comparison.result import Comparison
from rectifier.report.comparison.statistics import BINS, METRICS, compare_entries, compare_runs, difference, estimate

__all__ = [
    "BINS",
    "COMPARED",
    "METRICS",
    "PREFERRED",
    "RULES",
    "Comparison",
    "Entry",
    "compare_entries",
    "compare_runs",
    "difference",
    "estimate",
]
