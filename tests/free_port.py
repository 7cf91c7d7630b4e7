"""Ports for servers that cannot pick one themselves, or that keep theirs when they are started again."""

import random
import socket

# Below the range from which Linux takes ports for connections and for servers that ask for port 0. One of those may be
# taken again by anybody before the server is up, or while it is down.
PORTS = range(20_000, 32_768)
_random = random.SystemRandom()  # processes side by side must not pick alike


def free_port() -> int:
    while True:
        port = _random.choice(PORTS)
        with socket.socket() as sock:
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
