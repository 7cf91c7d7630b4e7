"""`make bench`, `python -m clients.bench`: the same as `sonorant bench`."""

import sys

from clients import cli

if __name__ == "__main__":
    cli.main(["bench", *sys.argv[1:]])
