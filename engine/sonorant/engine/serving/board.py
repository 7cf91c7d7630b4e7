"""What each front has taken of each worker pair: numbers in shared memory, so that no two fronts take the same place.

    word   of front f at pair p: places, kept places, streams of stored codes, streams of any kind
           then of each front: whether it waits for places

Each front writes only its own numbers. To take a place, it first writes that it has it, and then reads what the others
have. If all together have too many, it takes its word back. Between the write and the read stands a fence, so of two
fronts that take the last place at the same moment at least one sees the other. Both may see it; then the place stays
free for whoever comes next.
"""

import mmap
import os
from collections.abc import Callable
from enum import IntEnum

from sonorant.engine.ipc.inherited import inherited
from sonorant.engine.ipc.ring import Fence


class Word(IntEnum):
    PLACES = 0  # streams of the talker that have a place
    KEPT = 1  # places kept for utterances between two of their streams
    STORED = 2  # streams of stored codes
    STREAMS = 3  # streams that have not ended


class Board:
    """With one front, the numbers are in memory of its own."""

    def __init__(self, num_pairs: int = 1, num_fronts: int = 1) -> None:
        num_bytes = 8 * (num_pairs * len(Word) + 1) * num_fronts
        if num_fronts == 1:
            self._attach(num_pairs, num_fronts, None, bytearray(num_bytes))
            return
        fd = os.memfd_create("sonorant-board")
        try:
            os.ftruncate(fd, num_bytes)
            self._attach(num_pairs, num_fronts, fd, mmap.mmap(fd, num_bytes))
        except OSError:
            os.close(fd)
            raise

    def _attach(self, num_pairs: int, num_fronts: int, fd: int | None, memory: bytearray | mmap.mmap) -> None:
        self.num_fronts = num_fronts
        self._num_pairs = num_pairs
        self._fd = fd
        self._memory = memory
        self._words = memoryview(memory).cast("Q")  # one aligned 64-bit store or load per access
        self._fence = Fence()

    def get(self, pair: int, front: int, word: Word) -> int:
        return self._words[(pair * self.num_fronts + front) * len(Word) + word]

    def put(self, pair: int, front: int, word: Word, value: int) -> None:
        self._words[(pair * self.num_fronts + front) * len(Word) + word] = value

    def fence(self) -> None:
        self._fence()

    def set_waiting(self, front: int, waits: bool) -> None:
        self._words[self._waiting(front)] = waits

    def waits(self, front: int) -> bool:
        return bool(self._words[self._waiting(front)])

    def clear(self, front: int) -> None:
        """Forget a front that has died; nothing of it runs any more."""
        for pair in range(self._num_pairs):
            for word in Word:
                self.put(pair, front, word, 0)
        self.set_waiting(front, False)

    def _waiting(self, front: int) -> int:
        return self._num_pairs * self.num_fronts * len(Word) + front

    def fds(self) -> tuple[int, ...]:
        return () if self._fd is None else (self._fd,)

    def close(self) -> None:
        self._words.release()
        if isinstance(self._memory, mmap.mmap):
            self._memory.close()
        for fd in self.fds():
            os.close(fd)

    def __reduce__(self) -> "tuple[Callable[[int, int, int], Board], tuple[int, int, int]]":
        assert self._fd is not None, "another process has a board that it shares with nobody"
        return _inherited, (self._num_pairs, self.num_fronts, self._fd)  # see sonorant.engine.ipc.inherited


def _inherited(num_pairs: int, num_fronts: int, fd: int) -> Board:
    board, fd = object.__new__(Board), inherited(fd)
    board._attach(num_pairs, num_fronts, fd, mmap.mmap(fd, os.fstat(fd).st_size))
    return board


class Entry:
    """What one front has taken of one pair, and what the others have."""

    def __init__(self, board: Board, pair: int, front: int) -> None:
        self._board = board
        self._pair = pair
        self._front = front
        self._others = tuple(other for other in range(board.num_fronts) if other != front)

    def tell(self, word: Word, value: int) -> None:
        self._board.put(self._pair, self._front, word, value)

    def own(self, word: Word) -> int:
        return self._board.get(self._pair, self._front, word)

    def of_others(self, *words: Word) -> int:
        return sum(self._board.get(self._pair, other, word) for other in self._others for word in words)

    def claim(self, word: Word, limit: int, *also: Word) -> bool:
        """Take one more, unless all fronts then have more than the limit. Of others, `also` count as well."""
        own = self.own(word)
        self.tell(word, own + 1)
        self._board.fence()
        if own + 1 + self.of_others(word, *also) <= limit:
            return True
        self.tell(word, own)
        return False
