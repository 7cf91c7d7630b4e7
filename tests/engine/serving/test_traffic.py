"""When commands leave: the first opening of a turn at once, all others together, and always in order."""

import asyncio
from collections.abc import Iterator

import pytest

from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.checkpoint.folders import BUILTIN_VOICE_DIR
from sonorant.engine.ipc.messages import Command, EndText, OpenStream, PcmRecord
from sonorant.engine.ipc.ring import Doorbell, Ring, RingInbox, RingOutbox
from sonorant.engine.serving.traffic import Traffic
from sonorant.engine.types import PromptPlan
from sonorant.engine.workers.endpoint import Endpoint
from tests.engine.ipc.other_side import other_side

SAMPLING = load_checkpoint(BUILTIN_VOICE_DIR).default_sampling


class Workers:
    def __init__(self, ring_bytes: int = 65_536) -> None:
        commands, unused = Ring(ring_bytes), Ring(1024)
        reading = other_side(commands)
        bells = *Doorbell.pair(), *Doorbell.pair()
        inbox: RingInbox[PcmRecord] = RingInbox(unused, bells[2])
        self.endpoint = Endpoint(RingOutbox(commands, bells[0]), inbox, (commands, unused, unused), {})
        self._inbox: RingInbox[Command] = RingInbox(reading, bells[1])
        self._ends = commands, unused, reading, *bells

    def taken(self) -> list[int]:
        """The ids of the streams of all commands that have come."""
        return [command.stream_id for command in self._inbox.drain() if isinstance(command, OpenStream | EndText)]

    def close(self) -> None:
        for end in self._ends:
            end.close()


@pytest.fixture
def workers() -> Iterator[Workers]:
    yield (made := Workers())
    made.close()


def traffic_with(workers: Workers) -> Traffic:
    traffic = Traffic("test", lambda records: None, lambda reason: None)
    traffic.attach(workers.endpoint)
    return traffic


def opening(stream_id: int, num_rows: int = 3) -> OpenStream:
    plan = PromptPlan((70_000,) * num_rows, (70_000,) * num_rows, (), True, 1)
    return OpenStream(stream_id, plan, SAMPLING, 1, 0.0)


async def test_the_first_opening_of_a_turn_leaves_at_once(workers: Workers) -> None:
    traffic = traffic_with(workers)
    for _ in range(2):
        traffic.publish(opening(1))
        traffic.publish(opening(2))
        traffic.publish(EndText(1))
        assert workers.taken() == [1]
        await asyncio.sleep(0)
        assert workers.taken() == [2, 1]
        await asyncio.sleep(0)
    traffic.detach()


async def test_an_opening_stays_behind_what_was_sent_before(workers: Workers) -> None:
    traffic = traffic_with(workers)
    traffic.publish(EndText(1))
    traffic.publish(opening(2))
    assert workers.taken() == []
    await asyncio.sleep(0)
    assert workers.taken() == [1, 2]
    traffic.detach()


async def test_an_opening_waits_for_room() -> None:
    workers = Workers(ring_bytes=2048)
    traffic = traffic_with(workers)
    traffic.publish(opening(1))
    await asyncio.sleep(0)
    for stream_id in (2, 3, 4, 5, 6):
        traffic.publish(opening(stream_id))
    assert traffic.backlog
    taken: list[int] = []
    while traffic.backlog:
        taken += workers.taken()
        await asyncio.sleep(0.001)
    assert taken + workers.taken() == [1, 2, 3, 4, 5, 6]
    traffic.detach()
    workers.close()
