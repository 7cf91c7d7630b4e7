"""A process with an engine in it, for tests that kill it; apart from them, so that it does not import pytest."""

import asyncio
from multiprocessing.connection import Connection

from engine import Engine, EngineConfig
from tests.engine.speech import speech


def run_engine(config: EngineConfig, ready: Connection) -> None:
    """Start an engine, tell the workers' pids, keep a stream busy for ever."""

    async def main() -> None:
        engine = await Engine.start(config)
        ready.send([child.pid for child in engine._supervisor._workers.children])
        async with engine.open(speech(engine, max_frames=2000, ignore_eos=True)) as stream:
            stream.push_text("On and on and on. ")
            stream.end_text()
            while True:
                await stream.next_event()
                stream.grant(1)

    asyncio.run(main())
