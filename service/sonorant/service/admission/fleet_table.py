"""What API keys use on all servers together, in PostgreSQL: sessions as leases, text as a budget per minute.

It blocks and belongs to one thread. All times are the database's, so the servers' clocks need not agree. All methods
but `close` raise DatabaseGone.
"""

from collections.abc import Mapping
from typing import Any

from sonorant.service.admission.text_budget import WINDOW_S
from sonorant.service.database import Database

LEASE_S = 30  # after this time, the sessions of a server that is gone are free again
_SCHEMA = """
CREATE TABLE IF NOT EXISTS sonorant_sessions (
    caller TEXT COLLATE "C" NOT NULL,
    server TEXT NOT NULL,
    num_sessions INTEGER NOT NULL,
    expire TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (caller, server)
);
CREATE TABLE IF NOT EXISTS sonorant_text (caller TEXT COLLATE "C" PRIMARY KEY, paid_off TIMESTAMPTZ NOT NULL);
"""
_LOCK = 0x536F6E6F  # the first key of our advisory locks; the second stands for the caller
_LEASE = (
    f"INSERT INTO sonorant_sessions VALUES (%s, %s, %s, now() + interval '{LEASE_S} s') ON CONFLICT (caller, server) "
    "DO UPDATE SET num_sessions = excluded.num_sessions, expire = excluded.expire"
)


class FleetTable:
    def __init__(self, url: str, server: str) -> None:
        """`server`: a name that no other server has. Raises PsycopgMissing."""
        self._server = server
        self._database = Database(url, _set_up)

    def lease(self, caller: str, num_sessions: int, limit: int) -> bool:
        """Lease so many sessions for this server, and return True, if the total of all servers is within the limit."""

        def take(connection: Any) -> bool:
            connection.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (_LOCK, caller))
            (elsewhere,) = connection.execute(
                "SELECT coalesce(sum(num_sessions), 0) FROM sonorant_sessions "
                "WHERE caller = %s AND server <> %s AND expire > now()",
                (caller, self._server),
            ).fetchone()
            if elsewhere + num_sessions > limit:
                return False
            connection.execute(_LEASE, (caller, self._server, num_sessions))
            return True

        fits: bool = self._database.run(take)
        return fits

    def renew_one(self, caller: str, num_sessions: int) -> None:
        """Write how many sessions one caller has on this server."""
        self._database.run(lambda connection: connection.execute(_LEASE, (caller, self._server, num_sessions)))

    def renew(self, num_sessions: Mapping[str, int]) -> None:
        """Write how many sessions each caller has on this server, and delete the leases of servers that are gone."""

        def tell(connection: Any) -> None:
            connection.execute(
                f"DELETE FROM sonorant_sessions WHERE server = %s OR expire < now() - interval '{LEASE_S} s'",
                (self._server,),
            )
            with connection.cursor() as cursor:
                cursor.executemany(_LEASE, [(caller, self._server, num) for caller, num in num_sessions.items()])

        self._database.run(tell)

    def borrow(self, caller: str, num_chars: int, per_minute: int) -> float:
        """Take characters from the budget of all servers. Return 0, or the seconds until they fit, and take none."""
        cost_s = num_chars * WINDOW_S / per_minute

        def take(connection: Any) -> float:
            row = connection.execute(
                "INSERT INTO sonorant_text AS t VALUES (%s, now() + make_interval(secs => %s)) ON CONFLICT (caller) "
                "DO UPDATE SET paid_off = greatest(t.paid_off, now()) + make_interval(secs => %s) "
                "WHERE greatest(t.paid_off, now()) + make_interval(secs => %s) <= now() + make_interval(secs => %s) "
                "RETURNING 1",
                (caller, cost_s, cost_s, cost_s, WINDOW_S + 1e-3),
            ).fetchone()
            if row is not None:
                return 0.0
            (paid_off_s,) = connection.execute(
                "SELECT extract(epoch FROM paid_off - now()) FROM sonorant_text WHERE caller = %s", (caller,)
            ).fetchone()
            return max(1e-3, float(paid_off_s) + cost_s - WINDOW_S)

        late_s: float = self._database.run(take)
        return late_s

    def paid_off_in_s(self, caller: str) -> float:
        """Return the seconds until what was borrowed is paid off, on all servers."""

        def look(connection: Any) -> float:
            row = connection.execute(
                "SELECT extract(epoch FROM paid_off - now()) FROM sonorant_text WHERE caller = %s", (caller,)
            ).fetchone()
            return max(0.0, float(row[0])) if row is not None else 0.0

        paid_off_s: float = self._database.run(look)
        return paid_off_s

    def close(self) -> None:
        self._database.close()


def _set_up(connection: Any) -> None:
    if connection.execute("SELECT to_regclass('sonorant_text')").fetchone()[0] is None:
        connection.execute("SELECT pg_advisory_xact_lock(%s, 0)", (_LOCK,))
        connection.execute(_SCHEMA)
