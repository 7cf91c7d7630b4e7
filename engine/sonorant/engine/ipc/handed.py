"""What one process hands to another: values, with the file descriptors and the memory that they hold.

Descriptors go beside the bytes of a value: over a socket (`Packets`), or to a child that starts.
"""

import asyncio
import io
import mmap
import os
import pickle
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

MAX_BYTES = 2**20
MAX_FDS = 253  # the kernel's own limit


class Descriptor(int):
    """A file descriptor in the state of a value. The other process gets its own number for it."""


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.fds: list[int] = []

    def persistent_id(self, value: object) -> int | None:
        if not isinstance(value, Descriptor):
            return None
        self.fds.append(int(value))
        return len(self.fds) - 1


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, fds: Sequence[int]) -> None:
        super().__init__(file)
        self._fds = fds

    def persistent_load(self, number: int) -> int:
        os.set_inheritable(self._fds[number], False)
        return self._fds[number]


def packed(value: object) -> tuple[bytes, list[int]]:
    """Return the bytes of a value, and the descriptors that must go along, in order."""
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(value)
    return file.getvalue(), pickler.fds


def unpacked(data: bytes, fds: Sequence[int]) -> Any:
    """Return the value; it owns the descriptors from now on, and children do not inherit them."""
    return _Unpickler(io.BytesIO(data), fds).load()


class SocketEnd:
    """One end of a socket pair, which a child can get."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end

    def __getstate__(self) -> Descriptor:
        return Descriptor(self.socket.fileno())

    def __setstate__(self, fd: int) -> None:
        self.socket = socket.socket(fileno=fd)


class SharedMemory:
    """Memory without a name: nothing can be left behind, as it is freed with the last process that holds it."""

    def __init__(self, num_bytes: int) -> None:
        fd = os.memfd_create("sonorant")
        try:
            os.ftruncate(fd, num_bytes)
            self.__setstate__(fd)
        except OSError:
            os.close(fd)
            raise

    def __getstate__(self) -> Descriptor:
        return Descriptor(self._fd)

    def __setstate__(self, fd: int) -> None:
        self._fd = fd
        self._mapping = mmap.mmap(fd, os.fstat(fd).st_size)
        self._memory = memoryview(self._mapping)
        self._words = self._memory.cast("Q")  # one aligned 64-bit store or load per access

    def close(self) -> None:
        self._words.release()
        self._memory.release()
        self._mapping.close()
        os.close(self._fd)


class Packets:
    """One end of a socket pair for messages. Each is one packet, so it arrives whole. Nothing is lost, and `send` never
    blocks: what the socket does not take waits. Belongs to one event loop.
    """

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._socket = end
        self._waiting: deque[tuple[bytes, list[int]]] = deque()

    @staticmethod
    def pair() -> tuple[socket.socket, socket.socket]:
        """Return the two ends of a socket pair, of which one can be passed to another process."""
        return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def send(self, message: object) -> None:
        """Send a message and the file descriptors that it holds. Does nothing if the other side is gone."""
        payload, fds = packed(message)
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
        except ConnectionError:  # the reader notices that it has ended
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
        return unpacked(packet, fds) if packet else None

    def close(self) -> None:
        if (fd := self._socket.fileno()) >= 0:
            loop = asyncio.get_running_loop()
            loop.remove_reader(fd)
            loop.remove_writer(fd)
        while self._waiting:
            for dup in self._waiting.popleft()[1]:
                os.close(dup)
        self._socket.close()
