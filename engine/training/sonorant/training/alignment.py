"""Finds which text token and which phones each codec frame speaks, from the teacher's phone times.

From the tokens (`guide`), the talker learns where to look in the text; from `phones`, the codec learns which sounds to
keep.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import soxr

from sonorant.engine.types import Int16Array
from sonorant.training.teachers.speech import PAUSE, Speech

FloatArray = npt.NDArray[np.floating[Any]]

SAMPLE_RATE_HZ = 24000
FRAME_SAMPLES = 1920
FRAME_S = FRAME_SAMPLES / SAMPLE_RATE_HZ
PHONES_PER_FRAME = 4
LEAD_S = 0.075  # of silence before the first sound; within one frame, the text gets ahead of the speech
TAIL_S = 0.12
NO_TOKEN = -1
_LEVEL_S = 0.005  # length of the blocks whose level shows where speech begins
_ONSET = 0.02  # a share of the level of speech: -34 dB


@dataclass(frozen=True, slots=True)
class AlignedSpeech:
    samples: Int16Array  # [frames * FRAME_SAMPLES], SAMPLE_RATE_HZ
    phones: npt.NDArray[np.int8]  # [frames * PHONES_PER_FRAME]
    guide: Int16Array  # [frames] index of the text token being spoken, or NO_TOKEN

    @property
    def num_frames(self) -> int:
        return len(self.guide)


def align(speech: Speech, offsets: Sequence[tuple[int, int]]) -> AlignedSpeech | None:
    """Align speech with its text; None if it is too short to use (under four frames). `offsets`: the span of characters
    of each text token."""
    starts_s, ends_s = np.array((0.0, *speech.ends_s[:-1])), np.array(speech.ends_s)
    phones = np.array(speech.phones)
    spoken = np.flatnonzero(phones != PAUSE)
    if len(spoken) == 0:
        return None
    samples = at_codec_rate(speech)
    begin_s = max(0.0, min(onset_s(samples), starts_s[spoken[0]]) - LEAD_S)
    end_s = min(ends_s[spoken[-1]] + TAIL_S, len(samples) / SAMPLE_RATE_HZ)
    samples = samples[round(begin_s * SAMPLE_RATE_HZ) : round(end_s * SAMPLE_RATE_HZ)]
    num_frames = -(-len(samples) // FRAME_SAMPLES)
    if num_frames < 4:
        return None
    samples = np.pad(samples, (0, num_frames * FRAME_SAMPLES - len(samples)))

    def at(times_s: FloatArray) -> npt.NDArray[np.intp]:
        """Indices of the phones at these times, which count from the first sample that is kept."""
        index: npt.NDArray[np.intp] = np.searchsorted(ends_s, times_s + begin_s)
        return index.clip(max=len(ends_s) - 1)

    step_s = FRAME_S / PHONES_PER_FRAME
    phone_times_s = (np.arange(num_frames * PHONES_PER_FRAME) + 0.5) * step_s
    frame_phones = np.where(phone_times_s + begin_s < ends_s[-1], phones[at(phone_times_s)], PAUSE).astype(np.int8)
    frame_times_s = (np.arange(num_frames) + 0.5) * FRAME_S
    guide = _guide(frame_times_s + begin_s, at(frame_times_s), starts_s, ends_s, speech.spans, offsets)
    return AlignedSpeech(samples, frame_phones, guide)


def at_codec_rate(speech: Speech) -> Int16Array:
    if speech.rate_hz == SAMPLE_RATE_HZ:
        return speech.samples
    resampled: Int16Array = soxr.resample(speech.samples, speech.rate_hz, SAMPLE_RATE_HZ)
    return resampled


def onset_s(samples: Int16Array) -> float:
    """When the first sound begins, by its level; a teacher's first phone begins later than its sound."""
    block = round(_LEVEL_S * SAMPLE_RATE_HZ)
    power = np.square(samples[: len(samples) // block * block].astype(np.float32)).reshape(-1, block).mean(1)
    if len(power) == 0:
        return 0.0
    return float(np.argmax(power > _ONSET**2 * np.quantile(power, 0.9))) * _LEVEL_S


def _guide(
    times_s: FloatArray,
    phone_at: npt.NDArray[np.intp],
    starts_s: FloatArray,
    ends_s: FloatArray,
    spans: Sequence[tuple[int, int] | None],
    offsets: Sequence[tuple[int, int]],
) -> Int16Array:
    """The token spoken at each frame, linear in time within a word; in silence, that of the word before.

    All NO_TOKEN if the teacher does not know which words it speaks.
    """
    words: dict[tuple[int, int], tuple[float, float]] = {}
    for span, start_s, end_s in zip(spans, starts_s, ends_s, strict=True):
        if span is not None:
            words[span] = (words.get(span, (float(start_s), 0.0))[0], float(end_s))
    guide = np.full(len(times_s), NO_TOKEN, np.int16)
    if not words:
        return guide
    tokens = {span: _tokens_of(span, offsets) for span in words}
    last = 0
    for frame, (time_s, phone) in enumerate(zip(times_s, phone_at, strict=True)):
        span = spans[phone]
        if span is not None and tokens[span]:
            begin_s, end_s = words[span]
            done = (time_s - begin_s) / max(end_s - begin_s, 1e-3)
            last = max((token for token, start in tokens[span] if start <= done), default=tokens[span][0][0])
        guide[frame] = last
    return guide


def _tokens_of(span: tuple[int, int], offsets: Sequence[tuple[int, int]]) -> list[tuple[int, float]]:
    """The tokens of a word, each with the share (0..1) of the word before it."""
    begin, end = span
    return [
        (index, max(0.0, (start - begin) / (end - begin)))
        for index, (start, stop) in enumerate(offsets)
        if start < end and stop > begin
    ]
