"""`python -m blazes` is `blazes`."""

import os
import sys

# `python -m` looks for modules in the current folder first: a `yaml.py` there would run in place
# of ours. It stays where it is the folder that this package itself is in.
here, own = os.getcwd(), os.path.dirname(os.path.dirname(__file__))  # noqa: PTH109, PTH120
if not sys.flags.safe_path and sys.path[0] in ("", here) and own != here:
    del sys.path[0]

from blazes.cli import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
