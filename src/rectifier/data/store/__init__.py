"""The store: every image decoded once, in memory-mapped files."""
