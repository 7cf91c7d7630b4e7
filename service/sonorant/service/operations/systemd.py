"""Tells systemd that the server serves. Until then, systemd counts it as starting and does not restart the next one."""

import logging
import os
import socket

log = logging.getLogger(__name__)

NOTIFY_VARIABLE = "NOTIFY_SOCKET"


def tell_ready() -> None:
    """Send READY=1 as sd_notify(3) does, if systemd started this process and waits for it (Type=notify)."""
    address = os.environ.get(NOTIFY_VARIABLE)
    if not address:
        return
    if address.startswith("@"):  # a socket in the abstract namespace
        address = f"\0{address[1:]}"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"READY=1", address)
    except OSError as error:
        log.error("cannot tell systemd that this server is ready: %s", error)
