"""What a server process does with deaths that its owner judges. The owner is played by the test."""

import asyncio
from typing import Any

import pytest

from sonorant.engine.ipc.handed import Packets
from sonorant.engine.owner.board import Board
from sonorant.engine.owner.link_messages import Acquitted, Lost, Welcome
from sonorant.engine.serving.owner_link import OwnerLink, Verdicts


class Sent:
    """The packets to the owner."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    def send(self, message: object) -> None:
        self.messages.append(message)


class Stream:
    def __init__(self, stream_id: int, was_heard: bool = False) -> None:
        self.stream_id, self.was_heard = stream_id, was_heard


PAIR = 3


class Judged:
    """A judge, what it sent, and its verdicts."""

    def __init__(self) -> None:
        self.sent = Sent()
        self.judge: Any = Verdicts(self.sent)  # type: ignore[arg-type]
        self.culprits: list[Stream | None] = []
        self.num_released = 0
        self.judge.on_released = self._on_released

    def _on_released(self) -> None:
        self.num_released += 1

    def die(self, *streams: Stream, comes_back: bool = True) -> None:
        self.judge.on_death(PAIR, streams, comes_back=comes_back, then=self.culprits.append)


def test_streams_wait_for_the_verdict_and_then_for_their_turn() -> None:
    it, (one, other) = Judged(), (Stream(1, was_heard=True), Stream(2))
    it.die(one, other)
    assert it.sent.messages == [Lost(3, (1, 2), (1,))]
    assert it.judge.held == {one, other} and it.culprits == []
    it.judge.on_judged(3, 0)
    assert it.culprits == [None] and one in it.judge.held
    it.judge.on_release([1, 99])
    assert it.judge.held == {other} and it.num_released == 1
    it.judge.acquit([one, Stream(5)])
    it.judge.acquit([one])
    assert it.sent.messages[1:] == [Acquitted((1,))], "once, and only of those that were reported"


def test_the_culprit_is_known_by_its_id_unless_another_server_has_it() -> None:
    for culprit, expected in ((2, 2), (77, None)):
        it, streams = Judged(), (Stream(1), Stream(2))
        it.die(*streams)
        it.judge.on_judged(3, culprit)
        assert [each and each.stream_id for each in it.culprits] == [expected]


def test_a_pair_that_does_not_come_back_is_not_asked_about() -> None:
    it = Judged()
    it.die(Stream(1), comes_back=False)
    assert it.culprits == [None] and it.sent.messages == []


def test_a_death_while_the_one_before_is_not_judged_leaves_nobody_behind() -> None:
    it = Judged()
    it.die(Stream(1))
    it.die(Stream(2))
    assert it.culprits == [None] and len(it.sent.messages) == 2
    it.judge.on_judged(3, 0)
    it.judge.on_judged(3, 0)
    assert it.culprits == [None, None]


def test_without_the_owner_all_go_on() -> None:
    it, stream = Judged(), Stream(1)
    it.die(stream)
    it.judge.release_all()
    assert it.culprits == [None] and not it.judge.held and it.num_released == 1


@pytest.mark.parametrize("is_welcome", (True, False))
async def test_a_process_that_is_stopped_in_the_turn_in_which_its_owner_speaks_or_dies_just_stops(
    is_welcome: bool,
) -> None:
    faults: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
    theirs, ours = Packets.pair()
    joining = asyncio.create_task(OwnerLink.open(ours))
    await asyncio.sleep(0)
    if is_welcome:
        Packets(theirs).send(Welcome(0, 1, Board(), (), ()))
    else:
        theirs.close()
    # Seen in the same turn as the socket, and taken before it, as the end of a process's stdin may be.
    asyncio.get_running_loop().call_soon(joining.cancel)
    with theirs, pytest.raises(asyncio.CancelledError):
        await joining
    assert not faults
