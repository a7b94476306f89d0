"""Losses: functions of ``(logits, targets)``, each with a thin module."""
