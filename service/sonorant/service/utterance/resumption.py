"""Resuming an utterance that another session began, perhaps on another server. Pure.

Audio that the listener has is not sent again, but all later audio must be as if it had been: page numbers, Opus frames,
the filters' memory. So the writer gets silence for the audio that the listener has, except for the last of it, which it
gets as it was. Its output for these is dropped, exact to the sample.
"""

import math
from dataclasses import dataclass, field

import numpy as np

from sonorant.engine import EngineInfo, Int16Array
from sonorant.service.audio.writer import AudioSpec, Piece
from sonorant.service.errors import CheckpointDiffers, InvalidField
from sonorant.service.utterance.receipts import ProvenHeard, Receipts
from sonorant.tts.v1 import audio_pb2, speak_pb2

CHARS_PER_S = 15  # of English speech
MAX_FRAMES = 20_000  # of all segments, 26 minutes; they stay in memory until the utterance is spoken
MAX_PARTS = 4096  # segments, or places where text was committed; each costs time on the event loop
MAX_RECEIVED_MS = 24 * 3600 * 1000
MAX_WORD_MS = 10_000  # a mark whose word ends so long after the audio received is no mark
# Codec frames that the writer gets again to reach its old state. A resampler remembers 2 ms; an Opus encoder adapts
# within some packets. The stretcher's state depends on all that came before, so with it nothing is shortened.
_FRAMES_AGAIN, _FRAMES_AGAIN_OPUS = 1, 5
_OPUS = (audio_pb2.AUDIO_ENCODING_OPUS, audio_pb2.AUDIO_ENCODING_OGG_OPUS)


@dataclass(frozen=True, slots=True)
class KnownSegment:
    codes: Int16Array  # [frames, codebooks]
    complete: bool  # whether these are all frames of the segment
    draw: int = 0  # the draw with which they were made, and with which it goes on
    unsent_samples: int = 0  # silence at the beginning that was left out, at the engine's rate


@dataclass(frozen=True, slots=True)
class Resumption:
    """A checked Resume message."""

    received_samples: int = 0
    received_chunks: int = 0
    segments: tuple[KnownSegment, ...] = ()
    committed_chars: tuple[int, ...] = ()
    played_ms: int | None = None
    heard: ProvenHeard | None = None  # what was charged already, as a receipt proves
    word_ends: tuple[tuple[int, int], ...] = ()  # of words that another session told: offset in the text, ms

    def received_ms(self, sample_rate_hz: int) -> float:
        return self.received_samples * 1000 / sample_rate_hz


def check_resume(
    resume: speak_pb2.Resume, info: EngineInfo, max_frames: int, audio: AudioSpec, receipts: Receipts | None
) -> Resumption:
    """Check a Resume. `max_frames`: limit per segment. The engine checks the codes. `receipts`: None for a
    caller without a limit of text. A receipt that is not valid counts as none. Raises CheckpointDiffers or
    InvalidField.
    """
    if resume.checkpoint != info.fingerprint:
        raise CheckpointDiffers(
            f"the utterance was begun with checkpoint {resume.checkpoint!r}, which this server does not have; "
            "speak the rest of its text as a new utterance"
        )
    for name, parts, most in (
        ("segments", resume.segments, MAX_PARTS),
        ("committed_chars", resume.committed_chars, MAX_PARTS),
        ("marks", resume.marks, MAX_FRAMES),
    ):
        if len(parts) > most:
            raise InvalidField(f"resume.{name}", f"{len(parts)} are over the limit of {most}")
    received_ms = resume.received_samples * 1000 / audio.sample_rate_hz
    if received_ms > MAX_RECEIVED_MS:
        raise InvalidField("resume.received_samples", f"{resume.received_samples} are more than a day has")
    segments: list[KnownSegment] = []
    frames_left = MAX_FRAMES
    for number, told in enumerate(resume.segments):
        segments.append(_known_segment(told, number, info, max_frames, frames_left))
        frames_left -= len(segments[-1].codes)
    heard = None
    word_ends = [(mark.text_end, mark.end_ms) for mark in resume.marks if mark.end_ms <= received_ms + MAX_WORD_MS]
    if receipts is not None:
        heard = receipts.heard(resume, audio, [(each.codes, each.complete) for each in segments])
        # Receipts say how far the text was heard, so they must not follow from what a client claims.
        proven_chars = len(heard.text) if heard is not None else 0
        word_ends = [word for word in word_ends if word[0] <= proven_chars]
    return Resumption(
        resume.received_samples,
        resume.received_chunks,
        tuple(segments),
        tuple(resume.committed_chars),
        resume.played_ms if resume.HasField("played_ms") else None,
        heard,
        tuple(word_ends),
    )


