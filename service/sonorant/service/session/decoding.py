"""Decodes stored codes: checks them, lets the engine decode them without the talker, encodes and paces the audio."""

import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, TypeAlias

from sonorant.engine import (
    EngineInfo,
    EnginePool,
    EngineUnavailable,
    FinishReason,
    PcmChunk,
    StoredStream,
    StreamFailed,
)
from sonorant.service.audio.codes import CodesHeader, StoredCodes, parsing
from sonorant.service.audio.formats import check_audio
from sonorant.service.audio.writer import AudioSpec, AudioWriter, Piece, joined
from sonorant.service.errors import InvalidField
from sonorant.service.operations.latency import latency_budget
from sonorant.service.pacing.pacer import Credit, Pacer, Playout
from sonorant.service.utterance.resumption import CHARS_PER_S
from sonorant.service.utterance.segment_frames import risen
from sonorant.tts.v1 import audio_pb2, latency_pb2, synthesis_pb2
from sonorant.tts.v1.text_to_speech_service_pb2 import DecodeRequest, DecodeStarted

DecodeMessage: TypeAlias = DecodeStarted | audio_pb2.AudioChunk


class SendDecoded(Protocol):
    async def __call__(self, message: DecodeMessage, on_taken: Callable[[], None] | None = None) -> None:
        """See `delivery.Send`."""


@dataclass(frozen=True, slots=True)
class DecodeSpec:
    """A checked DecodeRequest."""

    stored: StoredCodes
    audio: AudioSpec
    info: EngineInfo  # of a checkpoint with this codec
    serial: int  # of an Ogg stream

    @property
    def num_chars(self) -> int:
        """The characters that the caller is charged: about as many as were spoken."""
        return round(self.stored.duration_s * CHARS_PER_S)

    @property
    def audio_ms(self) -> int:
        return int(self.stored.duration_s * 1000 / self.audio.speed)


def check_decode(request: DecodeRequest, engine: EnginePool) -> Iterator[DecodeSpec | None]:
    """Check a request in steps, like `parsing`. Yields None until the spec comes last. Raises InvalidField or
    CodecDiffers.
    """
    if request.config.audio.encoding == audio_pb2.AUDIO_ENCODING_CODES:
        raise InvalidField("config.audio.encoding", "these are codes already; choose what they are to become")
    stored: StoredCodes | None = None
    try:
        for stored in parsing(request.codes):
            if stored is None:
                yield None
    except ValueError as error:
        raise InvalidField("codes", str(error), "CODES_UNREADABLE") from error
    assert stored is not None, "it comes last"
    info = engine.info_for_codec(stored.header.codec)
    made_here = CodesHeader.of(info)
    if replace(stored.header, checkpoint=made_here.checkpoint) != made_here:  # the charge is computed from the header
        raise InvalidField("codes", "their header does not fit its codec; give them as they came", "CODES_UNREADABLE")
    if not stored.segments:
        raise InvalidField("codes", "there are no frames in them; give those of an utterance", "CODES_UNREADABLE")
    audio = check_audio(request.config, info, "config", whole=False)
    yield DecodeSpec(stored, audio, info, zlib.crc32(request.codes))


