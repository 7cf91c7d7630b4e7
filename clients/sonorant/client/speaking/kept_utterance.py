"""What a session keeps of one utterance until it is done, to continue it on another server. Pure."""

import sys
from array import array
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple

from sonorant.client.speaking.heard import chars_heard
from sonorant.client.speaking.texts import apply, text_of
from sonorant.tts.v1.audio_pb2 import AudioChunk, Receipt, SegmentCodes
from sonorant.tts.v1.speak_pb2 import Resume, Revise, Revised, SpeakConfig, SpeakRequest
from sonorant.tts.v1.synthesis_pb2 import (
    FINISH_REASON_CANCELLED,
    Mark,
    Marks,
    SynthesisConfig,
    SynthesisStats,
    UtteranceDone,
    UtteranceStarted,
)

# Limit for one utterance: five minutes of speech. After a loss, a longer one is generated again from its seed.
MAX_CODES_BYTES = 128 * 1024


class _Codes(NamedTuple):
    """Codes as they came, but not the message, which would keep its audio. Hardly a session needs them, so they are
    unpacked only when one does. They replace all codes of their segment from `offset` on."""

    offset: int
    data: bytes
    num_codebooks: int
    bits: int  # of a packed code; 0: they are not packed

    @property
    def unpacked(self) -> bytes:
        return unpacked(self.data, self.num_codebooks, self.bits) if self.bits else self.data

    @property
    def num_bytes(self) -> int:
        """How many there are when they are unpacked."""
        if not self.bits:
            return len(self.data)
        return len(self.data) // _frame_bytes(self.num_codebooks, self.bits) * 2 * self.num_codebooks


@dataclass(slots=True)
class _Segment:
    parts: list[_Codes] = field(default_factory=list)
    complete: bool = False
    draw: int = 0
    unsent_samples: int = 0

    def codes(self) -> bytes:
        codes = bytearray()
        for part in self.parts:
            codes[part.offset :] = part.unpacked
        return bytes(codes)


