"""What systemd is told: that this server serves. Until then a restart is not over, nor the next server's turn come."""

import logging
import os
import socket

log = logging.getLogger(__name__)


def tell_ready() -> None:
    """By sd_notify(3), if systemd started us and waits for it (Type=notify)."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):  # abstract
        address = f"\0{address[1:]}"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"READY=1", address)
    except OSError as error:
        log.error("systemd does not hear that this server is ready: %s", error)
