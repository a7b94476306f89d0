"""The command line, as ``rectifier`` and as ``python -m rectifier``."""

from __future__ import annotations

import sys

from rectifier._base.imports import with_extra


def main() -> None:
    """Run the command line, or say which extra it needs."""
    try:
        from rectifier.cli import main as run
    except ModuleNotFoundError as error:
        sys.exit(str(with_extra(error, " ".join(["rectifier", *sys.argv[1:2]]))))
    run()


if __name__ == "__main__":
    main()
