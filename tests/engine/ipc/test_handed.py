"""Messages between processes arrive whole, in order and with their file descriptors, and sending never blocks."""

import asyncio
import gc
import os
from typing import Any

import pytest

from sonorant.engine.ipc.handed import Packets
from sonorant.engine.ipc.ring import Ring


class Received:
    def __init__(self, packets: Packets) -> None:
        self.messages: list[Any] = []
        self.is_over = asyncio.Event()
        self._came = asyncio.Event()
        packets.listen(self._take, self.is_over.set)

    def _take(self, message: Any) -> None:
        self.messages.append(message)
        self._came.set()

    async def until(self, count: int) -> list[Any]:
        async with asyncio.timeout(60):
            while len(self.messages) < count:
                self._came.clear()
                await self._came.wait()
        return self.messages


@pytest.fixture
async def ends() -> Any:
    one, other = (Packets(end) for end in Packets.pair())
    yield one, other
    one.close()
    other.close()


async def test_a_shared_ring_travels_with_its_message(ends: tuple[Packets, Packets]) -> None:
    one, other = ends
    ring = Ring(1024)
    one.send(("for you", ring))
    ((text, received),) = await Received(other).until(1)
    ring.write([b"hello"])
    ring.publish()
    assert (text, received.read()) == ("for you", b"hello")
    received.close()
    ring.close()


async def test_what_the_socket_does_not_take_waits_and_keeps_its_files(ends: tuple[Packets, Packets]) -> None:
    one, other = ends
    gc.collect()  # closes files that earlier tests have left, and not while these are counted
    files = len(os.listdir("/proc/self/fd"))
    for number in range(2000):
        ring = Ring(1024)
        ring.write([number.to_bytes(2, "big")])
        ring.publish()
        one.send((number, ring, bytes(500)) if number % 100 == 0 else (number, None, bytes(500)))
        ring.close()
    messages = await Received(other).until(2000)
    assert [number for number, _, _ in messages] == list(range(2000))
    for number, received, _ in messages:
        if received is not None:
            assert received.read() == number.to_bytes(2, "big")
            received.close()
    one.send("more")
    assert len(os.listdir("/proc/self/fd")) >= files


async def test_a_pause_keeps_what_comes(ends: tuple[Packets, Packets]) -> None:
    one, other = ends
    first = Received(other)
    one.send(1)
    await first.until(1)
    other.pause()
    one.send(2)
    for _ in range(3):  # turns of the loop, each of which would bring it
        await asyncio.sleep(0)
    assert first.messages == [1]
    assert await Received(other).until(1) == [2]


async def test_a_peer_that_is_gone_is_noticed_and_sending_to_it_does_nothing() -> None:
    one, other = (Packets(end) for end in Packets.pair())
    received = Received(other)
    one.send("last")
    one.close()
    assert await received.until(1) == ["last"]
    await asyncio.wait_for(received.is_over.wait(), 60)
    other.send("nobody hears this")
    other.close()
