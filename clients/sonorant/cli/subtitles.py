"""Makes subtitles from words and their times, in the formats SubRip and WebVTT. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sonorant.tts.v1.synthesis_pb2 import Mark

FORMATS = (".srt", ".vtt")
MAX_CHARS = 84  # two lines in common players
MAX_MS = 6000
PAUSE_MS = 700
_SENTENCE_ENDS = frozenset(".!?…。！？")


@dataclass(frozen=True, slots=True)
class Caption:
    """Words that are shown together."""

    start_ms: int
    end_ms: int
    text: str


def captions(marks: Sequence[Mark]) -> list[Caption]:
    """Group words into captions. A new one begins after a sentence, after a pause, and when one would get too long."""
    made: list[Caption] = []
    for before, mark in zip([None, *marks], marks, strict=False):
        last = made[-1] if made else None
        gap = "" if before is not None and before.text_end == mark.text_start else " "
        if (
            last is None
            or last.text[-1] in _SENTENCE_ENDS
            or mark.start_ms - last.end_ms > PAUSE_MS
            or mark.end_ms - last.start_ms > MAX_MS
            or len(last.text) + len(gap) + len(mark.text) > MAX_CHARS
        ):
            made.append(Caption(mark.start_ms, mark.end_ms, mark.text))
        else:
            made[-1] = Caption(last.start_ms, mark.end_ms, last.text + gap + mark.text)
    return made


def subtitles(marks: Sequence[Mark], suffix: str) -> str:
    """The content of a subtitle file; `suffix` is one of FORMATS."""
    shown = captions(marks)
    if suffix == ".vtt":
        # Escape characters that would be markup.
        texts = [each.text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") for each in shown]
        blocks = [f"{_range(each, '.')}\n{text}" for each, text in zip(shown, texts, strict=True)]
        return _joined(["WEBVTT", *blocks])
    return _joined(f"{number}\n{_range(each, ',')}\n{each.text}" for number, each in enumerate(shown, 1))


def _range(caption: Caption, point: str) -> str:
    return f"{_time(caption.start_ms, point)} --> {_time(caption.end_ms, point)}"


def _time(ms: int, point: str) -> str:
    seconds, ms = divmod(ms, 1000)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{point}{ms:03}"


def _joined(blocks: Iterable[str]) -> str:
    return "\n\n".join(blocks) + "\n"