class Decoding:
    """Decodes the stored codes of one call."""

    def __init__(self, spec: DecodeSpec, engine: EnginePool, max_lead_ms: int) -> None:
        """Takes a place in the engine. Raises what `EnginePool.open_stored` raises."""
        self._spec = spec
        self._asked_s = time.monotonic()
        self._playout = Playout()
        self._pacer = Pacer(self._playout, max_lead_ms, spec.audio, spec.info)
        self._writer = AudioWriter(spec.audio, spec.serial)
        ahead_frames = self._pacer.ahead_frames()
        stored = spec.stored
        self._stream: StoredStream = engine.open_stored(stored.header.codec, stored.segments, stored.past, ahead_frames)
        self._credit = Credit(self._stream, ahead_frames, spec.audio, spec.info.frame_samples)
        self._num_frames = 0
        self._sent_samples = 0
        self._first_audio_ms: int | None = None
        self._budget: latency_pb2.LatencyBudget | None = None  # of the first audio, until that is sent

    def abort(self, _call: object = None) -> None:
        """Stop the engine's work at once."""
        self._stream.cancel()

    async def run(self, send: SendDecoded) -> synthesis_pb2.UtteranceDone:
        """Send everything, and return the last message. Raises EngineUnavailable or StreamFailed."""
        try:
            await self._run(send)
        finally:
            self.abort()
        native_ms = self._num_frames * self._spec.info.frame_samples * 1000 // self._spec.info.sample_rate_hz
        stats = synthesis_pb2.SynthesisStats(
            audio_ms=native_ms,
            sent_ms=self._sent_ms,
            first_audio_ms=self._first_audio_ms or 0,
            codec_frames=self._num_frames,
        )
        return synthesis_pb2.UtteranceDone(reason=synthesis_pb2.FINISH_REASON_COMPLETED, stats=stats)

    async def _run(self, send: SendDecoded) -> None:
        spec = self._spec
        started = DecodeStarted(
            audio=spec.audio.to_proto(), audio_ms=spec.audio_ms, checkpoint=spec.stored.header.checkpoint
        )
        await send(started)
        pieces = deque(self._writer.begin())
        is_first = True
        for part in spec.stored.parts:
            if isinstance(part, int):
                pieces += self._writer.pause(part)
            else:
                if not is_first:  # as between two segments of speech
                    pieces += self._writer.flush()
                quieter_db = 0.0 if is_first else spec.info.ends_quieter_db
                is_first = False
                await self._segment(len(part), quieter_db, pieces, send)
            await self._send_all(pieces, send)
        pieces += self._writer.end()
        await self._send_all(pieces, send)

    async def _segment(
        self, num_frames: int, begins_quieter_db: float, pieces: deque[Piece], send: SendDecoded
    ) -> None:
        left, spec = num_frames, self._spec
        while left:
            event = await self._stream.next_event()
            if not isinstance(event, PcmChunk):
                if event.reason is FinishReason.UNAVAILABLE:
                    raise EngineUnavailable(event.detail or "the engine stopped; try again")
                raise StreamFailed(event.detail or f"the engine ended stored codes with {event.reason.name}")
            samples = event.samples
            if begins_quieter_db:
                samples = risen(samples, num_frames - left, spec.info.frame_samples, begins_quieter_db)
            left -= event.num_frames
            self._num_frames += event.num_frames
            start_s = time.monotonic()
            pieces += self._writer.push(samples)
            if event.budget is not None:
                now_s = time.monotonic()
                self._budget = latency_budget(self._asked_s, event.budget, now_s - start_s, now_s)
            await self._send_all(pieces, send)

    async def _send_all(self, pieces: deque[Piece], send: SendDecoded) -> None:
        while pieces:
            data, num_samples = joined(pieces, self._spec.audio, self._pacer.max_chunk_ms)
            await self._pacer.wait(num_samples * 1000 / self._spec.audio.sample_rate_hz)
            chunk = audio_pb2.AudioChunk(data=data, start_ms=self._sent_ms, num_samples=num_samples)
            if num_samples and self._budget is not None:
                chunk.budget.CopyFrom(self._budget)
                self._budget = None
            await send(chunk, partial(self._taken, num_samples))

    @property
    def _sent_ms(self) -> int:
        return self._sent_samples * 1000 // self._spec.audio.sample_rate_hz

    def _taken(self, num_samples: int) -> None:
        if not num_samples:
            return
        if self._first_audio_ms is None:
            self._first_audio_ms = round((time.monotonic() - self._asked_s) * 1000)
        self._sent_samples += num_samples
        self._playout.sent("", num_samples * 1000 / self._spec.audio.sample_rate_hz)
        self._credit.extend(self._sent_samples, self._num_frames, self._pacer.ahead_frames())
