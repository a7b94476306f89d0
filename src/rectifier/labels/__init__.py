"""Labels: their names, their columns in one tensor, and how imbalanced they are."""
