"""Who gets which places in the engine, and who goes ahead of whom; that what was begun keeps its place is tested with
utterances."""

from contextlib import AbstractContextManager, ExitStack

import pytest

from sonorant.engine import EngineOverloaded
from sonorant.service.access.api_keys import Caller
from sonorant.service.admission.ledger import Ledger
from sonorant.service.admission.queue import Rank
from sonorant.service.admission.reservations import Reservation, Reservations
from tests.service.fake_engine import FakeEngine
from tests.service.utterance._support import spec

NUM_PLACES = 64
NUM_CALLERS = 8  # so an even share is 8, and 8 places are kept for those who have fewer


class Server:
    def __init__(self) -> None:
        self.engine = FakeEngine(max_streams=NUM_PLACES)
        self._params = spec(self.engine).params
        self._all = Reservations(self.engine, Ledger(), lambda: NUM_CALLERS)  # type: ignore[arg-type]

    def open(self, caller: str, *, resumed: bool = False) -> Reservation:
        reservation = Reservation(self._all.of(Caller(caller)), self._params.checkpoint, resumed=resumed)
        reservation.open(self._params, 1)
        return reservation

    def open_all(self, caller: str, *, resumed: bool = False) -> int:
        """As many as there are for the caller."""
        for num in range(NUM_PLACES + 1):
            try:
                self.open(caller, resumed=resumed)
            except EngineOverloaded:
                return num
        raise AssertionError("no limit")


def waiting(server: Server, caller: str) -> AbstractContextManager[object]:
    """An utterance of this caller waits for a place."""
    return server._all.queues[server._params.checkpoint].ticket(Rank.NEW, Caller(caller).number)


@pytest.mark.parametrize("resumed", [False, True])
async def test_who_has_many_leaves_an_eighth_to_others(resumed: bool) -> None:
    server = Server()
    assert server.open_all("flood", resumed=resumed) == 56
    assert server.open_all("other") == 8


async def test_resumed_utterances_go_ahead_of_others_up_to_an_even_share_of_one_caller() -> None:
    server = Server()
    server.open_all("flood", resumed=True)
    assert server.engine.in_turn == [False] * 8 + [True] * 48
    server.open("other", resumed=True)
    assert server.engine.in_turn[-1] is False


async def test_a_storm_of_many_callers_goes_ahead_and_may_take_all_places() -> None:
    server = Server()
    for number in range(NUM_PLACES):
        server.open(f"caller {number % NUM_CALLERS}", resumed=True)
    assert server.engine.in_turn == [False] * NUM_PLACES


async def test_nobody_takes_the_place_of_a_begun_utterance_by_saying_that_they_resume() -> None:
    server = Server()
    begun = server.open("good")
    (stream,) = server.engine.live.values()
    stream.cancel()  # its first sentence is over, and its place is kept
    for number in range(NUM_PLACES - 1):
        server.open(f"caller {number}", resumed=True)
    with pytest.raises(EngineOverloaded):
        server.open("one more", resumed=True)
    begun.open(spec(server.engine).params, 1)


async def test_who_gives_up_what_has_not_ended_still_has_many() -> None:
    server = Server()
    given_up = [server.open("flood") for _ in range(56)]
    for reservation in given_up:
        reservation.give_up()
    assert server.open_all("flood") == 0
    for stream in list(server.engine.live.values())[:20]:
        stream.cancel()
    assert server.open_all("flood") == 20
    assert server.open_all("other") == 8


async def test_who_waits_and_has_many_does_not_keep_others_from_what_is_kept_for_them() -> None:
    server = Server()
    assert server.open_all("flood") == 56
    with waiting(server, "flood"):
        with pytest.raises(EngineOverloaded):
            server.open("flood")
        assert server.open_all("other") == 8


async def test_a_newcomer_leaves_places_to_those_before_it_and_takes_one_of_more() -> None:
    server = Server()
    opened = [server.open(f"caller {number % NUM_CALLERS}") for number in range(NUM_PLACES)]

    def free(count: int) -> None:
        for reservation, stream in list(zip(opened, server.engine.live.values(), strict=True))[:count]:
            reservation.give_up()
            stream.cancel()
        del opened[:count]

    with ExitStack() as stack:
        for caller in ("a", "a", "b"):
            stack.enter_context(waiting(server, caller))
        free(2)
        for caller in ("new", "a"):
            with pytest.raises(EngineOverloaded):
                server.open(caller)  # a and b go first
        free(1)
        server.open("new")


async def test_who_waits_for_one_checkpoint_is_not_in_the_way_of_another() -> None:
    server = Server()
    for number in range(NUM_PLACES - 1):
        server.open(f"caller {number % NUM_CALLERS}")
    with waiting(server, "a"), waiting(server, "b"):
        with pytest.raises(EngineOverloaded):
            server.open("new")
        other = Reservation(server._all.of(Caller("new")), "another")
        with pytest.raises(EngineOverloaded, match="in use"):
            server.open("new")

        async def open_stream() -> None:
            other.open(server._params, 1)

        await other.open_in_turn(open_stream, 5.0, None)
        assert len(server.engine.live) == NUM_PLACES
        assert server._all.num_waiting == 2


@pytest.mark.parametrize("follows", [False, True])
async def test_background_utterances_leave_the_last_eighth_to_others(follows: bool) -> None:
    server = Server()

    def batch() -> Reservation:
        seen = server._all.of(Caller("batch"))
        return Reservation(seen, server._params.checkpoint, follows=follows, is_background=True)

    for _ in range(NUM_PLACES * 7 // 8):
        begun = batch()
        begun.open(server._params, 1)
    with pytest.raises(EngineOverloaded):
        batch().open(server._params, 1)
    list(server.engine.live.values())[-1].cancel()  # its first sentence is over, and its place is kept
    for number in range(NUM_PLACES // 8):
        server.open(f"caller {number}")
    begun.open(server._params, 1)
    assert server.engine.background.count(True) == NUM_PLACES * 7 // 8 + 1


async def test_utterances_at_another_process_of_the_host_count_as_well() -> None:
    here, there = Server(), Server()
    there._all = Reservations(there.engine, here._all._ledger.of_process(0), lambda: NUM_CALLERS)  # type: ignore[arg-type]
    for _ in range(NUM_PLACES // NUM_CALLERS):
        there.open("flood")
    assert here.open_all("flood") == 56, "an eighth of this engine's places stays free"
    assert here.open_all("other") == 8
