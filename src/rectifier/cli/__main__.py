"""``python -m rectifier.cli``."""

from rectifier.cli import main

if __name__ == "__main__":
    main()
