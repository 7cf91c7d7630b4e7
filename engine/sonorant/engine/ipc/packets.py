"""Messages between two processes over a socket pair: pickled values, together with the file descriptors that they hold.

Each message is one packet, so it arrives whole. Nothing is lost, and `send` never blocks: what the socket does not take
waits.
"""

import asyncio
import os
import pickle
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from sonorant.engine.ipc.inherited import renumbered

MAX_BYTES = 2**20
MAX_FDS = 253  # the kernel's own limit


class Packets:
    """One end. Belongs to one event loop."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._socket = end
        self._waiting: deque[tuple[bytes, list[int]]] = deque()

    @staticmethod
    def pair() -> tuple[socket.socket, socket.socket]:
        """Return the two ends of a socket pair, of which one can be passed to another process."""
        return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def send(self, message: object, fds: Sequence[int] = ()) -> None:
        """Send a message and the file descriptors that it holds. Does nothing if the other side is gone."""
        payload = pickle.dumps((list(fds), pickle.dumps(message)))
        if not self._waiting and self._sent(payload, fds):
            return
        if not self._waiting:
            asyncio.get_running_loop().add_writer(self._socket.fileno(), self._send_waiting)
        self._waiting.append((payload, [os.dup(fd) for fd in fds]))  # they may be closed here until it is sent

    def _sent(self, payload: bytes, fds: Sequence[int]) -> bool:
        try:
            socket.send_fds(self._socket, [payload], fds)
        except BlockingIOError:
            return False
        except ConnectionError:  # its end is noticed by whoever reads
            pass
        return True

    def _send_waiting(self) -> None:
        while self._waiting and self._sent(*self._waiting[0]):
            for fd in self._waiting.popleft()[1]:
                os.close(fd)
        if not self._waiting:
            asyncio.get_running_loop().remove_writer(self._socket.fileno())

    def listen(self, on_message: Callable[[Any], None], on_gone: Callable[[], None]) -> None:
        """Have `on_message` called with every message, and `on_gone` when the other side is gone."""
        loop = asyncio.get_running_loop()

        def receive() -> None:
            try:
                message = self._received()
            except BlockingIOError:
                return
            if message is not None:
                on_message(message)
                return
            loop.remove_reader(self._socket.fileno())
            on_gone()

        loop.add_reader(self._socket.fileno(), receive)

    def pause(self) -> None:
        """Leave what comes where it is, until `listen` is called again."""
        asyncio.get_running_loop().remove_reader(self._socket.fileno())

    def _received(self) -> Any:
        """Return the next message, or None if the other side is gone. Raises BlockingIOError if there is none now."""
        try:
            packet, fds, _, _ = socket.recv_fds(self._socket, MAX_BYTES, MAX_FDS, socket.MSG_CMSG_CLOEXEC)
        except ConnectionError:
            return None
        if not packet:
            return None
        numbers, payload = pickle.loads(packet)
        with renumbered(numbers, fds):
            return pickle.loads(payload)

    def close(self) -> None:
        if (fd := self._socket.fileno()) >= 0:
            loop = asyncio.get_running_loop()
            loop.remove_reader(fd)
            loop.remove_writer(fd)
        while self._waiting:
            for dup in self._waiting.popleft()[1]:
                os.close(dup)
        self._socket.close()
