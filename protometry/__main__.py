"""``python -m protometry``: the same as the command ``protometry``."""

from protometry.scripts import main

if __name__ == "__main__":
    main()
