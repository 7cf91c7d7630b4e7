"""Fronts that take places at the same time never take more than there are, in any order of their reads and writes."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonorant.engine.serving.board import Board, Entry, Word
from sonorant.engine.serving.front import Front


class Steps(Board):
    """A board on which a claim pauses between its write and its read, for others to act."""

    def claiming(self, front: int, limit: int) -> Iterator[bool]:
        """The two halves of `Entry.claim`."""
        entry = Entry(self, 0, front)
        own = entry.own(Word.PLACES)
        entry.tell(Word.PLACES, own + 1)
        yield False
        has_room = own + 1 + entry.of_others(Word.PLACES) <= limit
        if not has_room:
            entry.tell(Word.PLACES, own)
        yield has_room


@given(
    num_fronts=st.integers(2, 4),
    limit=st.integers(1, 5),
    schedule=st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=60),
)
def test_no_order_lets_in_too_many(num_fronts: int, limit: int, schedule: list[tuple[int, bool]]) -> None:
    with closing(Steps(1, num_fronts)) as board:
        taken = [0] * num_fronts
        claims: dict[int, Iterator[bool]] = {}
        for number, gives_up in schedule:
            front = number % num_fronts
            if front in claims:
                taken[front] += next(claims.pop(front))
            elif gives_up and taken[front]:
                taken[front] -= 1
                Entry(board, 0, front).tell(Word.PLACES, taken[front])
            else:
                claims[front] = board.claiming(front, limit)
                next(claims[front])
            assert sum(taken) <= limit
        for front, claim in claims.items():
            taken[front] += next(claim)
        assert sum(taken) <= limit
        while Entry(board, 0, 0).claim(Word.PLACES, limit):
            taken[0] += 1
        assert sum(taken) == limit, "a place stayed free that nobody can take"


def test_fences_stand_between_the_write_and_the_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(Board(1, 2)) as board:
        entry, seen = Entry(board, 0, 0), list[str]()
        monkeypatch.setattr(entry, "tell", lambda *_: seen.append("write"))
        monkeypatch.setattr(board, "_fence", lambda: seen.append("fence"))
        monkeypatch.setattr(entry, "of_others", lambda *_: len(seen.append("read") or ""))
        assert entry.claim(Word.PLACES, 5)
        assert seen == ["write", "fence", "read"]


def test_each_pair_has_numbers_of_its_own_and_a_dead_front_is_forgotten() -> None:
    with closing(Board(2, 3)) as board:
        for pair in range(2):
            for front in range(3):
                for word in Word:
                    board.put(pair, front, word, 100 * pair + 10 * front + word)
        assert Entry(board, 1, 0).of_others(Word.PLACES, Word.KEPT) == 110 + 111 + 120 + 121
        board.set_waiting(1, True)
        board.clear(1)
        assert not board.waits(1)
        assert [Entry(board, pair, 1).own(word) for pair in range(2) for word in Word] == [0] * 8
        assert Entry(board, 1, 1).of_others(Word.STORED) == 102 + 122


def test_whoever_waits_for_room_is_told_of_it() -> None:
    with closing(Board(1, 2)) as board:
        told = 0

        def tell() -> None:
            nonlocal told
            told += 1

        one, other = Front(board, 0, tell_room=tell), Front(board, 1)
        one.room_freed()
        assert told == 0
        other.set_waiting(True)
        one.room_freed()
        assert told == 1
        other.set_waiting(False)
        one.set_waiting(True)
        one.room_freed()
        assert told == 1, "its own waiting is its own affair"


def test_alone_no_memory_is_shared() -> None:
    board = Board()
    assert board.fds() == ()
    entry = Front(board).entry(0)
    assert entry.claim(Word.PLACES, 1) and not entry.claim(Word.PLACES, 1)
    board.close()
