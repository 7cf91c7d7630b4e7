"""Has recordings encoded by the owner, which has one encoder for each checkpoint."""

import asyncio
import itertools

from sonorant.engine.encoder.wire import Answer, Want
from sonorant.engine.errors import EngineError, EngineUnavailable
from sonorant.engine.ipc.packets import Packets
from sonorant.engine.ipc.shared_bytes import SharedBytes
from sonorant.engine.owner.link_messages import Drop, Encode


class Recordings:
    """Those of one server process."""

    def __init__(self, packets: Packets) -> None:
        self._packets = packets
        self._jobs = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Answer | EngineError]] = {}  # by job
        self._refusal = ""

    @property
    def num_waiting(self) -> int:
        """The number of recordings that are being encoded or wait for it."""
        return len(self._waiting)

    async def encode(self, pair: int, audio: bytes, want: Want) -> Answer:
        """Encode a recording with the encoder of a pair. Raises what `OnDemandEncoder.encode` raises.

        If the caller is cancelled, the encoder stops at once.
        """
        if self._refusal:
            raise EngineUnavailable(self._refusal)
        job = next(self._jobs)
        answer: asyncio.Future[Answer | EngineError] = asyncio.get_running_loop().create_future()
        try:
            with SharedBytes.of(audio) as shared:
                self._packets.send(Encode(job, pair, want, shared), shared.fds())
        except OSError as error:
            raise EngineUnavailable(f"the recording cannot be passed to the encoder: {error.strerror}") from error
        self._waiting[job] = answer
        try:
            said = await answer
        except asyncio.CancelledError:
            self._packets.send(Drop(job))
            raise
        finally:
            del self._waiting[job]
        if isinstance(said, EngineError):
            raise said
        return said

    def on_encoded(self, job: int, answer: Answer | EngineError) -> None:
        if job in self._waiting and not self._waiting[job].done():
            self._waiting[job].set_result(answer)

    def close(self, reason: str) -> None:
        """Fail what waits and what comes from now on."""
        self._refusal = reason
        for job in self._waiting:
            self.on_encoded(job, EngineUnavailable(reason))
