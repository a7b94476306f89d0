"""Groups of runs: mean, interval, paired difference."""

from rectifier.compare.groups import Entry
from rectifier.compare.outcome import Comparison
from rectifier.compare.statistics import BINS, METRICS, compare_entries, difference, estimate
from rectifier.evaluation import COMPARED, PREFERRED, RULES

__all__ = [
    "BINS",
    "COMPARED",
    "METRICS",
    "PREFERRED",
    "RULES",
    "Comparison",
    "Entry",
    "compare_entries",
    "difference",
    "estimate",
]
