"""Decisions made from features instead of by the classifier."""
