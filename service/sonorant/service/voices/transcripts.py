"""Whether a transcript can be what is said in a recording: one that nobody could say so slowly or so fast is refused.
Pure.

In recordings of seven speakers, English letters came at 12 to 20 per second of sound, pauses left out, and Chinese
characters at 3 to 6. The slow bounds are three times as slow as the slowest of these, the fast ones more than three
times as fast as the fastest by the whole duration.
"""

import re
import unicodedata

from sonorant.engine import RecordingInfo
from sonorant.service.errors import InvalidField
from sonorant.service.text.checks import is_wide

# Seconds that a character takes: at most, in sound; at least, pauses included.
_SYLLABLE_S = (1.0, 0.05)  # of a script in which each is a syllable or more
_LETTER_S = (0.25, 0.02)
_LETTER_WITHOUT_VOWELS_S = (0.5, 0.02)  # vowels are left out, or are marks, which are not counted
_WORD_S = (2.0, 0.02)  # digits, signs and letters of abbreviations, which are words; or part of one, such as 1990
_WITH_VOWELS = ("LATIN", "GREEK", "CYRILLIC", "ARMENIAN", "GEORGIAN")
_ABBREVIATION = re.compile(r"[^\W\d_](?:\.?[^\W\d_])*")
MAX_CHARS_SHOWN = 40


def check_transcript(transcript: str, recording: RecordingInfo, path: str) -> None:
    """Raise InvalidField if the recording lasts too long or too short for the transcript, by what it sounds like."""
    times = [_times_s(char, is_word=is_word) for char, is_word in _characters(transcript)]
    longest_s, shortest_s = sum(most for most, _ in times), sum(least for _, least in times)
    speech_s, duration_s = recording.speech_ms / 1000, recording.duration_ms / 1000
    shown = transcript.strip()
    shown = shown if len(shown) <= MAX_CHARS_SHOWN else f"{shown[:MAX_CHARS_SHOWN]}…"
    if speech_s > longest_s:
        raise InvalidField(
            path,
            f"{shown!r} ({len(times)} letters and digits) takes {longest_s:.1f} s at most, but in the recording there "
            f"are {speech_s:.1f} s of sound; write down all that is said, or cut the recording",
            "TRANSCRIPT_DOES_NOT_FIT",
        )
    if duration_s < shortest_s:
        raise InvalidField(
            path,
            f"{shown!r} ({len(times)} letters and digits) takes {shortest_s:.1f} s at least, but the recording lasts "
            f"{duration_s:.1f} s; write down only what is said in it",
            "TRANSCRIPT_DOES_NOT_FIT",
        )


def _characters(transcript: str) -> list[tuple[str, bool]]:
    """Return the characters that are spoken, and whether each may be a word of its own."""
    words = [(match.start(), match.end()) for match in _ABBREVIATION.finditer(transcript) if _is_spelled(match[0])]
    spelled = {at for begin, end in words for at in range(begin, end)}
    return [
        (char, at in spelled or not char.isalpha())
        for at, char in enumerate(transcript)
        if char.isalnum() or unicodedata.category(char) in ("Sc", "Sm", "So") or char in "%&@#"
    ]


def _is_spelled(word: str) -> bool:
    return len(word) > 1 and ("." in word or (word.isupper() and not is_wide(word[0])))


def _times_s(char: str, *, is_word: bool) -> tuple[float, float]:
    if is_wide(char):
        return _SYLLABLE_S
    if is_word:
        return _WORD_S
    return _LETTER_S if unicodedata.name(char, "").startswith(_WITH_VOWELS) else _LETTER_WITHOUT_VOWELS_S
