"""One of several gateway processes on a port. Its settings come on stdin; when that closes, it ends in order."""

import pickle
import sys

from sonorant import logs
from sonorant.gateway.shared_counts import take_room


def main() -> None:
    logs.set_up()
    config = pickle.load(sys.stdin.buffer)
    take_room()
    from sonorant.gateway.processes.process import run_process

    sys.exit(run_process(config, lifeline=sys.stdin.fileno()))


if __name__ == "__main__":
    main()
