"""What `sonorant.asr --revise` costs and saves, by its agreement.

    python -m tests.measure.live_curve [--num 24] [--seed 1]

The hypotheses of `live_words`, and a listener who is computed: no speech is made but the recordings, so that a policy
takes a moment to try. What a phrase of the built-in voice takes is a straight line through eighty of them.
"""

import argparse
import asyncio
import tempfile
from pathlib import Path

from sonorant.asr.draft import Draft
from sonorant.asr.hypotheses import Hypothesis
from sonorant.asr.relay import AHEAD_S
from sonorant.asr.words import key
from sonorant.client import SpeechClient
from sonorant.service.text.revision import heard_to, place
from tests.e2e.server_process import ServerProcess
from tests.measure.live_words import Result, recorded

FIRST_S = 0.05  # from a phrase to its first audio
SILENCE_S, PHRASE_S, CHAR_S = 0.18, 0.39, 0.061  # before the first word, of a phrase without a character, of one more
LEAD_S, FRAME_S = 0.3, 0.08  # what was sent may have been heard


class Listener:
    """Of one recording: phrases, and when each begins."""

    def __init__(self, draft: Draft) -> None:
        self.words: list[tuple[str, float]] = []
        self._draft = draft
        self._text, self._start, self._start_s = "", 0, 0.0  # of the utterance; where its last phrase begins, and when
        self._ends: list[tuple[str, float]] = []
        self.free_s = 0.0

    def hear(self, hypotheses: list[Hypothesis]) -> None:
        before_s = 0.0
        for hypothesis in hypotheses:
            if before_s < self.free_s - AHEAD_S < hypothesis.time_s:
                self._speak(self.free_s - AHEAD_S)
            self._draft.feed(hypothesis)
            self._speak(before_s := hypothesis.time_s)
            if hypothesis.is_final:
                self._say_words()
                self._draft.finish()
                self._text, self._start = "", 0

    def _speak(self, now_s: float) -> None:
        while (change := self._draft.change(listener_waits=now_s >= self.free_s - AHEAD_S)) is not None:
            if change.appends:
                self._say_words()
                self._start, self._start_s = len(self._text), max(now_s + FIRST_S, self.free_s)
                self._text += change.text
            else:
                num_frames = max(0, int((now_s - self._start_s + LEAD_S) / FRAME_S))
                heard = heard_to(self._text, self._start, num_frames)
                at = place(self._text, change.from_char, heard, change.text)
                self._text = self._text[: at.from_char] + change.text[at.text_char :]
                self._draft.revised(change, at.from_char, at.text_char)
                self._start = min(self._start, len(self._text))
            self.free_s = self._start_s + PHRASE_S + CHAR_S * len(self._text[self._start :].strip())
            self._draft.ends_phrase()

    def _say_words(self) -> None:
        """Of the phrase, which stays as it is."""
        place_s = self._start_s + SILENCE_S
        for word in self._text[self._start :].split():
            self.words.append((key(word), place_s))
            place_s += CHAR_S * (len(word) + 1)


async def main(args: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder, ServerProcess(Path(folder) / "log") as server:
        async with SpeechClient(server.address) as client:
            recordings = await recorded(client, args.num, args.seed)
    for agreement in range(1, 11):
        result = Result()
        for ends, hypotheses in recordings:
            listener = Listener(Draft(agreement))
            listener.hear(hypotheses)
            result.add(ends, hypotheses, listener.words)
        print(f"agreement {agreement:2}: {result}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num", type=int, default=24, help="recordings")
    parser.add_argument("--seed", type=int, default=1, help="which")
    asyncio.run(main(parser.parse_args()))
