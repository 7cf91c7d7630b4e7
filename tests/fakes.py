"""Runners with exact semantics and no network, and what a test needs around them.

Every code is a hash of all that its stream was fed so far, and every sample a hash of all codes of its stream: a lost,
repeated, reordered or misplaced frame or token changes all audio after it. The functions `expected_*` work out from a
stream's own input what must be heard, whatever the schedule was.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from sonorant.engine.checkpoint.config import Checkpoint, load_checkpoint
from sonorant.engine.checkpoint.folders import resolve_model
from sonorant.engine.code2wav.schedule.context import DecoderContext
from sonorant.engine.config import EngineConfig
from sonorant.engine.ipc.channel import PeerGone, QueueChannel
from sonorant.engine.ipc.messages import BeginStream, FrameBatch, OpenStream
from sonorant.engine.talker.schedule.rows import DecodeRow, PrefillRow
from sonorant.engine.types import FinishReason, Int16Array, PassCounts, PromptPlan, SamplingParams

T = TypeVar("T")

FRAME_SAMPLES = 4

# Top-k of streams that end where they may, as a model does on a few words; the others end some frames after their text.
ENDS_AT_ONCE = 1


class FakeClock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class DepartingChannel(QueueChannel[T]):
    """A channel whose writer goes away as soon as the loop has nothing left to do."""

    def wait(self, timeout_s: float | None = None) -> None:
        raise PeerGone


class Parked(PeerGone):
    """A loop has used up its turns, or would wait."""


class SteppedChannel(QueueChannel[T]):
    """A channel whose reader may read so many times at a time, so that one thread can run every loop in any order."""

    turns_left = 0

    def drain(self) -> list[T]:
        if not self.turns_left:
            raise Parked
        self.turns_left -= 1
        return super().drain()

    def wait(self, timeout_s: float | None = None) -> None:
        raise Parked


def published_checkpoint() -> Checkpoint:
    """The settings of a published checkpoint; there are no weights behind them."""
    return load_checkpoint(resolve_model("qwen3-tts-12hz-1.7b-base"))


def open_stream(
    stream_id: int,
    *,
    num_rows: int = 9,
    trailing: tuple[int, ...] = (),
    text_ended: bool = False,
    max_frames: int = 20,
    min_frames: int = 0,
    ignore_eos: bool = False,
    credit_frames: int = 48,
    num_reference_frames: int = 0,
    opened_s: float = 1000.0,
    voice: int | None = None,
    known_codes: Int16Array | None = None,
    caller: int = 0,
    is_background: bool = False,
) -> OpenStream:
    """A stream whose seed and reference are its own, and its prompt, too, unless `voice` says what it begins with."""
    sampling = SamplingParams(
        do_sample=True,
        temperature=0.9,
        top_k=ENDS_AT_ONCE if text_ended and stream_id % 4 == 0 else 50,
        top_p=1.0,
        repetition_penalty=1.05,
        subtalker_do_sample=True,
        subtalker_temperature=0.9,
        subtalker_top_k=50,
        subtalker_top_p=1.0,
        seed=stream_id,
        min_frames=min_frames,
        max_frames=max_frames,
        ignore_eos=ignore_eos,
    )
    plan = PromptPlan(
        text_ids=tuple(1000 + row for row in range(num_rows)),
        codec_items=((stream_id if voice is None else voice) % 2048,) * num_rows,
        trailing=trailing,
        text_ended=text_ended,
        num_text_tokens=1 + len(trailing),
        began_open=not text_ended,
    )
    reference = np.arange(num_reference_frames * 16, dtype=np.int16).reshape(-1, 16) % 2048
    return OpenStream(
        stream_id,
        plan,
        sampling,
        credit_frames,
        opened_s,
        reference_codes=reference if num_reference_frames else None,
        known_codes=known_codes,
        caller=caller,
        is_background=is_background,
    )


def reopened(
    command: OpenStream, text: Sequence[int], text_ended: bool, credit_frames: int, codes: Sequence[Sequence[int]]
) -> OpenStream:
    """What opens a stream again behind the frames that it had, with all the text that came behind its prompt."""
    plan = replace(command.plan, trailing=tuple(text), text_ended=text_ended, num_text_tokens=1 + len(text))
    known_codes = np.array(codes, np.int16) if codes else None
    return replace(command, plan=plan, credit_frames=credit_frames, known_codes=known_codes)


def begin_stream(
    stream_id: int,
    past_codes: Int16Array | None = None,
    first_frame: int = 0,
    *,
    is_stored: bool = False,
    is_background: bool = False,
) -> BeginStream:
    return BeginStream(stream_id, 0.0, 0.0, past_codes, first_frame, is_stored, is_background)


def frame_batch(stream_ids: Sequence[int], frame_indices: Sequence[int], codes: Int16Array) -> FrameBatch:
    """The frames of a step of no duration: [rows, codebooks]."""
    return FrameBatch(np.array(stream_ids, np.int64), np.array(frame_indices, np.int32), codes, 0.0, 0.0)


class _Voice:
    """One stream of the fake talker: what it was fed, and what it says next."""

    def __init__(self, plan: PromptPlan, sampling: SamplingParams, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self.digest = hash((sampling.seed, plan.text_ids, plan.codec_items))
        self._num_pads = 0
        self._num_pads_to_end = 0 if sampling.top_k == ENDS_AT_ONCE else 1 + sampling.seed % 5

    def feed(self, text_id: int, position: int) -> None:
        self.digest = hash((self.digest, text_id, position))
        self._num_pads += text_id == self._checkpoint.text_ids.tts_pad

    def sample(self, frame_index: int, allow_eos: bool) -> list[int]:
        talker = self._checkpoint.talker
        if allow_eos and self._num_pads >= self._num_pads_to_end:
            return [talker.codec_eos_id] + [0] * (talker.num_codebooks - 1)
        self.digest = hash((self.digest, frame_index))
        return [hash((self.digest, book)) % 2048 for book in range(talker.num_codebooks)]


@dataclass
class _TalkerSlot:
    pages: tuple[int, ...]
    plan: PromptPlan
    voice: _Voice
    written: list[int] = field(default_factory=list)  # what each position must hold: a hash of all that led there
    num_frames: int = 0


class FakeTalkerRunner:
    """Also holds the scheduler to its contract, and counts."""

    def __init__(self, checkpoint: Checkpoint, config: EngineConfig, num_pages: int) -> None:
        self._checkpoint = checkpoint
        self._config = config
        self.num_pages = num_pages
        self.num_steps = 0
        self.passes = PassCounts()
        self.text_logits = None
        self.is_asynchronous = False
        self._frames: deque[Int16Array] = deque()  # of steps that were started
        self._slots: dict[int, _TalkerSlot] = {}
        self._content = defaultdict[int, list[int]](lambda: [0] * config.talker.page_size)  # of each page

    def assign(self, slot: int, pages: Sequence[int]) -> None:
        before = self._slots[slot].pages
        assert tuple(pages[: len(before)]) == before and len(pages) > len(before), "more, behind those it has"
        self._slots[slot].pages = tuple(pages)

    def step(self, prefills: Sequence[PrefillRow], decodes: Sequence[DecodeRow]) -> Int16Array:
        self.start(prefills, decodes)
        return self.finish()

    def wait_until_nearly_over(self) -> None:
        assert self.is_asynchronous

    def do_deferred(self) -> float | None:
        return None

    def finish(self) -> Int16Array:
        return self._frames.popleft()

    def start(self, prefills: Sequence[PrefillRow], decodes: Sequence[DecodeRow]) -> None:
        self.num_steps += 1
        assert len(self._frames) <= self.is_asynchronous, "one step too many under way"
        slots = [row.slot for row in prefills] + [row.slot for row in decodes]
        assert slots, "an empty step"
        assert len(set(slots)) == len(slots), "a slot twice in one step"
        assert all(0 <= slot < self._config.talker.num_slots for slot in slots)
        assert sum(row.stop - row.start for row in prefills) <= self._config.talker.max_prefill_rows
        codes = [self._prefill(row) for row in prefills] + [self._decode(row) for row in decodes]
        sampled = [row for row in codes if row is not None]
        self._frames.append(np.array(sampled, np.int16).reshape(len(sampled), self._checkpoint.talker.num_codebooks))

    def _prefill(self, row: PrefillRow) -> list[int] | None:
        contents = _prompt_contents(row, self._checkpoint)
        if row.begins:
            assert row.pages and all(0 <= page < self.num_pages for page in row.pages)
            self._slots[row.slot] = _TalkerSlot(row.pages, row.plan, _Voice(*_opening(row), self._checkpoint))
            self._slots[row.slot].written = contents[: row.start]
        slot = self._slots[row.slot]
        assert (row.plan, row.pages) == (slot.plan, slot.pages)
        assert row.start == len(slot.written) < row.stop <= row.plan.num_rows, "prompt rows out of order"
        for value in contents[row.start : row.stop]:
            self._write(slot, value)
        self._check_pages(slot)
        if row.stop < row.plan.num_rows:
            return None
        slot.num_frames = row.first_frame + 1
        slot.voice = _voice_behind(row, self._checkpoint)
        return slot.voice.sample(row.first_frame, row.allow_eos)

    def _decode(self, row: DecodeRow) -> list[int]:
        slot = self._slots[row.slot]
        assert slot.num_frames, "stepped before the prompt was in"
        assert row.frame_index == slot.num_frames, "frames out of order"
        assert row.position == len(slot.written)
        slot.num_frames += 1
        slot.voice.feed(row.text_id, row.position)
        self._write(slot, slot.voice.digest)
        self._check_pages(slot)
        return slot.voice.sample(row.frame_index, row.allow_eos)

    def _write(self, slot: _TalkerSlot, value: int) -> None:
        page, offset = divmod(len(slot.written), self._config.talker.page_size)
        assert page < len(slot.pages), "position beyond the lease"
        self._content[slot.pages[page]][offset] = value
        slot.written.append(value)

    def _check_pages(self, slot: _TalkerSlot) -> None:
        """Every position holds what this stream has put there, or would have."""
        size = self._config.talker.page_size
        assert len(slot.written) <= size * len(slot.pages), "position beyond the lease"
        for number, page in enumerate(slot.pages):
            values = slot.written[number * size : (number + 1) * size]
            assert self._content[page][: len(values)] == values, "a page holds something else"


def _opening(row: PrefillRow) -> tuple[PromptPlan, SamplingParams]:
    """The prompt without the frames made before."""
    num_rows = row.plan.num_rows - row.first_frame
    opening = replace(row.plan, text_ids=row.plan.text_ids[:num_rows], codec_items=row.plan.codec_items[:num_rows])
    return opening, row.sampling


def _voice_behind(row: PrefillRow, checkpoint: Checkpoint) -> _Voice:
    """As far as the prompt goes, which must hold the frames made before as this voice would have made them."""
    plan, sampling = _opening(row)
    voice = _Voice(plan, sampling, checkpoint)
    known = row.known_codes
    for frame in range(row.first_frame):
        assert known is not None
        assert voice.sample(frame, allow_eos=False) == known[frame].tolist(), "known codes are others"
        voice.feed(row.plan.text_ids[plan.num_rows + frame], plan.num_rows + frame)
    return voice


def _prompt_contents(row: PrefillRow, checkpoint: Checkpoint) -> list[int]:
    """What each position must hold: a hash of all that led there, for frames as if they had been made here."""
    plan, sampling = _opening(row)
    contents: list[int] = []
    for ids in zip(plan.text_ids, plan.codec_items, strict=True):
        contents.append(hash((contents[-1] if contents else 0, ids)))
    voice = _Voice(plan, sampling, checkpoint)
    for frame in range(row.first_frame):
        voice.sample(frame, allow_eos=False)
        voice.feed(row.plan.text_ids[plan.num_rows + frame], plan.num_rows + frame)
        contents.append(voice.digest)
    return contents


class _Speaker:
    """One stream of the fake decoder."""

    def __init__(self) -> None:
        self._digest = 0

    def decode(self, frames: Iterable[Iterable[int]]) -> list[int]:
        samples = []
        for codes in frames:
            self._digest = hash((self._digest, tuple(codes)))
            samples += [hash((self._digest, k)) % 65536 - 32768 for k in range(FRAME_SAMPLES)]
        return samples


# Of the fake runner, whose speakers remember all that they have said.
CONTEXT = DecoderContext(receptive_frames=1000, chunk_frames=32)


class FakeCode2WavRunner:
    def __init__(self, config: EngineConfig, num_slots: int) -> None:
        self.num_slots = num_slots
        self.frame_samples = FRAME_SAMPLES
        self.passes = PassCounts()
        self.calls: list[tuple[int, int]] = []  # rows and frames of each
        self.polls_per_call = 0  # 0: a call is over as soon as it was started, as on the CPU
        self._config = config
        self._speakers: dict[int, _Speaker] = {}

    def reset(self, slot: int, num_frames: int) -> None:
        assert 0 <= slot < self.num_slots + self._config.code2wav.stored_streams and num_frames >= 0
        self._speakers[slot] = _Speaker()

    def copy(self, source: int, target: int) -> None:
        self._speakers[target] = copy(self._speakers[source])

    def decode(self, slots: Sequence[int], codes: Int16Array) -> Int16Array:
        rows, frames, _ = codes.shape
        assert (
            rows == len(slots) == len(set(slots)) and 0 < rows <= self._config.code2wav.max_decode_batch and frames > 0
        )
        self.calls.append((rows, frames))
        # A slot that no reset has reached yet is not there.
        return np.array([self._speakers[s].decode(row) for s, row in zip(slots, codes.tolist(), strict=True)], np.int16)

    def start(self, slots: Sequence[int], codes: Int16Array) -> "FakeCall":
        return FakeCall(self.decode(slots, codes), self.polls_per_call)

    def decode_urgent(self, slots: Sequence[int], codes: Int16Array) -> Int16Array:
        return self.decode(slots, codes)

    def remember(self, slots: Sequence[int], codes: Int16Array) -> None:
        self.decode(slots, codes)

    def do_deferred(self) -> float | None:
        return None


class FakeCall:
    """A call that is over when it was asked so many times whether it is."""

    def __init__(self, samples: Int16Array, num_polls: int) -> None:
        self._samples = samples
        self._num_polls = num_polls

    def is_over(self) -> bool:
        self._num_polls -= 1
        return self._num_polls < 0

    def samples(self) -> Int16Array:
        assert self._num_polls < 0
        return self._samples


def expected_codes(
    checkpoint: Checkpoint, command: OpenStream, trailing: Sequence[int]
) -> tuple[Int16Array, FinishReason]:
    """Frames and end of a stream that nobody cancels, with all trailing text there ever was: [frames, codebooks]."""
    sampling, plan = command.sampling, command.plan
    voice = _Voice(plan, sampling, checkpoint)
    frames: list[list[int]] = []
    while len(frames) < sampling.max_frames:
        index = len(frames)
        if index:
            text_id = trailing[index - 1] if index <= len(trailing) else checkpoint.text_ids.tts_pad
            voice.feed(text_id, plan.num_rows + index - 1)
        is_text_over = not plan.began_open or index > len(trailing)
        codes = voice.sample(index, is_text_over and index >= sampling.min_frames and not sampling.ignore_eos)
        if codes[0] == checkpoint.talker.codec_eos_id:
            return _as_codes(frames, checkpoint), FinishReason.COMPLETED
        frames.append(codes)
    return _as_codes(frames, checkpoint), FinishReason.MAX_FRAMES


def _as_codes(frames: list[list[int]], checkpoint: Checkpoint) -> Int16Array:
    return np.array(frames, np.int16).reshape(len(frames), checkpoint.talker.num_codebooks)


def expected_pcm(codes: Int16Array, reference_codes: Int16Array | None = None) -> Int16Array:
    """What is heard of these frames: [frames * FRAME_SAMPLES]."""
    speaker = _Speaker()
    if reference_codes is not None:
        speaker.decode(reference_codes.tolist())
    return np.array(speaker.decode(codes.tolist()), np.int16)
