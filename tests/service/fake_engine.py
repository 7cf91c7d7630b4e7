"""A small engine with exact semantics: `fake_speech` tells what it says, and `fake_streams` when."""

from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
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
    RecordingInfo,
    SamplingParams,
    SynthesisParams,
    UnknownSpeaker,
)
from tests.service.fake_speech import FRAME_SAMPLES, FRAMES_PER_CHAR, NUM_CODEBOOKS
from tests.service.fake_streams import CREDIT_FRAMES, FakeStored, FakeStream, FakeWorkers

NUM_SLOTS = 32
CODEC = "c0dec0c0dec0c0de"
NUM_STORED = 3
MS_PER_BYTE = 100  # of a recording
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


class FakeEngine(FakeWorkers):
    """Stands where the service expects an `engine.EnginePool`."""

    def __init__(
        self,
        *,
        frame_s: float = 0.0,
        max_streams: int = 64,
        takes_instruct: bool = True,
        task: Literal["custom_voice", "voice_design", "base"] = "custom_voice",
        fingerprint: str = "0123456789abcdef",
        max_segment_chars: int = 10_000,
        silent_ms: int = 0,
        whole_after_cut: bool = False,
    ) -> None:
        super().__init__(frame_s, silent_ms=silent_ms)
        self.frames_known = 0  # of those that were opened behind some
        self.max_streams = max_streams
        self.state = EngineState.READY
        self.on_state: Callable[[EngineState], None] = lambda state: None
        self.num_encoded = 0
        self.recording_wait_s = 0.0
        self.opened: list[SynthesisParams] = []
        self.callers: list[int] = []  # of each of these
        self.background: list[bool] = []
        self.in_turn: list[bool] = []  # whether each of these is admitted by turns of callers in any case
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
            max_segment_chars=max_segment_chars,
            silent_first_frames=-(-silent_ms // 80),
            whole_after_cut=whole_after_cut,
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

    def speaking(self) -> set[str]:
        return {self.info.model} if self.state is EngineState.READY else set()

    def pairs(self) -> list[PairStats]:
        return [PairStats(self.info.model, self.state, NUM_SLOTS, EngineStats(self.num_streams, 0, (0, 0, 0), {}))]

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

    def explain(self, params: SynthesisParams, text: str, written: str | None = None) -> Explanation:
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
        prompt: None = None,
        spare: int = 0,
        waits: bool = False,
        caller: int = 0,
        in_turn: bool = False,
        background: bool = False,
    ) -> FakeStream:
        if self.state is not EngineState.READY and not (waits and self.state is EngineState.RESTARTING):
            raise EngineUnavailable(f"the engine is {self.state}; try again later")
        if self.num_streams + spare >= self.max_streams:
            raise EngineOverloaded(f"all {self.max_streams} streams are in use; try again later")
        self.check(params)
        self.opened.append(params)
        self.callers.append(caller)
        self.in_turn.append(in_turn)
        self.background.append(background)
        stream = FakeStream(self._next_id, replace(params), self, credit=min(credit_frames, CREDIT_FRAMES))
        self._next_id += 1
        if known_codes is not None:
            stream.known_codes, stream.num_frames = known_codes, len(known_codes)
            self.frames_known += len(known_codes)
        self.live[stream.stream_id] = stream
        return stream

    @property
    def num_recordings(self) -> int:
        """It encodes at once."""
        return 0

    async def tried(self) -> None:
        """Its pairs need not try."""

    def keep_places(self, checkpoint: str, change: int) -> None:
        """There are no other processes that could take them."""

    def info_for_codec(self, codec: str) -> EngineInfo:
        if codec != CODEC:
            raise CodecDiffers(f"the codes were made with codec {codec}, but this server has {CODEC}")
        return self.info

    def open_stored(
        self,
        codec: str,
        segments: Sequence[npt.NDArray[np.int16]],
        past_codes: npt.NDArray[np.int16] | None,
        credit_frames: int,
    ) -> FakeStored:
        self.info_for_codec(codec)
        if self.state is not EngineState.READY:
            raise EngineUnavailable(f"the engine is {self.state}; try again later")
        if len(self.stored) >= NUM_STORED:
            raise EngineOverloaded(f"all {NUM_STORED} places for stored codes are in use; try again later")
        return FakeStored(self, deque(segments), credit_frames)

    async def check_reference(self, audio: bytes, *, caller: int = 0) -> RecordingInfo:
        """A recording is any bytes but b"bad", and lasts MS_PER_BYTE for each."""
        if audio == b"bad":
            raise InvalidRecording("RECORDING_UNREADABLE", "not a recording")
        return RecordingInfo(MS_PER_BYTE * len(audio), -20.0, 24_000, 1)

    async def encode_reference(
        self, audio: bytes, *, with_codes: bool, caller: int = 0, holder: int = 0, wait_s: float = 0.0
    ) -> EncodedReference:
        """A function of the bytes."""
        recording = await self.check_reference(audio)
        self.num_encoded += 1
        self.recording_wait_s = wait_s  # of the latest
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

    def enter(self, state: EngineState) -> None:
        """What becomes of the workers; streams that are live when they go fail."""
        self.state = state
        if state is not EngineState.READY:
            for stream in list(self.live.values()):
                stream.end(FinishReason.UNAVAILABLE, "the engine became unavailable: a worker died")
        self.on_state(state)
