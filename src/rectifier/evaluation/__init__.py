"""Evaluation: metrics, decision rules, and decisions made from features."""
