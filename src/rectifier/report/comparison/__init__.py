"""Compare runs: groups of seeds, means with intervals, paired differences."""

from rectifier.evaluation.scoring import COMPARED, PREFERRED, RULES
from rectifier.report.comparison.compare import BINS, ComparisonResult, compare_entries, compare_runs
from rectifier.report.comparison.groups import Entry
from rectifier.report.comparison.statistics import difference, estimate

__all__ = [
    "BINS",
    "COMPARED",
    "PREFERRED",
    "RULES",
    "ComparisonResult",
    "Entry",
    "compare_entries",
    "compare_runs",
    "difference",
    "estimate",
]
