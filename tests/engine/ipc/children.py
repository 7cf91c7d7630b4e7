"""Functions that the child processes of these tests run. They have a module of their own so that children do not import
pytest."""

import asyncio
import ctypes
import os
import time
from contextlib import closing
from multiprocessing.connection import Connection
from typing import Any

from sonorant.engine.ipc.channel import PeerGone
from sonorant.engine.ipc.child import Child
from sonorant.engine.ipc.fork_server import ForkServer
from sonorant.engine.ipc.handed import SocketEnd
from sonorant.engine.ipc.heartbeat import Heartbeat
from sonorant.engine.ipc.ring import Doorbell, Ring, RingInbox, RingOutbox


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
            self.child = Child.spawn("echo", echo, ends)
        self._resources = (self.child, there, back, our_out, our_in)
        self.child.ready.recv()

    def close(self) -> None:
        for resource in self._resources:
            resource.close()


def parent_of_echo(ready: Connection) -> None:
    """Start another child, send its pid, and hang."""
    pair = EchoPair(ring_bytes=4096)
    ready.send(pair.child.pid)
    pair.inbox.wait()


def tell_fds(heartbeat: Heartbeat, ready: Connection) -> None:
    """Send the open descriptors, and those of them that a child of this child would inherit."""
    fds = [int(name) for name in os.listdir("/proc/self/fd")]
    ready.send([(fd, os.get_inheritable(fd)) for fd in fds if _is_open(fd)])


def tell_directory(ready: Connection) -> None:
    ready.send(os.getcwd())


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


def load_for_ever(ready: Connection) -> None:
    time.sleep(600)


def fail(ready: Connection) -> None:
    raise ValueError("out of luck")


def hold(end: SocketEnd, ready: Connection) -> None:
    ready.send("holding")
    time.sleep(600)


def ring_for_ever(bell: Doorbell, ready: Connection) -> None:
    while not bell.peer_gone:
        bell.ring()


def leave_with_seven(ready: Connection) -> None:
    raise SystemExit(7)


def tell_variables(ready: Connection) -> None:
    """Send two environment variables as a C library reads them."""
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    one, both = getenv(b"OF_ONE"), getenv(b"OF_ALL")
    ready.send((one and one.decode(), both and both.decode()))


def parent_of_forked(ready: Connection) -> None:
    """Have a worker forked, send its pid and the fork server's, and hang."""

    async def main() -> None:
        server = ForkServer()
        server.hold()
        ours, theirs = Doorbell.pair()
        child = await server.fork("bell", ring_for_ever, (theirs,), {}, 60)
        theirs.close()
        ready.send([child.pid, server.pid])
        ours.wait()
        await asyncio.Event().wait()

    asyncio.run(main())


def parent_of_importing(ready: Connection) -> None:
    """Start a fork server that imports for ever, send its pid, and hang."""
    server = ForkServer("tests.engine.ipc.never_imported")
    with server.ahead():
        ready.send(server.pid)
        time.sleep(600)
