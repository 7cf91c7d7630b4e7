"""One of several server processes on a port, which use the same workers. Its settings come on stdin; when that closes,
it ends in order.

Run by `processes.py`, as `python -m sonorant.service.front FD`, where FD is a socket to the process with the workers.
"""

import pickle
import socket
import sys

from sonorant.service import process
from sonorant.service.handed import Handed


def main() -> None:
    handed: Handed = pickle.load(sys.stdin.buffer)
    owner = socket.socket(fileno=int(sys.argv[1]))
    owner.set_inheritable(False)
    sys.exit(process.run(handed.config, sys.stdin.fileno(), owner, handed.ledger))


if __name__ == "__main__":
    main()
