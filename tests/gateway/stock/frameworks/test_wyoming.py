"""The wyoming package, which Home Assistant speaks with."""

from typing import Any

from wyoming.audio import AudioChunk, AudioStop
from wyoming.client import AsyncTcpClient
from wyoming.error import Error
from wyoming.event import Event
from wyoming.info import Describe, Info
from wyoming.tts import Synthesize, SynthesizeChunk, SynthesizeStart, SynthesizeStop, SynthesizeStopped, SynthesizeVoice

TEXT = "Good morning. The house is by the river."
WORDS = {"good", "morning", "house", "river"}


async def until(connection: AsyncTcpClient, kind: Any) -> list[Event]:
    events: list[Event] = []
    while not (events and kind.is_type(events[-1].type)):
        event = await connection.read_event()
        assert event is not None, events
        events.append(event)
    return events


async def test_a_text_in_pieces_sounds_before_it_is_complete(wyoming_port: int, hear: Any) -> None:
    async with AsyncTcpClient("127.0.0.1", wyoming_port) as connection:
        await connection.write_event(Describe().event())
        (program,) = Info.from_event((await until(connection, Info))[0]).tts
        await connection.write_event(SynthesizeStart(SynthesizeVoice(name=program.voices[0].name)).event())
        first, *rest = TEXT.split()
        await connection.write_event(SynthesizeChunk(f"{first} ").event())
        events = await until(connection, AudioChunk)
        for word in rest:
            await connection.write_event(SynthesizeChunk(f"{word} ").event())
        await connection.write_event(SynthesizeStop().event())
        events += await until(connection, SynthesizeStopped)
    chunks = [AudioChunk.from_event(event) for event in events if AudioChunk.is_type(event.type)]
    assert len(hear(b"".join(chunk.audio for chunk in chunks), chunks[0].rate) & WORDS) >= 2


async def test_what_is_wrong_is_told_and_who_hangs_up_frees_the_stream(
    wyoming_port: int, streams: Any, idle: Any
) -> None:
    async with AsyncTcpClient("127.0.0.1", wyoming_port) as connection:
        await connection.write_event(Synthesize(TEXT, SynthesizeVoice(name="nobody-of-this-name")).event())
        assert Error.from_event((await until(connection, Error))[-1]).code == "voice_not_found"
        await connection.write_event(Synthesize("Hello.").event())
        await until(connection, AudioStop)
        await connection.write_event(Synthesize(TEXT * 20).event())
        await until(connection, AudioChunk)
        assert streams() == 1
    await idle()
