"""What the owner hands to a server process when it starts it: settings, and memory that all server processes share."""

from dataclasses import dataclass
from typing import Protocol

from sonorant.service.settings import ServiceConfig


class HostTable(Protocol):
    """Numbers in shared memory that all server processes of a host read and write, each in a row of its own.

    The owner makes it. Pickled for a server process, it names its file descriptors by their numbers, which stay the
    same there; see `sonorant.engine.ipc.inherited`.
    """

    def fds(self) -> tuple[int, ...]: ...

    def clear(self, number: int) -> None:
        """Forget a server process that has ended. Called by the owner, before another process takes the row."""


@dataclass(frozen=True, slots=True)
class Handed:
    config: ServiceConfig
    number: int  # of the server process, from 0
    table: HostTable | None = None

    def fds(self) -> tuple[int, ...]:
        return () if self.table is None else self.table.fds()
