"""Groups of runs: mean, interval, paired difference."""

from rectifier.compare.outcome import Comparison
from rectifier.compare.statistics import BINS, METRICS, RULES, Entry, compare_entries

__all__ = ["BINS", "METRICS", "RULES", "Comparison", "Entry", "compare_entries"]
