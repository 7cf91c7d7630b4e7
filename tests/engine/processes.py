"""Processes with an engine or an encoder that tests kill. They have a module of their own to avoid importing pytest."""

import asyncio
from multiprocessing.connection import Connection

from sonorant.engine import EngineConfig, PcmChunk
from sonorant.engine.owner.encoders import Encoders
from tests.engine.one_engine import start_engine
from tests.engine.speech import speech


def leave(ready: Connection) -> None:
    """Do nothing."""


def run_engine(config: EngineConfig, ready: Connection) -> None:
    """Start an engine and a stream, send the workers' pids once it speaks, and keep it speaking."""

    async def main() -> None:
        engine = await start_engine(config)
        async with engine.open(speech(engine, max_frames=500, ignore_eos=True)) as stream:
            stream.push_text("On and on and on.")
            stream.end_text()
            await stream.next_event()
            ready.send([child.pid for child in engine.pair.workers.children])
            while isinstance(event := await stream.next_event(), PcmChunk):
                stream.grant(event.num_frames)

    asyncio.run(main())


def run_encoder(config: EngineConfig, ready: Connection) -> None:
    """Start what encodes recordings, send the pids of its processes, and wait."""

    async def main() -> None:
        encoders = Encoders([config])
        await encoders.start()
        ready.send([encoders.pid(0), *encoders.decoder_pids])
        await asyncio.sleep(60)

    asyncio.run(main())
