"""One of several server processes on a port. Its settings come on stdin; when that closes, it ends in order.

Run by `processes.py`, as `python -m sonorant.service.part`.
"""

import pickle
import sys

from sonorant.service import process


def main() -> None:
    config = pickle.load(sys.stdin.buffer)
    sys.exit(process.run(config, sys.stdin.fileno()))


if __name__ == "__main__":
    main()
