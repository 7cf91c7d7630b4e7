"""Deaths judged for several server processes end as if all streams were of one, and nobody waits for one for ever."""

from hypothesis import given
from hypothesis import strategies as st

from sonorant.engine.ipc.server_ids import new_ids, server_of
from sonorant.engine.workers.judge import Inquiries, Suspects

PAIR = 0


def ids(num_servers: int, count: int) -> list[int]:
    servers = [new_ids(server) for server in range(num_servers)]
    return [next(servers[number % num_servers]) for number in range(count)]


def answered(inquiries: Inquiries, running: set[int], heard: set[int], num_servers: int) -> None:
    inquiries.open(PAIR, range(num_servers))
    for server in range(num_servers):
        assert inquiries.judge(PAIR) is None
        live = sorted(stream_id for stream_id in running if server_of(stream_id) == server)
        assert inquiries.answer(PAIR, server, live, heard & set(live))


@given(st.integers(1, 20), st.integers(1, 4), st.data())
def test_whoever_kills_is_found_whichever_server_it_is_of(count: int, num_servers: int, data: st.DataObject) -> None:
    """As `Suspects` alone does for the same streams."""
    streams = ids(num_servers, count)
    guilty = data.draw(st.sampled_from(streams))
    heard = set(data.draw(st.lists(st.sampled_from(streams), unique=True)))
    inquiries, open_streams, num_deaths = Inquiries(), set(streams), 0
    running = set(streams)
    while guilty in open_streams:
        if guilty in running or not running:
            num_deaths += 1
            answered(inquiries, running, heard, num_servers)
            running.clear()
            ruling = inquiries.judge(PAIR)
            assert ruling is not None and ruling.culprit in (0, guilty)
            if ruling.culprit:
                open_streams.discard(guilty)
                inquiries.acquit([guilty])
        else:
            inquiries.acquit(running)
        for server, released in inquiries.released().items():
            assert all(server_of(stream_id) == server for stream_id in released)
            running.update(released)
    assert num_deaths <= 3 + count.bit_length()
    while running != open_streams:
        inquiries.acquit(running)
        running.update(*inquiries.released().values())


@given(st.lists(st.integers(0, 11), unique=True, min_size=1), st.sets(st.integers(0, 11)))
def test_the_answers_are_judged_together(live: list[int], heard: set[int]) -> None:
    streams = ids(3, 12)
    inquiries, suspects = Inquiries(), Suspects()
    answered(inquiries, {streams[n] for n in live}, {streams[n] for n in heard}, 3)
    inquiries.judge(PAIR)
    in_order = sorted(streams[n] for n in live)
    suspects.on_death(in_order, was_heard={streams[n] for n in heard}.__contains__)
    released = {stream_id for each in inquiries.released().values() for stream_id in each}
    assert released == set(in_order).difference(*suspects.held)
    assert not inquiries.released(), "each is released once"


def test_a_server_that_leaves_is_not_waited_for_and_its_streams_hold_nobody_up() -> None:
    inquiries = Inquiries()
    (first, second), (other,) = [next(new_ids(0)), next(new_ids(0)) + 1], [next(new_ids(1))]
    inquiries.open(PAIR, [0, 1])
    inquiries.answer(PAIR, 1, [other], [])
    inquiries.answer(PAIR, 0, [first, second], [])
    inquiries.judge(PAIR)
    held = inquiries.released()  # one by one, as none was heard: the first in the order of the answers
    assert held == {1: [other]}
    inquiries.acquit([other])
    assert inquiries.released() == {0: [first]}
    inquiries.open(PAIR, [0, 1])
    inquiries.answer(PAIR, 1, [], [])
    assert inquiries.judge(PAIR) is None
    inquiries.leave(0)
    ruling = inquiries.judge(PAIR)
    assert ruling is not None and not ruling.is_narrower
    assert not inquiries.released()


def test_what_ends_before_the_judgement_is_no_suspect() -> None:
    inquiries, (stream, other) = Inquiries(), ids(1, 2)
    inquiries.open(PAIR, [0, 1])
    inquiries.answer(PAIR, 0, [stream, other], [])
    inquiries.acquit([stream])
    inquiries.answer(PAIR, 1, [], [])
    inquiries.judge(PAIR)
    assert inquiries.released() == {0: [other]}


def test_nobody_is_blamed_for_an_empty_pair() -> None:
    inquiries = Inquiries()
    inquiries.open(PAIR, [])
    ruling = inquiries.judge(PAIR)
    assert ruling is not None and (ruling.culprit, ruling.is_narrower) == (0, False)
    assert inquiries.judge(PAIR) is None, "it is closed"


def test_a_death_that_must_be_judged_is_judged_with_the_answers_that_have_come() -> None:
    inquiries, (stream, other) = Inquiries(), ids(2, 2)
    inquiries.open(PAIR, [0, 1])
    inquiries.answer(PAIR, 0, [stream], [])
    assert inquiries.judge(PAIR) is None and inquiries.judge(PAIR, must=True) is not None
    assert inquiries.released() == {0: [stream]}
    assert not inquiries.answer(PAIR, 1, [other], []), "too late"
