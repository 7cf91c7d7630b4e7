"""What the child processes of these tests run; apart from the tests, so that children do not import pytest."""

import os
import time
from contextlib import closing
from multiprocessing.connection import Connection
from typing import Any

from sonorant.engine.ipc.channel import PeerGone, RingInbox, RingOutbox
from sonorant.engine.ipc.child import Child
from sonorant.engine.ipc.doorbell import Doorbell
from sonorant.engine.ipc.heartbeat import Heartbeat
from sonorant.engine.ipc.ring import Ring


def echo(inbox: RingInbox[Any], outbox: RingOutbox[Any], ready: Connection) -> None:
    """Send everything back until the other side is gone."""
    ready.send(os.getpid())
    try:
        while True:
            inbox.wait()
            outbox.publish(inbox.drain())
    except PeerGone:
        pass


class EchoPair:
    """A child that echoes, and this side's ends of its channels."""

    def __init__(self, ring_bytes: int) -> None:
        there, back = Ring(ring_bytes), Ring(ring_bytes)
        our_out, their_in = Doorbell.pair()
        their_out, our_in = Doorbell.pair()
        self.outbox: RingOutbox[Any] = RingOutbox(there, our_out)
        self.inbox: RingInbox[Any] = RingInbox(back, our_in)
        ends = (RingInbox[Any](there, their_in), RingOutbox[Any](back, their_out))
        with closing(their_in), closing(their_out):
            self.child = Child("echo", echo, ends, ends)
        self._resources = (self.child, there, back, our_out, our_in)
        self.child.ready.recv()

    def close(self) -> None:
        for resource in self._resources:
            resource.close()


def parent_of_echo(ready: Connection) -> None:
    """Start a child of its own, tell its pid, and hang."""
    pair = EchoPair(ring_bytes=4096)
    ready.send(pair.child.pid)
    pair.inbox.wait()


def tell_fds(heartbeat: Heartbeat, ready: Connection) -> None:
    """Open descriptors, and which of them a child of this child would inherit."""
    fds = [int(name) for name in os.listdir("/proc/self/fd")]
    ready.send([(fd, os.get_inheritable(fd)) for fd in fds if _is_open(fd)])


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:  # the directory listing's own
        return False
    return True


def hang(heartbeat: Heartbeat, ready: Connection) -> None:
    heartbeat.busy()
    ready.send("busy")
    time.sleep(600)


def fail(ready: Connection) -> None:
    raise ValueError("out of luck")
