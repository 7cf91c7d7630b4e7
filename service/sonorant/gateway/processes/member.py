"""One of several gateway processes on a port. Its settings come on stdin; when that closes, it ends in order."""

import pickle
import sys

from sonorant.gateway.processes.process import run_process


def main() -> None:
    config = pickle.load(sys.stdin.buffer)
    sys.exit(run_process(config, lifeline=sys.stdin.fileno()))


if __name__ == "__main__":
    main()
