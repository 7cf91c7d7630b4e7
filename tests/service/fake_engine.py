"""A small engine with exact semantics: what it says is a function of text, frame and seed, and it honours credit.

Frame k speaks character k // FRAMES_PER_CHAR, so it can be made only once that character has come, and any loss,
repetition or mix-up of frames or streams shows in the audio. No processes; frames come at once, or one per `frame_s`.
"""

import asyncio
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from sonorant.engine import (
    CodecDiffers,
    EncodedReference,
    EngineInfo,
    EngineOverloaded,
    EngineState,
    EngineStats,
    EngineUnavailable,
    Explanation,
    FinishReason,
    InvalidRecording,
    InvalidSynthesis,
    Need,
    PairStats,
    PcmChunk,
    RecordingInfo,
    SamplingParams,
    StreamBudget,
    StreamEnd,
    SynthesisParams,
    UnknownSpeaker,
)

FRAMES_PER_CHAR = 2
FRAME_SAMPLES = 1920
CREDIT_FRAMES = 48
NUM_CODEBOOKS = 4
NUM_SLOTS = 32
CHUNK_RAMP = (1, 2, 4, 8, 12)
_STEPS = (np.arange(FRAME_SAMPLES) % 7).astype(np.int16)
CODEC = "c0dec0c0dec0c0de"
NUM_STORED = 3
SPEAKERS = ("ada", "bob")
LANGUAGES = ("english", "german")

DEFAULT_SAMPLING = SamplingParams(
    do_sample=True,
    temperature=0.9,
    top_k=50,
    top_p=1.0,
    repetition_penalty=1.05,
    subtalker_do_sample=True,
    subtalker_temperature=0.9,
    subtalker_top_k=50,
    subtalker_top_p=1.0,
    seed=0,
    min_frames=2,
    max_frames=2000,
)


@lru_cache(4096)
def frame_samples(char: str, frame: int, seed: int) -> npt.NDArray[np.int16]:
    tone = (ord(char) * 7919 + frame * 104_729 + seed) % 30_000 - 15_000
    return _STEPS + np.int16(tone)


