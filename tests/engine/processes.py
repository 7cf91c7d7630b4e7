"""A process with an engine in it, for tests that kill it; apart from them, so that it does not import pytest."""

import asyncio
from multiprocessing.connection import Connection

from engine import Engine, EngineConfig, PcmChunk
from tests.engine.speech import speech


def run_engine(config: EngineConfig, ready: Connection) -> None:
    """Start an engine and a stream, tell the workers' pids once it speaks, and keep it going."""

    async def main() -> None:
        engine = await Engine.start(config)
        async with engine.open(speech(engine, max_frames=500, ignore_eos=True)) as stream:
            stream.push_text("On and on and on.")
            stream.end_text()
            await stream.next_event()
            ready.send([child.pid for child in engine._supervisor._workers.children])
            while isinstance(event := await stream.next_event(), PcmChunk):
                stream.grant(event.num_frames)

    asyncio.run(main())
