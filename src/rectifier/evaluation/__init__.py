"""Evaluation: metrics, decision rules, decisions from features, and scores as one long table (``rows``)."""
