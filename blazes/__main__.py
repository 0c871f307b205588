"""`python -m blazes` is `blazes`."""

import sys

from blazes.cli import main

if __name__ == "__main__":
    sys.exit(main())
