"""Readers: one file per data set, all returning ``ImageData``."""
