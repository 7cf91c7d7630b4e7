"""`make bench`, `python -m sonorant.bench`: the same as `sonorant bench`."""

import sys

from sonorant.cli import main as cli

if __name__ == "__main__":
    cli.main(["bench", *sys.argv[1:]])
