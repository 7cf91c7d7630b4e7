"""A listener at Home Assistant's door."""

import asyncio
from typing import Any

from wyoming.audio import AudioChunk, AudioStart
from wyoming.client import AsyncTcpClient
from wyoming.event import Event

from tests.gateway.harness import Door

LISTEN = {"wyoming_listen": "127.0.0.1:0"}


def client(door: Door) -> AsyncTcpClient:
    return AsyncTcpClient("127.0.0.1", door.wyoming_port)


async def until(connection: AsyncTcpClient, kind: Any) -> list[Event]:
    events: list[Event] = []
    async with asyncio.timeout(60):
        while not (events and kind.is_type(events[-1].type)):
            event = await connection.read_event()
            assert event is not None, events
            events.append(event)
    return events


def audio(events: list[Event]) -> bytes:
    assert AudioStart.is_type(events[0].type) and AudioStart.from_event(events[0]).rate == 24_000
    return b"".join(AudioChunk.from_event(event).audio for event in events if AudioChunk.is_type(event.type))
