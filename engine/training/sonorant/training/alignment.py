"""Finds which text token and which phones each codec frame speaks, from the teacher's phone times.

From the tokens (`guide`), the talker learns where to look in the text; from `phones`, the codec learns which sounds to
keep.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sonorant.engine.types import Int16Array
from sonorant.training.flite import SAMPLE_RATE_HZ, Speech

FloatArray = npt.NDArray[np.floating[Any]]

FRAME_S = 0.08
FRAME_SAMPLES = round(FRAME_S * SAMPLE_RATE_HZ)
PHONES_PER_FRAME = 4
LEAD_S = 0.16  # two frames of silence before the first sound, in which the text gets ahead of the speech
TAIL_S = 0.12
NO_TOKEN = -1

_WORD = re.compile(r"\S+")
_SPOKEN = re.compile(r"[A-Za-z0-9]")


@dataclass(frozen=True, slots=True)
class AlignedSpeech:
    samples: Int16Array  # [frames * FRAME_SAMPLES], 16 kHz
    phones: npt.NDArray[np.int8]  # [frames * PHONES_PER_FRAME]
    guide: Int16Array  # [frames] index of the text token being spoken, or NO_TOKEN

    @property
    def num_frames(self) -> int:
        return len(self.guide)


def align(speech: Speech, text: str, offsets: Sequence[tuple[int, int]]) -> AlignedSpeech | None:
    """Align speech with its text; None if it is too short to use (under four frames). `offsets`: the span of characters
    of each text token."""
    starts_s, ends_s = np.array((0.0, *speech.ends_s[:-1])), np.array(speech.ends_s)
    phones, words = np.array(speech.phones), np.array(speech.words)
    spoken = np.flatnonzero(words >= 0)
    if len(spoken) == 0:
        return None
    begin_s = max(0.0, starts_s[spoken[0]] - LEAD_S)
    end_s = min(ends_s[spoken[-1]] + TAIL_S, len(speech.samples) / SAMPLE_RATE_HZ)
    samples = speech.samples[round(begin_s * SAMPLE_RATE_HZ) : round(end_s * SAMPLE_RATE_HZ)]
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
    frame_phones = np.where(phone_times_s + begin_s < ends_s[-1], phones[at(phone_times_s)], 0).astype(np.int8)
    frame_times_s = (np.arange(num_frames) + 0.5) * FRAME_S
    guide = _guide(frame_times_s + begin_s, at(frame_times_s), starts_s, ends_s, words, text, offsets)
    return AlignedSpeech(samples, frame_phones, guide)


def _guide(
    times_s: FloatArray,
    phone_at: npt.NDArray[np.intp],
    starts_s: FloatArray,
    ends_s: FloatArray,
    words: npt.NDArray[np.intp],
    text: str,
    offsets: Sequence[tuple[int, int]],
) -> Int16Array:
    """The token spoken at each frame, linear in time within a word.

    All NO_TOKEN if flite splits the text into words in another way than whitespace does.
    """
    guide = np.full(len(times_s), NO_TOKEN, np.int16)
    tokens_of_word = _tokens_by_word(text, offsets)
    if words.max() + 1 != len(tokens_of_word):
        return guide
    last = 0
    for frame, (time_s, phone) in enumerate(zip(times_s, phone_at, strict=True)):
        word = words[phone]
        if word >= 0:
            inside = np.flatnonzero(words == word)
            begin_s, end_s = starts_s[inside[0]], ends_s[inside[-1]]
            done = (time_s - begin_s) / max(end_s - begin_s, 1e-3)
            tokens = tokens_of_word[word]
            last = max((token for token, start in tokens if start <= done), default=tokens[0][0])
        guide[frame] = last
    return guide


def _tokens_by_word(text: str, offsets: Sequence[tuple[int, int]]) -> list[list[tuple[int, float]]]:
    """For each spoken word, its tokens, each with the share (0..1) of the word before it. Punctuation is not spoken."""
    result = []
    for match in _WORD.finditer(text):
        begin, end = match.span()
        while end > begin and not text[end - 1].isalnum():
            end -= 1
        if not _SPOKEN.search(text, begin, end):
            continue
        tokens = [
            (index, max(0.0, (start - begin) / (end - begin)))
            for index, (start, stop) in enumerate(offsets)
            if start < end and stop > begin
        ]
        result.append(tokens)
    return result
