"""What each server process has taken of each worker pair, in shared memory, so that no two take the same place.

Each server process writes only its own numbers. It holds the lock while it takes a place, and when it notes or looks
whether server processes wait for one.
"""

from contextlib import nullcontext
from enum import IntEnum

import numpy as np

from sonorant.engine.ipc.shared_record import SharedRecord


class BoardWord(IntEnum):
    PLACES = 0  # streams of the talker that have a place
    KEPT = 1  # places kept for utterances between two of their streams
    STORED = 2  # streams of stored codes
    STREAMS = 3  # streams that have not ended


class Board:
    def __init__(self, num_pairs: int = 1, num_servers: int = 1) -> None:
        taken = ("taken", "i8", (num_pairs, num_servers, len(BoardWord)))
        self.__setstate__(SharedRecord(np.dtype([taken, ("waits", "i8", num_servers)])))

    def __setstate__(self, record: SharedRecord) -> None:
        self.lock = self._record = record
        self.taken = record.field("taken").data  # quicker than the array, number by number
        self._waits = record.field("waits").data
        self.num_servers = len(self._waits)

    def set_waiting(self, server: int, waits: bool) -> None:
        with self.lock:
            self._waits[server] = waits

    def any_waits(self, but: int) -> bool:
        """Whether another server process than this one waits for places."""
        with self.lock:
            return any(waits for server, waits in enumerate(self._waits) if server != but)

    def clear(self, server: int) -> None:
        """Forget a server process that has died; nothing of it runs any more."""
        with self.lock:
            self._record.field("taken")[:, server] = 0
            self._waits[server] = False

    def close(self) -> None:
        del self.taken, self._waits
        self._record.close()

    def __getstate__(self) -> SharedRecord:
        return self._record


class Entry:
    """What one server process has taken of one pair, and what the others have."""

    def __init__(self, board: Board, pair: int, server: int) -> None:
        self._taken, self._lock = board.taken, board.lock
        self._pair = pair
        self._server = server
        self._others = tuple(other for other in range(board.num_servers) if other != server)

    def tell(self, word: BoardWord, value: int) -> None:
        self._taken[self._pair, self._server, word] = value

    def own(self, word: BoardWord) -> int:
        return self._taken[self._pair, self._server, word]

    def of_others(self, *words: BoardWord) -> int:
        return sum(self._taken[self._pair, other, word] for other in self._others for word in words)

    def claim(self, word: BoardWord, limit: int, *also: BoardWord) -> bool:
        """Take one more, unless all server processes have as many as the limit. Of others, `also` count as well."""
        with self._lock if self._others else nullcontext():  # without others, nobody else takes any
            own = self._taken[self._pair, self._server, word]
            is_free = own < limit - self.of_others(word, *also)
            if is_free:
                self._taken[self._pair, self._server, word] = own + 1
        return is_free
