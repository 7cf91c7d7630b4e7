"""Where a process listens. Ports are opened before anything else, so that one in use is reported at once."""

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager

BACKLOG = 1024  # connections that wait to be accepted


class CannotListen(Exception):
    def __init__(self, address: str, error: Exception, flag: str) -> None:
        why = _why(address, error)
        self.is_taken = why.errno == errno.EADDRINUSE
        taken = "is another server running there? " if self.is_taken else ""
        super().__init__(f"cannot listen on {address} ({why.strerror or why}); {taken}Choose an address with {flag}")


def listening_socket(address: str, flag: str, *, shared: bool = False) -> socket.socket:
    """Listen on `HOST:PORT`, with brackets around an IPv6 address. `shared`: other processes may listen there, too.

    Raises CannotListen, which names the `flag`.
    """
    try:
        return _listening(address, shared)
    except OSError as error:
        raise CannotListen(address, error, flag) from error


@contextmanager
def reserved_port(address: str, flag: str) -> Iterator[str]:
    """Keep a port for processes that share it, without listening, and yield its HOST:PORT. Raises CannotListen."""
    family, (host, port) = _of_socket(address)
    with socket.socket(family) as kept:
        try:
            if port:
                _listening(address).close()  # fails if another server is there, even if that shares its port
            kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            kept.bind((host, port))
        except OSError as error:
            raise CannotListen(address, error, flag) from error
        yield f"{address.rpartition(':')[0]}:{kept.getsockname()[1]}"


def _listening(address: str, shared: bool = False) -> socket.socket:
    family, where = _of_socket(address)
    # `[::]` takes IPv4, too, as gRPC's ports do.
    both = family is socket.AF_INET6 and socket.has_dualstack_ipv6()
    return socket.create_server(where, family=family, backlog=BACKLOG, reuse_port=shared, dualstack_ipv6=both)


def _of_socket(address: str) -> tuple[socket.AddressFamily, tuple[str, int]]:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    return socket.AF_INET6 if ":" in host else socket.AF_INET, (host, int(port))


def _why(address: str, error: Exception) -> OSError:
    """Find out why by trying to listen once more: gRPC's own error does not name the cause."""
    if isinstance(error, OSError):
        return error
    try:
        _listening(address).close()
    except OSError as why:
        return why
    return OSError(str(error))
