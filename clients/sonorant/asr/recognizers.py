"""The messages of Deepgram, AssemblyAI, WhisperLive and whisper_streaming as hypotheses. docs/asr.md has the formats.

The last three repeat what they have said before, or leave it out, so a reader remembers how far it has come. No I/O.
"""

import re
from typing import Any

from sonorant.asr.hypotheses import Hypothesis, HypothesisPart, parse_fields, parse_object, text_of

_CONFIRMED = re.compile(r"\s*\d+(?:\.\d+)?\s+\d+(?:\.\d+)?\s(?P<text>.*)")  # begin, end and text
_SENTENCE_ENDS = (".", "!", "?", "…", "。", "！", "？")
_DEEPGRAM_NOTICES = ("Metadata", "SpeechStarted", "UtteranceEnd")
_ASSEMBLYAI_NOTICES = ("Begin", "SpeechStarted", "Termination")
SETTLED, OPEN = 1.0, 0.0  # stabilities of what these recognizers call final, and of what they do not


class Messages:
    """The messages of one recognizer, in their order."""

    def __init__(self) -> None:
        self._last_turn = -1  # of AssemblyAI, that has ended: it may come again, formatted
        self._told_until_s = 0.0  # end of WhisperLive's last completed segment: it comes again in later messages
        self._confirmed = ""  # by whisper_streaming, since the last sentence that ended

    def parse(self, line: str, now_s: float) -> list[Hypothesis]:
        """Return the hypotheses in one message. Messages about something else have none, some have several.

        `now_s` is their time if the message has no `time_ms`. Raises ValueError if the message has another shape.
        """
        if (confirmed := _CONFIRMED.fullmatch(line)) is not None:
            return self._whisper_streaming(confirmed["text"], now_s)
        message = parse_object(line)
        kind = message.get("type")
        try:
            if kind == "Results" and "channel" in message:
                return self._deepgram(message, now_s)
            if kind == "Turn":
                return self._assemblyai(message, now_s)
            if "uid" in message:
                return self._whisper_live(message, now_s)
        except (AttributeError, LookupError, TypeError) as error:
            raise ValueError(f"a message of type {kind} has another shape than is known ({error!r})") from error
        if kind in _DEEPGRAM_NOTICES or kind in _ASSEMBLYAI_NOTICES:
            return []
        return parse_fields(message, now_s)

    def _deepgram(self, message: dict[str, Any], now_s: float) -> list[Hypothesis]:
        text = text_of(message["channel"]["alternatives"][0]["transcript"], "transcript")
        return [Hypothesis((HypothesisPart(text),), now_s, is_final=bool(message.get("is_final")))]

    def _assemblyai(self, message: dict[str, Any], now_s: float) -> list[Hypothesis]:
        if message["turn_order"] <= self._last_turn:
            return []
        if message["end_of_turn"]:
            self._last_turn = message["turn_order"]
            return [Hypothesis((HypothesisPart(text_of(message["transcript"], "transcript")),), now_s, is_final=True)]
        words = message["words"]
        num_final = next((number for number, word in enumerate(words) if not word["word_is_final"]), len(words))
        texts = [text_of(word["text"], "words.text") for word in words]
        settled, later = " ".join(texts[:num_final]), " ".join(texts[num_final:])
        space = " " if settled and later else ""
        return [Hypothesis((HypothesisPart(settled, SETTLED), HypothesisPart(space + later, OPEN)), now_s)]

    def _whisper_live(self, message: dict[str, Any], now_s: float) -> list[Hypothesis]:
        found: list[Hypothesis] = []
        later: list[HypothesisPart] = []
        for segment in message.get("segments", ()):
            if float(segment["end"]) <= self._told_until_s:
                continue
            text = text_of(segment["text"], "segments.text").strip()
            if segment.get("completed"):
                self._told_until_s = float(segment["end"])
                found.append(Hypothesis((HypothesisPart(text),), now_s, is_final=True))
            else:
                later.append(HypothesisPart(" " * bool(later) + text))
        return [*found, Hypothesis(tuple(later), now_s)] if later else found

    def _whisper_streaming(self, text: str, now_s: float) -> list[Hypothesis]:
        self._confirmed += text_of(text, "text")
        whole = self._confirmed.strip()
        if not whole.endswith(_SENTENCE_ENDS):
            return [Hypothesis((HypothesisPart(whole, SETTLED),), now_s)] if whole else []
        self._confirmed = ""
        return [Hypothesis((HypothesisPart(whole),), now_s, is_final=True)]
