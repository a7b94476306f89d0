"""The command line, ``rectifier VERB``: one file per verb, each a thin layer over Python functions.

Heavy modules are imported inside the commands, so that ``rectifier --help`` answers at once. Results go to stdout;
notes, progress and errors go to stderr.
"""

# Each module adds its verb.
from rectifier.cli import (  # noqa: F401
    compare,
    demo,
    evaluate,
    features,
    list,
    lr_find,
    predict,
    profile,
    reproduce,
    store,
    train,
)
from rectifier.cli.app import app, main

__all__ = ["app", "main"]
