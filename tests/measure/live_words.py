"""How long after a speaker's word the interpreter says it, and how many words are wrong: held back, or corrected.

    python -m tests.measure.live_words [--num 6]

Needs pocketsphinx. The built-in voice speaks pairs of sentences, pocketsphinx hears them, and its hypotheses go to a
real server at the times at which they were made, through the gate of `sonorant.asr` and as a draft that is revised. The
delay of a word runs from its end in the recording (pocketsphinx, told the text) to its mark in the audio as a player
plays it. Wrong are words of the speech that differ from the recognizer's final ones.
"""

import argparse
import asyncio
import difflib
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import soxr
from pocketsphinx import Decoder

from sonorant.asr.commit import CommitPolicy
from sonorant.asr.draft import Draft
from sonorant.asr.hypotheses import Hypothesis
from sonorant.asr.relay import Relay, RevisingRelay
from sonorant.asr.sphinx import SAMPLE_RATE_HZ, recognize
from sonorant.asr.words import key
from sonorant.client import AudioChunk, Revised, SpeechClient, UtteranceDone, synthesis_config
from sonorant.tts.v1.synthesis_pb2 import TIMESTAMP_MODE_PROGRESS, Marks
from tests.e2e.server_process import ServerProcess
from tests.measure.mark_error import sentences

POLICIES = {"gate": lambda: CommitPolicy()} | {
    f"revised, {f'phrases of {n} words' if n else 'no phrases'}": lambda n=n: Draft(phrase_words=n) for n in (0, 4)
}


def ends_s(text: str, pcm: bytes) -> list[tuple[str, float]] | None:
    """The words of a recording and when each ends; None if they cannot be found in it."""
    decoder = Decoder(samprate=SAMPLE_RATE_HZ, loglevel="FATAL")
    words = "".join(c if c.isalpha() else " " for c in text.lower()).split()
    decoder.set_align_text(" ".join(words))
    decoder.start_utt()
    decoder.process_raw(pcm, full_utt=True)
    decoder.end_utt()
    found = [segment for segment in decoder.seg() or () if segment.word[0] not in "<("]
    if len(found) != len(words):
        return None
    return [(word, segment.end_frame / 100) for word, segment in zip(words, found, strict=True)]


class Player:
    """When each moment of an utterance is heard, if what comes is played at once and without gaps where it can be."""

    def __init__(self, start_s: float) -> None:
        self._start_s = start_s
        self._free_s = 0.0
        self._chunks: list[tuple[str, float, float, float]] = []  # utterance, its ms, their length, when they are heard
        self.marks: dict[tuple[str, int], tuple[str, int]] = {}  # by utterance and place: word, ms

    def take(self, utterance_id: str, payload: object) -> None:
        match payload:
            case AudioChunk(num_samples=num_samples, start_ms=start_ms) if num_samples:
                heard_s = max(time.monotonic() - self._start_s, self._free_s)
                self._free_s = heard_s + num_samples / 24_000
                self._chunks.append((utterance_id, start_ms, num_samples / 24, heard_s))
            case Marks(marks=marks):
                for mark in marks:
                    self.marks[utterance_id, mark.text_start] = mark.text, mark.start_ms

    def words(self) -> list[tuple[str, float]]:
        """And when each is heard, in order."""
        found = []
        for (utterance_id, _), (word, ms) in self.marks.items():
            begun = [each for each in self._chunks if each[0] == utterance_id and each[1] <= ms]
            _, start_ms, _, heard_s = max(begun, key=lambda each: each[1])
            found.append((key(word), heard_s + (ms - start_ms) / 1000))
        return found


async def interpret(client: SpeechClient, hypotheses: list[Hypothesis], policy: CommitPolicy | Draft) -> Player:
    async with client.speak(synthesis_config(seed=7), max_lead_ms=200, timestamps=TIMESTAMP_MODE_PROGRESS) as session:
        start_s = time.monotonic()
        player = Player(start_s)

        async def live() -> AsyncIterator[Hypothesis]:
            for hypothesis in hypotheses:
                await asyncio.sleep(start_s + hypothesis.time_s - time.monotonic())
                yield hypothesis

        relay: Relay | RevisingRelay
        if isinstance(policy, Draft):
            relay = RevisingRelay(session, policy, lambda words: None, lambda: None)
        else:
            relay = Relay(session, policy, lambda words: None, lambda: None)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(relay.send(live()))
            async for event in session:
                player.take(event.utterance_id, event.payload)
                if isinstance(event.payload, Revised) and isinstance(relay, RevisingRelay):
                    relay.revised(event.payload)
                if isinstance(event.payload, UtteranceDone):
                    relay.done(event.utterance_id)
    return player


async def main(args: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with ServerProcess(folder / "log") as server:
            async with SpeechClient(server.address) as client:
                recordings, texts = [], sentences(2 * args.num)
                for number in range(args.num):
                    text = " ".join(texts[2 * number : 2 * number + 2])
                    clip = await client.synthesize(text, synthesis_config(encoding="wav", seed=number))
                    (path := folder / f"{number}.wav").write_bytes(clip.audio)
                    samples = soxr.resample(np.frombuffer(clip.audio[44:], np.int16), 24_000, SAMPLE_RATE_HZ)
                    ends = ends_s(text, samples.astype(np.int16).tobytes())
                    if ends is not None:
                        recordings.append((ends, list(recognize(path))))
                for title, make in POLICIES.items():
                    delays_s: list[float] = []
                    num_wrong = num_words = 0
                    for ends, hypotheses in recordings:
                        spoken = (await interpret(client, hypotheses, make())).words()
                        finals = [key(w) for h in hypotheses if h.is_final for w in h.text.split()]
                        num_words += len(finals)
                        said = [word for word, _ in spoken]
                        same = sum(block.size for block in matching(finals, said))
                        num_wrong += max(len(finals), len(said)) - same
                        for block in matching([word for word, _ in ends], said):
                            delays_s += [spoken[block.b + k][1] - ends[block.a + k][1] for k in range(block.size)]
                    print(
                        f"{title:26} {num_words} words, wrong {num_wrong / num_words:6.1%}; word end to speech, s: "
                        f"p50 {np.percentile(delays_s, 50):.2f} p95 {np.percentile(delays_s, 95):.2f}",
                        flush=True,
                    )


def matching(a: list[str], b: list[str]) -> list[difflib.Match]:
    return difflib.SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.measure.live_words", description=__doc__)
    parser.add_argument("--num", type=int, default=6, help="recordings")
    return parser


if __name__ == "__main__":
    asyncio.run(main(_parser().parse_args()))