def frame_codes(text: str, frame: int) -> list[int]:
    return [(ord(text[frame // FRAMES_PER_CHAR]) + frame + codebook) % 64 for codebook in range(NUM_CODEBOOKS)]


def spoken(text: str, seed: int = 0) -> bytes:
    """All the audio of a text, as PCM_S16LE."""
    frames = range(len(text) * FRAMES_PER_CHAR)
    return b"".join(frame_samples(text[k // FRAMES_PER_CHAR], k, seed).astype("<i2").tobytes() for k in frames)


@dataclass(eq=False)
class FakeStream:
    stream_id: int
    params: SynthesisParams
    engine: "FakeEngine"
    text: str = ""
    text_ended: bool = False
    ended: bool = False
    credit: int = CREDIT_FRAMES
    num_frames: int = 0
    num_chunks: int = 0
    known_codes: npt.NDArray[np.int16] | None = None  # checked against the text as it comes
    num_text_flushes: int = 0
    text_positions: tuple[float, ...] = ()  # nothing is told of them
    events: deque[PcmChunk | StreamEnd] = field(default_factory=deque)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    busy: bool = False  # with the frames made last
    opened_s: float = field(default_factory=time.monotonic)

    async def __aenter__(self) -> "FakeStream":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cancel()

    def push_text(self, text: str) -> None:
        assert not self.text_ended
        self.text += text
        self.advance()

    def end_text(self) -> None:
        self.text_ended = True
        self.advance()

    def flush_text(self) -> None:
        self.num_text_flushes += 1

    def frames_in_common(self, pieces: Sequence[str | None]) -> int:
        if self.params.non_streaming_mode:
            return 0
        other = "".join(piece for piece in pieces if piece is not None)
        same = [one == two for one, two in zip(other, self.text, strict=False)]
        return [*same, False].index(False) * FRAMES_PER_CHAR

    def grant(self, num_frames: int) -> None:
        self.credit += num_frames
        self.advance()

    def cancel(self) -> None:
        if not self.ended:
            self.events.clear()
            self.end(FinishReason.CANCELLED)

    def end(self, reason: FinishReason, detail: str = "") -> None:
        self.ended = True
        self.engine.live.pop(self.stream_id)
        self.events.append(StreamEnd(reason, self.num_frames, 0.0, 0.0, detail))
        self.changed.set()

    def advance(self) -> None:
        start_s = time.perf_counter()
        self._advance()
        self.engine.busy_s += time.perf_counter() - start_s

    def _advance(self) -> None:
        """Make the next chunk, as far as text and credit go."""
        if self.ended or self.busy or self.engine.held:
            return
        if self.params.non_streaming_mode and not self.text_ended:
            return
        if self.known_codes is not None and len(self.text) * FRAMES_PER_CHAR >= len(self.known_codes):
            expected = [frame_codes(self.text, k) for k in range(len(self.known_codes))]
            assert self.known_codes.tolist() == expected, "codes of another text, or of other frames"
            self.known_codes = None
        seed = self.params.sampling.seed
        silent_from = self.engine.silent_from.get(seed, sys.maxsize)
        is_lost = self.num_frames >= silent_from
        limit = min(sys.maxsize if is_lost else len(self.text) * FRAMES_PER_CHAR, self.params.sampling.max_frames)
        if not is_lost:
            limit = min(limit, silent_from)
        count = min(limit - self.num_frames, self.credit, CHUNK_RAMP[min(self.num_chunks, len(CHUNK_RAMP) - 1)])
        if count > 0:
            frames = range(self.num_frames, self.num_frames + count)
            if is_lost:
                parts = [np.zeros(FRAME_SAMPLES, np.int16)] * count
                codes = np.array([[k % 64] * NUM_CODEBOOKS for k in frames], np.int16)
            else:
                parts = [frame_samples(self.text[k // FRAMES_PER_CHAR], k, seed) for k in frames]
                codes = np.array([frame_codes(self.text, k) for k in frames], np.int16)
            budget = self.budget() if self.num_frames == 0 else None
            self.events.append(PcmChunk(self.num_frames, count, np.concatenate(parts), codes, budget))
            self.num_frames += count
            self.num_chunks += 1
            self.credit -= count
            self.engine.frames_made += count
            self.changed.set()
            self.busy = True
            asyncio.get_running_loop().call_later(self.engine.frame_s * count, self.rested)
        elif self.num_frames == self.params.sampling.max_frames:
            self.end(FinishReason.MAX_FRAMES)
        elif self.text_ended and not is_lost and self.num_frames == len(self.text) * FRAMES_PER_CHAR:
            self.end(FinishReason.COMPLETED)

    def budget(self) -> StreamBudget:
        """Of the time since the opening, as if each part had taken as long."""
        return StreamBudget(self.opened_s, *[(time.monotonic() - self.opened_s) / 7] * 7)

    def rested(self) -> None:
        self.busy = False
        self.advance()

    def ready_events(self) -> list[PcmChunk | StreamEnd]:
        events = list(self.events)
        self.events.clear()
        return events

    async def next_event(self) -> PcmChunk | StreamEnd:
        while not self.events:
            self.changed.clear()
            await self.changed.wait()
        return self.events.popleft()


@dataclass(eq=False)
class FakeStored:
    """Of stored codes: the samples of a frame are the sum of its codes."""

    engine: "FakeEngine"
    segments: deque[npt.NDArray[np.int16]]
    credit: int
    num_frames: int = 0  # of the segment
    num_decoded: int = 0  # of all
    ended: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.engine.stored.add(self)

    def grant(self, num_frames: int) -> None:
        self.credit += num_frames
        self.changed.set()

    def cancel(self) -> None:
        self.ended = True
        self.engine.stored.discard(self)

    async def next_event(self) -> PcmChunk | StreamEnd:
        if not self.segments or self.ended:
            self.cancel()
            return StreamEnd(FinishReason.CANCELLED if self.segments else FinishReason.COMPLETED, 0, 0.0, 0.0)
        while not self.credit:
            self.changed.clear()
            await self.changed.wait()
        first, segment = self.num_frames, self.segments[0]
        count = min(12, self.credit, len(segment) - first)
        codes = segment[first : first + count]
        self.credit -= count
        self.num_frames += count
        self.num_decoded += count
        if self.num_frames == len(segment):
            self.segments.popleft()
            self.num_frames = 0
        samples = np.repeat(codes.sum(1, dtype=np.int16), FRAME_SAMPLES)
        return PcmChunk(first, count, samples, codes)


class FakeEngine:
    """Stands where the service expects an `engine.EnginePool`."""

    def __init__(
        self,
        *,
        frame_s: float = 0.0,
        max_streams: int = 64,
        takes_instruct: bool = True,
        task: Literal["custom_voice", "voice_design", "base"] = "custom_voice",
        fingerprint: str = "0123456789abcdef",
    ) -> None:
        self.frame_s = frame_s
        self.held = False  # streams stand still until released
        self.silent_from: dict[int, int] = {}  # by seed: the frame from which its streams say nothing, and do not end
        self.frames_made = 0
        self.frames_known = 0  # of those that were opened behind some
        self.busy_s = 0.0  # spent here instead of in the service
        self.max_streams = max_streams
        self.live: dict[int, FakeStream] = {}
        self.stored: set[FakeStored] = set()  # that are live
        self.state = EngineState.READY
        self.on_state: Callable[[EngineState], None] = lambda state: None
        self.num_encoded = 0
        self.opened: list[SynthesisParams] = []
        self.info = EngineInfo(
            model="fake",
            task=task,
            size="tiny",
            speakers=SPEAKERS if task == "custom_voice" else (),
            languages=LANGUAGES,
            sample_rate_hz=24_000,
            frame_samples=FRAME_SAMPLES,
            frame_rate_hz=12.5,
            num_codebooks=NUM_CODEBOOKS,
            codebook_size=64,
            hidden_size=8,
            fingerprint=fingerprint,
            codec=CODEC,
            default_sampling=DEFAULT_SAMPLING,
            takes_instruct=takes_instruct,
            max_context=4096,
            max_streams=max_streams,
            credit_frames=CREDIT_FRAMES,
        )
        self.infos = (self.info,)
        self._next_id = 1

    @property
    def num_streams(self) -> int:
        return len(self.live)

    @property
    def num_opened(self) -> int:
        """Streams so far."""
        return self._next_id - 1

    def pairs(self) -> list[PairStats]:
        return [PairStats(self.info.model, self.state, NUM_SLOTS, EngineStats(self.num_streams, 0, 0, (0, 0, 0), {}))]

    def info_for(self, need: Need) -> EngineInfo:
        return self.info

    def check(self, params: SynthesisParams) -> None:
        if params.x_vector is None and self.info.task == "base":
            raise InvalidSynthesis("x_vector", "fake clones voices; give it a voice or reference audio")
        if params.x_vector is None and self.info.task == "custom_voice" and params.speaker not in SPEAKERS:
            raise UnknownSpeaker("speaker", f"no speaker {params.speaker!r}; use {', '.join(SPEAKERS)}")
        if params.language not in ("auto", *LANGUAGES):
            raise InvalidSynthesis("language", f"no language {params.language!r}; use {', '.join(LANGUAGES)}")
        if not params.sampling.temperature > 0:
            raise InvalidSynthesis("temperature", "temperature must be above 0")

    def explain(self, params: SynthesisParams, text: str) -> Explanation:
        """A token for each character."""
        self.check(params)
        return Explanation(
            text=text,
            token_ids=tuple(map(ord, text)),
            tokens=tuple(text),
            language=params.language,
            rows=(),
            trailing=(),
            max_frames=params.sampling.max_frames,
            max_context=self.info.max_context,
            estimated_frames=len(text) * FRAMES_PER_CHAR,
        )

    def open(
        self,
        params: SynthesisParams,
        credit_frames: int = CREDIT_FRAMES,
        known_codes: npt.NDArray[np.int16] | None = None,
        *,
        spare: int = 0,
    ) -> FakeStream:
        if self.state is not EngineState.READY:
            raise EngineUnavailable(f"the engine is {self.state}; try again later")
        if self.num_streams + spare >= self.max_streams:
            raise EngineOverloaded(f"all {self.max_streams} streams are in use; try again later")
        self.check(params)
        self.opened.append(params)
        stream = FakeStream(self._next_id, replace(params), self, credit=min(credit_frames, CREDIT_FRAMES))
        self._next_id += 1
        if known_codes is not None:
            stream.known_codes, stream.num_frames = known_codes, len(known_codes)
            self.frames_known += len(known_codes)
        self.live[stream.stream_id] = stream
        return stream

    def info_for_codec(self, codec: str) -> EngineInfo:
        if codec != CODEC:
            raise CodecDiffers(f"the codes were made with codec {codec}, and this server has {CODEC}")
        return self.info

    def open_stored(
        self,
        codec: str,
        segments: Sequence[npt.NDArray[np.int16]],
        past_codes: npt.NDArray[np.int16] | None,
        credit_frames: int,
    ) -> "FakeStored":
        self.info_for_codec(codec)
        if self.state is not EngineState.READY:
            raise EngineUnavailable(f"the engine is {self.state}; try again later")
        if len(self.stored) >= NUM_STORED:
            raise EngineOverloaded(f"all {NUM_STORED} places for stored codes are in use; try again later")
        return FakeStored(self, deque(segments), credit_frames)

    async def check_reference(self, audio: bytes) -> RecordingInfo:
        """A recording is any bytes but b"bad", and lasts a millisecond a byte."""
        if audio == b"bad":
            raise InvalidRecording("RECORDING_UNREADABLE", "not a recording")
        return RecordingInfo(len(audio), -20.0, 24_000, 1)

    async def encode_reference(self, audio: bytes, *, with_codes: bool) -> EncodedReference:
        """A function of the bytes."""
        recording = await self.check_reference(audio)
        self.num_encoded += 1
        rng = np.random.default_rng(list(audio[:16]))
        codes = rng.integers(0, 64, (5, 4), dtype=np.int16) if with_codes else None
        return EncodedReference(rng.standard_normal(8, dtype=np.float32), codes, recording)

    def speaker_embedding(self, speaker: str) -> npt.NDArray[np.float32]:
        return np.full(8, SPEAKERS.index(speaker), np.float32)

    @asynccontextmanager
    async def started(self, on_state: Callable[[EngineState], None]) -> AsyncIterator["FakeEngine"]:
        """What `server.serve` starts."""
        self.on_state = on_state
        on_state(self.state)
        yield self

    def hold(self) -> None:
        self.held = True

    def release(self) -> None:
        self.held = False
        for stream in list(self.live.values()):
            stream.advance()

    def enter(self, state: EngineState) -> None:
        """What becomes of the workers; streams that are live when they go fail."""
        self.state = state
        if state is not EngineState.READY:
            for stream in list(self.live.values()):
                stream.end(FinishReason.UNAVAILABLE, "the engine became unavailable: a worker died")
        self.on_state(state)