@dataclass(slots=True)
class KeptUtterance:
    config: SpeakConfig  # with which it was opened, as far as a later config may change it
    requests: list[SpeakRequest] = field(default_factory=list)  # text, flushes, end; revisions without an answer yet
    text_ended: bool = False
    # The utterance ended before its text did. The server discards the rest of the text, and so does the journal.
    over: bool = False
    heard_ms: float | None = None  # set by a cancel: the listener hears no more of it
    started: UtteranceStarted | None = None
    received_samples: int = 0
    received_chunks: int = 0
    receipt: Receipt | None = None
    segments: dict[int, _Segment] = field(default_factory=dict)
    codes_bytes: int = 0
    committed_chars: list[int] = field(default_factory=list)
    played_ms: int | None = None
    num_flushes_done: int = 0
    word_ends: list[tuple[int, int]] = field(default_factory=list)  # of the marks received: time in ms, text offset
    warned: set[str] = field(default_factory=set)
    # For a resumed utterance: which responses come a second time.
    resumed: bool = False
    flushes_to_skip: int = 0
    started_again: bool = False
    num_given_up: int = 0  # how often servers have given it up since its last audio
    ignored: bool = False  # the server has not opened it, because an earlier utterance has the same id
    # True = it was over before the server was lost, so the next server does not know it.
    unknown_to_server: bool = False

    @property
    def cancelled(self) -> bool:
        return self.heard_ms is not None

    @property
    def text(self) -> str:
        return text_of(self.requests)

    @property
    def received_ms(self) -> float:
        rate_hz = self.started.audio.sample_rate_hz if self.started is not None else 0
        return self.received_samples * 1000 / rate_hz if rate_hz else 0.0

    def take_audio(self, audio: AudioChunk) -> None:
        if audio.data:
            self.received_samples += audio.num_samples
            self.received_chunks += 1
            self.num_given_up = 0
        if audio.HasField("receipt"):
            self.receipt = audio.receipt
        for part in audio.codes:
            segment = self.segments.setdefault(part.segment, _Segment())
            if part.packed and self.started is not None:
                codes = _Codes(part.offset, part.packed, self.started.codebooks, self.started.code_bits)
            else:
                codes = _Codes(part.offset, part.codes, 0, 0)
            self.codes_bytes += codes.num_bytes
            segment.parts.append(codes)
            segment.complete = segment.complete or part.complete
            segment.draw, segment.unsent_samples = part.draw, part.unsent_samples
        if self.codes_bytes > MAX_CODES_BYTES:
            self.segments.clear()

    def take_marks(self, marks: Marks) -> bool:
        """Leave out the marks that came before, and return whether there are others."""
        marked_ms, marked_chars = self.word_ends[-1] if self.word_ends else (0, 0)
        fresh = [
            mark
            for mark in marks.marks
            # Words of one phrase that is said otherwise than written have one place in the text.
            if mark.text_end > marked_chars or (mark.text_end == marked_chars and mark.start_ms >= marked_ms)
        ]
        if len(fresh) < len(marks.marks):
            del marks.marks[:]
            marks.marks.extend(fresh)
        self.word_ends += [(mark.end_ms, mark.text_end) for mark in fresh]
        return bool(fresh)

    def apply_revised(self, revised: Revised) -> None:
        """Replace the first unanswered revision, and all text before it, by what the server made of it."""
        place = next((k for k, request in enumerate(self.requests) if request.HasField("revise")), None)
        if place is None:
            return
        text = self.requests[place].revise.text[revised.text_char :]
        applied = Revise(from_char=revised.from_char, text=text)
        self.requests[: place + 1] = apply(self.requests[:place], applied)
        self.committed_chars = [chars for chars in self.committed_chars if chars <= revised.from_char]
        self.word_ends = [(end_ms, end) for end_ms, end in self.word_ends if end <= revised.from_char]

    def resume(self) -> Resume:
        assert self.started is not None
        replay = SynthesisConfig()
        replay.CopyFrom(self.started.replay)
        if self.config.synthesis.HasField("voice") and not replay.HasField("voice"):
            # A recording or a description, which `replay` leaves out.
            replay.voice.CopyFrom(self.config.synthesis.voice)
        segments = [
            SegmentCodes(
                segment=number,
                codes=segment.codes(),
                complete=segment.complete,
                draw=segment.draw,
                unsent_samples=segment.unsent_samples,
            )
            for number, segment in sorted(self.segments.items())
        ]
        return Resume(
            replay=replay,
            checkpoint=self.started.checkpoint,
            received_samples=self.received_samples,
            received_chunks=self.received_chunks,
            segments=segments,
            committed_chars=self.committed_chars,
            played_ms=self.played_ms,
            receipt=self.receipt,
            heard_text=self._proven_text(),
            marks=[Mark(end_ms=end_ms, text_end=end) for end_ms, end in self.word_ends],
        )

    def _proven_text(self) -> str:
        """Return the text that the receipt is about. A revision without an answer changes only later text."""
        if self.receipt is None:
            return ""
        settled = takewhile(lambda request: not request.HasField("revise"), self.requests)
        return "".join(request.text for request in settled)[: self.receipt.chars]

    def cancelled_done(self, ms_per_char: float) -> UtteranceDone:
        """Return the `done` of a cancelled utterance whose server is lost."""
        text, heard_ms = self.text, min(self.heard_ms or 0.0, self.received_ms)
        stats = SynthesisStats(
            input_chars=len(text),
            sent_ms=round(self.received_ms),
            played_ms=self.played_ms or 0,
            spoken_chars=chars_heard(text, self.word_ends, heard_ms, ms_per_char),
        )
        return UtteranceDone(reason=FINISH_REASON_CANCELLED, stats=stats)


def unpacked(packed: bytes, num_codebooks: int, bits: int) -> bytes:
    """Return packed codes in the layout of `SegmentCodes.codes`, which `Resume` needs."""
    frame_bytes = _frame_bytes(num_codebooks, bits)
    mask = (1 << bits) - 1
    codes = array("H")
    for at in range(0, len(packed), frame_bytes):
        frame = int.from_bytes(packed[at : at + frame_bytes], "little")
        codes.extend(frame >> shift & mask for shift in range(0, num_codebooks * bits, bits))
    if sys.byteorder == "big":
        codes.byteswap()
    return codes.tobytes()


def _frame_bytes(num_codebooks: int, bits: int) -> int:
    return -(-num_codebooks * bits // 8)