def _known_segment(
    told: audio_pb2.SegmentCodes, number: int, info: EngineInfo, max_frames: int, frames_left: int
) -> KnownSegment:
    """Check what a client told of segment `number`. `frames_left`: the most that it may have of those of all segments.
    Raises InvalidField."""
    path, frame_bytes = f"resume.segments[{number}]", 2 * info.num_codebooks
    if told.segment != number:
        why = f"{told.segment} in place of {number}; join codes by segment, in order"
        raise InvalidField(f"{path}.segment", why)
    num_frames, rest = divmod(len(told.codes), frame_bytes)
    if rest or num_frames > max_frames:
        why = f"{len(told.codes)} bytes are not up to {max_frames} frames of {frame_bytes} bytes"
        raise InvalidField(f"{path}.codes", why)
    if num_frames > frames_left:
        raise InvalidField(f"{path}.codes", f"more than {MAX_FRAMES} frames in all; speak the rest as a new text")
    if told.unsent_samples > num_frames * info.frame_samples:
        why = f"{told.unsent_samples} are more than {num_frames} frames have; send what came"
        raise InvalidField(f"{path}.unsent_samples", why)
    codes = np.frombuffer(told.codes, "<u2").astype(np.int16).reshape(num_frames, info.num_codebooks)
    return KnownSegment(codes, told.complete, told.draw, told.unsent_samples)


@dataclass(slots=True, eq=False)
class Skipped:
    """Counts the audio of an utterance that is still to be dropped, since the listener has it."""

    resumption: Resumption
    audio: AudioSpec
    frame_samples: int  # at the engine's rate
    _left_samples: int = field(init=False)  # at the rate of the wire
    _left_headers: int = field(init=False)

    def __post_init__(self) -> None:
        self._left_samples = self.resumption.received_samples
        self._left_headers = min(1, self.resumption.received_chunks)

    @property
    def has_more(self) -> bool:
        return self._left_samples > 0

    @property
    def is_over(self) -> bool:
        """Whether nothing is dropped any more."""
        return self._left_samples <= 0 and self._left_headers <= 0

    def draw_of_segment(self, number: int) -> int:
        return self.resumption.segments[number].draw if number < len(self.resumption.segments) else 0

    def num_frames(self, speed: float) -> int:
        """Return how many frames the listener has at most, if `speed` is the fastest of a segment."""
        unsent_samples = sum(segment.unsent_samples for segment in self.resumption.segments)
        sent_per_frame = self._sent_per_frame(speed)
        return math.ceil(unsent_samples / self.frame_samples + self.resumption.received_samples / sent_per_frame)

    def of_segment(self, number: int, speed: float) -> KnownSegment | None:
        """Return the first frames of a segment, which need no audio; `complete`: whether these are all its frames.
        `speed`: of the segment."""
        if not self.has_more or number >= len(self.resumption.segments):
            return None
        known = self.resumption.segments[number]
        unsent_frames, sent_per_frame = known.unsent_samples / self.frame_samples, self._sent_per_frame(speed)
        if known.complete and (len(known.codes) - unsent_frames) * sent_per_frame <= self._left_samples:
            return known
        if speed != 1:
            return None
        again = _FRAMES_AGAIN_OPUS if self.audio.encoding in _OPUS else _FRAMES_AGAIN
        num_frames = int(unsent_frames + self._left_samples / sent_per_frame) - again
        if num_frames <= 0:
            return None
        codes = known.codes[:num_frames]
        return KnownSegment(codes, False, known.draw, min(known.unsent_samples, len(codes) * self.frame_samples))

    def _sent_per_frame(self, speed: float) -> float:
        """Return how many samples at the rate of the wire a frame has."""
        return self.frame_samples * self.audio.sample_rate_hz / (self.audio.native_rate_hz * speed)

    def drops(self, piece: Piece) -> bool:
        """Return whether to drop the next piece. Must be called for all pieces in order."""
        if not piece.num_samples and self._left_headers:
            self._left_headers = 0
            return True
        if not self.has_more:
            return False
        self._left_samples -= piece.num_samples
        return True
