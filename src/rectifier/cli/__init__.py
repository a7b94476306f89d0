"""The command line: ``rectifier VERB``. Each verb is a thin face of Python functions that do the same.

Heavy modules are imported inside the commands, so that ``rectifier --help`` answers at once. Results go to stdout;
notes, progress and errors go to stderr.
"""

from rectifier.cli import data, demo, listing, reproducing, training  # noqa: F401  each adds its verbs
from rectifier.cli.app import app, main

__all__ = ["app", "main"]
