"""Callbacks for Lightning, Hugging Face and skorch: they tell losses with a schedule how much of training is done.

Each framework has its own module: ``from rectifier.callbacks.lightning import ProgressCallback``.
"""
