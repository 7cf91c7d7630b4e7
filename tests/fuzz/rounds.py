"""One round of each kind of noise against a server over the tests' engine, and what must hold after it."""

import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sonorant.gateway import log_filters as gateway_log
from sonorant.service import log_filters as service_log
from sonorant.tts.v1.text_to_speech_service_pb2 import GetCapabilitiesRequest, SynthesizeRequest
from tests.fuzz.bursts import send_burst
from tests.fuzz.doors import knock
from tests.fuzz.files import read_changed_files
from tests.fuzz.forms import send_form
from tests.fuzz.http2 import send_frames
from tests.fuzz.messages import send_random_requests
from tests.fuzz.resumes import forge_resumes
from tests.fuzz.sessions import run_scripts
from tests.fuzz.uploads import read_changed_uploads
from tests.gateway.harness import Door, gateway_to
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import spoken
from tests.service.harness import Served, eventually, served


class Errors(logging.Handler):
    """What was logged as an error, which is what a bug is: callers' mistakes are not."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.addFilter(service_log.is_news)
        self.addFilter(gateway_log.is_news)
        self.addFilter(is_of_this_loop)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(self.format(record))


def is_of_this_loop(record: logging.LogRecord) -> bool:
    """Not what grpcio's queue of all loops has left for that of an earlier test, which has ended."""
    error = record.exc_info[1] if record.exc_info else None
    is_late = isinstance(error, RuntimeError) and str(error) == "Event loop is closed"
    return not (is_late and record.getMessage().startswith("Exception in callback PollerCompletionQueue"))


@dataclass
class Target:
    server: Served
    engine: FakeEngine
    door: Door
    folder: Path
    errors: Errors = field(default_factory=Errors)

    async def check(self) -> None:
        """It still serves, nothing of the noise is left, and no bug was logged."""
        clip = await self.server.stub.Synthesize(SynthesizeRequest(text="well", config={"sampling": {"seed": 7}}))
        assert clip.audio == spoken("well", 7)
        assert await self.door.speak("well", seed=7) == (200, spoken("well", 7))
        await eventually(lambda: self.engine.num_streams, 0)

        async def sessions() -> int:
            return (await self.server.stub.GetCapabilities(GetCapabilitiesRequest())).active_sessions

        await eventually(sessions, 0)
        assert not self.errors.messages, self.errors.messages[0]


@asynccontextmanager
async def target(folder: Path) -> AsyncIterator[Target]:
    engine, errors = FakeEngine(max_streams=1000), Errors()
    logging.getLogger().addHandler(errors)
    try:
        async with (
            served(engine, voices_dir=folder / "voices", max_voices=100) as server,
            gateway_to(server, wyoming_listen="127.0.0.1:0") as door,
        ):
            yield Target(server, engine, door, folder, errors)
    finally:
        logging.getLogger().removeHandler(errors)


async def _messages(target: Target, rng: random.Random) -> int:
    return await send_random_requests(target.server, rng)


async def _http2(target: Target, rng: random.Random) -> int:
    return await send_frames(target.server, rng)


async def _doors(target: Target, rng: random.Random) -> int:
    return await knock(target.door, rng)


async def _forms(target: Target, rng: random.Random) -> int:
    return await send_form(target.door, rng)


async def _bursts(target: Target, rng: random.Random) -> int:
    return await send_burst(target.door, rng)


async def _sessions(target: Target, rng: random.Random) -> int:
    return await run_scripts(target.server, target.engine, rng)


async def _resumes(target: Target, rng: random.Random) -> int:
    return await forge_resumes(target.folder, rng)


async def _uploads(target: Target, rng: random.Random) -> int:
    return read_changed_uploads(rng)


async def _files(target: Target, rng: random.Random) -> int:
    return read_changed_files(target.folder, rng)


ROUNDS: dict[str, Callable[[Target, random.Random], Awaitable[int]]] = {
    "messages": _messages,
    "http2": _http2,
    "doors": _doors,
    "forms": _forms,
    "bursts": _bursts,
    "sessions": _sessions,
    "resumes": _resumes,
    "uploads": _uploads,
    "files": _files,
}
