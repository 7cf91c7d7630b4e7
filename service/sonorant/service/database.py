"""A connection to PostgreSQL that reconnects by itself. It blocks, serves a single thread, and knows no tables.

Every failure of the database is raised as DatabaseGone. After a failed connect, calls fail at once for RETRY_S, so that
nobody waits for a host that does not answer.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

log = logging.getLogger(__name__)

RETRY_S = 1.0
# Timeouts to connect (s) and for an answer (ms); with keepalives, the kernel notices a host that has gone silent.
_OPTIONS: dict[str, Any] = {
    "connect_timeout": 3,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 5000,
    "application_name": "sonorant",
    "options": "-c statement_timeout=5000 -c lock_timeout=5000 -c idle_in_transaction_session_timeout=10000",
}


class DatabaseGone(Exception):
    """The database cannot be reached, or a statement failed."""


class PsycopgMissing(Exception):
    def __init__(self) -> None:
        super().__init__("voices in PostgreSQL need psycopg: pip install 'sonorant-server[postgres]'")


def without_password(url: str) -> str:
    """Return the URL without its password and parameters, to be shown to people."""
    scheme, _, rest = url.partition("://")
    user, at, host = rest.rpartition("@")
    return f"{scheme}://{user.partition(':')[0]}{at}{host.partition('?')[0]}"


class Database:
    def __init__(self, url: str, set_up: Callable[[Any], None]) -> None:
        """Does not connect yet. `set_up` creates missing tables on each new connection. Raises PsycopgMissing."""
        try:
            import psycopg
        except ImportError as error:
            raise PsycopgMissing from error
        self._psycopg = psycopg
        self._url = url
        self._set_up = set_up
        self._connection: Any = None
        self._gone_s = -RETRY_S

    def run(self, work: Callable[[Any], Any]) -> Any:
        """Run `work` on the connection, in one transaction, and return its result.

        Raises DatabaseGone, or what `work` raises.

        A broken connection is noticed only by the first statement on it; then `work` runs again on a new connection.
        """
        fresh = self._connection is None
        try:
            return self._once(work)
        except DatabaseGone:
            if fresh or self._connection is not None:
                raise
            return self._once(work)

    def _once(self, work: Callable[[Any], Any]) -> Any:
        with self._failures():
            connection = self._connected()
            with connection.transaction():
                return work(connection)

    def _connected(self) -> Any:
        if self._connection is None:
            if time.monotonic() - self._gone_s < RETRY_S:
                raise DatabaseGone("the database could not be reached a moment ago")
            connection = self._psycopg.connect(self._url, autocommit=True, **_OPTIONS)
            try:
                with connection.transaction():
                    self._set_up(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except self._psycopg.Error as error:
            if self._connection is None:
                self._gone_s = time.monotonic()
            elif self._connection.broken or self._connection.closed:
                self.close()
            said = str(error).strip().splitlines() or [type(error).__name__]
            raise DatabaseGone(said[0]) from error

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
