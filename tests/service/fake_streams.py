"""Streams of the fake engine: they make what their text has come for and their credit allows, and no more.

No processes; frames come at once, or one per `frame_s`.
"""

import asyncio
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sonorant.engine import FinishReason, PcmChunk, StreamBudget, StreamEnd, SynthesisParams
from tests.service.fake_speech import FRAME_SAMPLES, FRAMES_PER_CHAR, NUM_CODEBOOKS, frame_codes, frame_samples

CREDIT_FRAMES = 48
CHUNK_RAMP = (1, 2, 4, 8, 12)


@dataclass(eq=False)
class FakeWorkers:
    """What all streams share: how fast frames come, if they come, and what has become of them."""

    frame_s: float = 0.0
    held: bool = False  # streams stand still until released
    silent_ms: int = 0  # with which streams begin
    silent_from: dict[int, int] = field(default_factory=dict)  # by seed: the frame from which they are lost in silence
    stands_from: dict[int, int] = field(default_factory=dict)  # by seed: the frame from which they stand still in it
    checks_codes: bool = True  # that known codes are those of the text, as honest callers send them
    frames_made: int = 0
    busy_s: float = 0.0  # spent here instead of in the service
    live: "dict[int, FakeStream]" = field(default_factory=dict)
    stored: "set[FakeStored]" = field(default_factory=set)  # that are live

    def hold(self) -> None:
        self.held = True

    def release(self) -> None:
        self.held = False
        for stream in list(self.live.values()):
            stream.advance()


@dataclass(eq=False)
class FakeStream:
    stream_id: int
    params: SynthesisParams
    workers: FakeWorkers
    text: str = ""
    text_ended: bool = False
    ended: bool = False
    when_ended: Callable[[], None] | None = None
    credit: int = CREDIT_FRAMES
    num_frames: int = 0
    num_chunks: int = 0
    known_codes: npt.NDArray[np.int16] | None = None  # checked against the text as it comes
    num_pushed: int = 0  # pieces of text
    num_text_flushes: int = 0
    text_positions: tuple[float, ...] = ()  # nothing is told of them
    said_at: int | None = None
    events: deque[PcmChunk | StreamEnd] = field(default_factory=deque)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    busy: bool = False  # with the frames made last
    opened_s: float = field(default_factory=time.monotonic)

    async def __aenter__(self) -> "FakeStream":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cancel()

    def how_far(self) -> tuple[int | None, int | None]:
        return self.said_at, self.workers.stands_from.get(self.params.sampling.seed)

    def push_text(self, text: str, *, is_last: bool = False) -> None:
        assert not self.text_ended
        self.text += text
        self.num_pushed += 1
        self.text_ended = is_last
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
        self.workers.live.pop(self.stream_id)
        self.events.append(StreamEnd(reason, self.num_frames, 0.0, 0.0, detail))
        self.changed.set()
        if self.when_ended is not None:
            self.when_ended()

    def advance(self) -> None:
        start_s = time.thread_time()  # what others do meanwhile does not count
        self._advance()
        self.workers.busy_s += time.thread_time() - start_s

    def _advance(self) -> None:
        """Make the next chunk, as far as text and credit go."""
        if self.ended or self.busy or self.workers.held:
            return
        if self.params.non_streaming_mode and not self.text_ended:
            return
        if self.known_codes is not None and len(self.text) * FRAMES_PER_CHAR >= len(self.known_codes):
            expected = [frame_codes(self.text, k) for k in range(len(self.known_codes))]
            if self.workers.checks_codes:
                assert self.known_codes.tolist() == expected, "codes of another text, or of other frames"
            self.known_codes = None
        seed = self.params.sampling.seed
        silent_from = self.workers.silent_from.get(seed, sys.maxsize)
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
                parts = [self._frame(k) for k in frames]
                codes = np.array([frame_codes(self.text, k) for k in frames], np.int16)
            budget = self.budget() if self.num_frames == 0 else None
            self.events.append(PcmChunk(self.num_frames, count, np.concatenate(parts), codes, budget))
            self.num_frames += count
            self.num_chunks += 1
            self.credit -= count
            self.workers.frames_made += count
            self.changed.set()
            self.busy = True
            asyncio.get_running_loop().call_later(self.workers.frame_s * count, self.rested)
        elif self.num_frames == self.params.sampling.max_frames:
            self.end(FinishReason.MAX_FRAMES)
        elif self.text_ended and not is_lost and self.num_frames >= len(self.text) * FRAMES_PER_CHAR:
            self.end(FinishReason.COMPLETED)

    def _frame(self, number: int) -> npt.NDArray[np.int16]:
        samples = frame_samples(self.text[number // FRAMES_PER_CHAR], number, self.params.sampling.seed)
        num_silent = max(0, self.workers.silent_ms * FRAME_SAMPLES // 80 - number * FRAME_SAMPLES)
        return np.concatenate([np.zeros(FRAME_SAMPLES, np.int16)[:num_silent], samples[num_silent:]])

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

    workers: FakeWorkers
    segments: deque[npt.NDArray[np.int16]]
    credit: int
    num_frames: int = 0  # of the segment
    num_decoded: int = 0  # of all
    ended: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.workers.stored.add(self)

    def grant(self, num_frames: int) -> None:
        self.credit += num_frames
        self.changed.set()

    def cancel(self) -> None:
        self.ended = True
        self.workers.stored.discard(self)

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
