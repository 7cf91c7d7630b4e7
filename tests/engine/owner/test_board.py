"""Server processes together never take more places than there are."""

from collections import Counter
from contextlib import closing

from hypothesis import given
from hypothesis import strategies as st

from sonorant.engine.owner.board import Board, BoardWord, Entry
from sonorant.engine.serving.owner_link import ServerProcess
from tests.engine.ipc.other_side import other_side


@given(
    num_servers=st.integers(1, 4),
    limit=st.integers(1, 5),
    steps=st.lists(
        st.tuples(st.integers(0, 3), st.booleans(), st.sampled_from([BoardWord.PLACES, BoardWord.KEPT])), max_size=60
    ),
)
def test_a_place_is_taken_as_long_as_there_is_one(
    num_servers: int, limit: int, steps: list[tuple[int, bool, BoardWord]]
) -> None:
    with closing(Board(1, num_servers)) as board:
        taken = [Counter[BoardWord]() for _ in range(num_servers)]
        for number, gives_up, word in steps:
            server = number % num_servers
            entry, own = Entry(board, 0, server), taken[server]
            if gives_up:
                own[word] = max(0, own[word] - 1)
                entry.tell(word, own[word])
            elif word is BoardWord.KEPT:  # these are among the server process's own places
                own[word] = min(own[word] + 1, own[BoardWord.PLACES])
                entry.tell(word, own[word])
            else:
                num_all = own[word] + sum(other.total() for other in taken if other is not own)
                has_room = entry.claim(word, limit, BoardWord.KEPT)
                assert has_room == (num_all < limit)
                own[word] += has_room
            assert entry.own(word) == own[word]


def test_each_pair_has_numbers_of_its_own_and_a_dead_server_is_forgotten() -> None:
    with closing(Board(2, 3)) as board:
        for pair in range(2):
            for server in range(3):
                for word in BoardWord:
                    Entry(board, pair, server).tell(word, 100 * pair + 10 * server + word)
        assert Entry(board, 1, 0).of_others(BoardWord.PLACES, BoardWord.KEPT) == 110 + 111 + 120 + 121
        board.set_waiting(1, True)
        board.clear(1)
        assert not board.any_waits(but=0)
        assert [Entry(board, pair, 1).own(word) for pair in range(2) for word in BoardWord] == [0] * 8
        assert Entry(board, 1, 1).of_others(BoardWord.STORED) == 102 + 122


def test_whoever_waits_for_room_is_told_of_it() -> None:
    with closing(Board(1, 2)) as board:
        told = 0

        def tell() -> None:
            nonlocal told
            told += 1

        one, other = ServerProcess(board, 0, tell_room=tell), ServerProcess(board, 1)
        one.room_freed()
        assert told == 0
        other.set_waiting(True)
        one.room_freed()
        assert told == 1
        other.set_waiting(False)
        one.set_waiting(True)
        one.room_freed()
        assert told == 1, "its own waiting is its own affair"


def test_another_process_sees_the_same_numbers() -> None:
    with closing(Board(2, 2)) as board, closing(other_side(board)) as there:
        assert Entry(board, 1, 0).claim(BoardWord.PLACES, 1)
        assert not Entry(there, 1, 1).claim(BoardWord.PLACES, 1)
        assert Entry(there, 1, 1).of_others(BoardWord.PLACES) == 1
