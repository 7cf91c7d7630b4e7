"""A real server whose workers are killed (`kill -9`), and what must hold afterwards."""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from sonorant.tts.v1 import synthesis_pb2
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeRequest
from tests.e2e.server_process import ServerProcess, samples
from tests.service.harness import Stub, eventually
from tests.service.scripts import SEED

# Five deaths of a pair in a row, with less than a minute of health between them, end the server.
MOST_KILLS, HEALTHY_S = 4, 90.0
PATIENCE_S = 120.0  # for workers to be replaced, on a machine that may have much else to do
SETTINGS = ("--pairs", "2", "--cpu-threads", "1")
WORKERS = ("sonorant-talker", "sonorant-code2w")
IN_USE = (
    "tts_sessions", "tts_active_utterances", "tts_engine_backlog", "tts_pair_streams", "tts_queued_streams",
    "tts_slots_used", "tts_ring_bytes", "tts_queued_recordings",
)  # fmt: skip
CLIP = SynthesizeRequest(text="well", config={"sampling": {"seed": SEED}})


@dataclass
class Rough:
    """A server whose workers are killed now and then."""

    server: ServerProcess
    channel: grpc.aio.Channel
    files: Counter[str]
    children: Counter[str]
    ends: Counter[str] = field(default_factory=Counter)  # of utterances, by how they ended
    num_kills: int = 0
    _in_a_row: int = 0
    _killed_s: float = 0.0

    @property
    def stub(self) -> Any:
        return Stub(self.channel)

    def kill(self, rng: random.Random) -> None:
        """One of its workers, if it can bear that."""
        if time.monotonic() > self._killed_s + HEALTHY_S:
            self._in_a_row = 0
        workers = sorted(pid for pid, name in self.server.child_ids().items() if name in WORKERS)
        if self._in_a_row < MOST_KILLS and workers:
            os.kill(rng.choice(workers), signal.SIGKILL)
            self.num_kills += 1
            self._in_a_row += 1
            self._killed_s = time.monotonic()

    async def check(self) -> None:
        """It serves, with all its workers; nothing of the sessions is left, and no bug was logged."""

        def wrong() -> dict[str, object]:
            found: dict[str, object] = {}
            for sample in samples(self.server.metrics_port):
                is_down = sample.name == "tts_pair_ready" and not sample.value
                if is_down or (sample.name in IN_USE and sample.value):
                    found[f"{sample.name} {sample.labels}"] = sample.value
            found |= {kind: num for kind, num in self.server.open_files().items() if num > self.files[kind]}
            return found | dict(self.children - Counter(self.server.children()))

        await eventually(wrong, {}, PATIENCE_S)
        clip = await self.stub.Synthesize(CLIP)
        assert clip.reason == synthesis_pb2.FINISH_REASON_COMPLETED
        bugs = [line for line in self.server.log.splitlines() if '"exception"' in line]
        assert not bugs, bugs[0]


@asynccontextmanager
async def rough(folder: Path) -> AsyncIterator[Rough]:
    with ServerProcess(folder / "log", *SETTINGS) as server:
        async with grpc.aio.insecure_channel(server.address) as channel:
            await Stub(channel).Synthesize(CLIP)
            yield Rough(server, channel, server.open_files(), Counter(server.children()))
