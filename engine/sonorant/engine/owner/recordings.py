"""Has recordings encoded by the owner, which has one encoder for each checkpoint."""

import asyncio
import hashlib
import itertools

from sonorant.engine.encoder.wire import EncoderAnswer, Upload, Want
from sonorant.engine.errors import EngineError, EngineUnavailable
from sonorant.engine.ipc.handed import Packets
from sonorant.engine.ipc.shared_bytes import SharedBytes
from sonorant.engine.owner.link_messages import Drop, Encode, Encoded
from sonorant.engine.types import Spent


class Recordings:
    """Those of one server process."""

    def __init__(self, packets: Packets) -> None:
        self._packets = packets
        self._jobs = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Encoded]] = {}  # by job
        self._refusal = ""

    @property
    def num_waiting(self) -> int:
        """The number of recordings that are being encoded or wait for it."""
        return len(self._waiting)

    async def encode(
        self, pair: int, audio: bytes, want: Want, caller: int, holder: int = 0, wait_s: float = 0.0
    ) -> tuple[EncoderAnswer, Spent]:
        """Encode a recording with the encoder of a pair. Raises what `Encodings.encode` raises; see there."""
        if self._refusal:
            raise EngineUnavailable(self._refusal)
        digest = await asyncio.to_thread(_digest, audio)
        upload = Upload(b"", digest, want, caller, holder, wait_s)
        job = next(self._jobs)
        answer: asyncio.Future[Encoded] = asyncio.get_running_loop().create_future()
        try:
            with SharedBytes.of(audio) as shared:
                self._packets.send(Encode(job, pair, upload, shared))
        except OSError as error:
            raise EngineUnavailable(f"the recording cannot be passed to the encoder: {error.strerror}") from error
        self._waiting[job] = answer
        try:
            encoded = await answer
        except asyncio.CancelledError:
            self._packets.send(Drop(job))
            raise
        finally:
            del self._waiting[job]
        if isinstance(encoded.answer, EngineError):
            raise encoded.answer
        return encoded.answer, encoded.spent

    def on_encoded(self, encoded: Encoded) -> None:
        if (answer := self._waiting.get(encoded.job)) is not None and not answer.done():
            answer.set_result(encoded)

    def close(self, reason: str) -> None:
        """Fail what waits and what comes from now on."""
        self._refusal = reason
        for job in self._waiting:
            self.on_encoded(Encoded(job, EngineUnavailable(reason), Spent()))


def _digest(audio: bytes) -> bytes:
    return hashlib.sha256(audio).digest()
