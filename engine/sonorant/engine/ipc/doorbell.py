"""Doorbells wake the process on the other side of a ring, and show its death. They carry no data.

Each side of a ring holds one end of a socket pair. The writer rings after it has published a batch, the reader after it
has made room. Ringing sends one byte. A process that is woken first clears all bytes and then looks at the shared
memory. If a record is published after that look, its byte is still to come, so no wake-up is lost. If the socket is
full, the peer has unread bytes and will look anyway.

When a process dies the kernel closes its end, and the other end reads end-of-file: hence exactly one process may hold
each end.
"""

import select
import socket
from collections.abc import Callable

from sonorant.engine.ipc.inherited import inherited


class Doorbell:
    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._socket = end
        self._poll = select.poll()
        self._poll.register(end, select.POLLIN)
        self.peer_gone = False  # nobody holds the other end any more

    @classmethod
    def pair(cls) -> tuple["Doorbell", "Doorbell"]:
        one, other = socket.socketpair()
        return cls(one), cls(other)

    def ring(self) -> None:
        try:
            self._socket.send(b"\0")
        except BlockingIOError:
            pass
        except (BrokenPipeError, ConnectionResetError):
            self.peer_gone = True

    def clear(self) -> None:
        """Forget the rings so far. Look at the shared memory after this, never before."""
        try:
            while (received := len(self._socket.recv(4096))) == 4096:
                pass
        except BlockingIOError:
            return
        except ConnectionResetError:
            received = 0
        self.peer_gone = self.peer_gone or received == 0

    def wait(self, timeout_s: float | None = None) -> None:
        """Block until the peer rings, has rung since the last `clear`, or is gone."""
        self._poll.poll(None if timeout_s is None else max(0.0, timeout_s) * 1000)

    def fileno(self) -> int:
        """Readable when there is a ring to clear or the peer is gone."""
        return self._socket.fileno()

    def fds(self) -> tuple[int, ...]:
        return (self._socket.fileno(),)

    def close(self) -> None:
        self._socket.close()

    def __reduce__(self) -> tuple[Callable[[int], "Doorbell"], tuple[int]]:
        return _inherited, (self._socket.fileno(),)  # see sonorant.engine.ipc.inherited


def _inherited(fd: int) -> Doorbell:
    return Doorbell(socket.socket(fileno=inherited(fd)))
