"""Reports for people: comparisons of runs, profiles of data, tables and figures; the paper's numbers."""
