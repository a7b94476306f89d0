"""The command line as ``python -m rectifier``."""

from rectifier.cli import main

if __name__ == "__main__":
    main()
