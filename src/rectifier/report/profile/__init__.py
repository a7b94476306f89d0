"""The class counts of a data set, as a table and as a figure."""
