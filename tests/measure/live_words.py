"""How long after a speaker's word the interpreter says it, and how many words are wrong: held back, or corrected.

    python -m tests.measure.live_words [--num 12] [--seed 1]

Needs pocketsphinx. The built-in voice speaks pairs of sentences, pocketsphinx hears them, and its hypotheses go to a
real server at the times at which they were made, through the gate of `sonorant.asr` and as a draft that is revised. The
delay of a word runs from its end in the recording (pocketsphinx, told the text) to its mark in the audio as a player
plays it. Wrong are words of the speech that differ from the recognizer's final ones.
"""

import argparse
import asyncio
import difflib
import random
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np
import soxr
from pocketsphinx import Decoder

from sonorant.asr.commit import CommitPolicy
from sonorant.asr.draft import DEFAULT_AGREEMENT, Draft
from sonorant.asr.hypotheses import Hypothesis
from sonorant.asr.relay import Relay, RevisingRelay
from sonorant.asr.sphinx import SAMPLE_RATE_HZ, recognize
from sonorant.asr.words import key
from sonorant.client import AudioChunk, SpeechClient, synthesis_config
from sonorant.tts.v1.synthesis_pb2 import TIMESTAMP_MODE_PROGRESS, Marks
from tests.e2e.server_process import ServerProcess
from tests.measure.mark_error import HELD_OUT

POLICIES = {"gate": lambda: CommitPolicy()} | {
    f"revised, agreement {n}": lambda n=n: Draft(n) for n in (2, DEFAULT_AGREEMENT)
}


def ends_s(text: str, pcm: bytes) -> list[tuple[str, float]] | None:
    """The words of a recording and when each ends; None if they cannot be found in it."""
    decoder = Decoder(samprate=SAMPLE_RATE_HZ, loglevel="FATAL")
    words = "".join(c if c.isalpha() else " " for c in text.lower()).split()
    try:
        decoder.set_align_text(" ".join(words))
    except RuntimeError:  # a word that it does not know
        return None
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
                relay.take(event)
    return player


Recording: TypeAlias = tuple[list[tuple[str, float]], list[Hypothesis]]  # its words and their ends, what was heard


async def recorded(client: SpeechClient, num: int, seed: int) -> list[Recording]:
    """Of so many those in which the words are found."""
    lines = [line.split("\t")[1] for line in HELD_OUT.read_text().splitlines()]
    texts = [text for text in lines if text.isascii() and not re.search(r"\d", text) and len(text.split()) >= 4]
    random.Random(seed).shuffle(texts)
    recordings = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(num):
            text = " ".join(texts[2 * number : 2 * number + 2])
            config = synthesis_config(voice=("wren", "linden")[number % 2], encoding="wav", seed=100 + number)
            clip = await client.synthesize(text, config)
            (path := Path(folder) / "words.wav").write_bytes(clip.audio)
            samples = soxr.resample(np.frombuffer(clip.audio[44:], np.int16), 24_000, SAMPLE_RATE_HZ)
            ends = ends_s(text, samples.astype(np.int16).tobytes())
            if ends is not None:
                recordings.append((ends, list(recognize(path))))
    return recordings


async def main(args: argparse.Namespace) -> None:
    results = {title: Result() for title in POLICIES}
    with tempfile.TemporaryDirectory() as folder, ServerProcess(Path(folder) / "log") as server:
        async with SpeechClient(server.address) as client:
            recordings = await recorded(client, args.num, args.seed)
            if not recordings:
                sys.exit(f"pocketsphinx finds the words in none of {args.num} recordings; take more with --num")
            for ends, hypotheses in recordings:
                # Side by side: what else the machine does meets them all.
                players = await asyncio.gather(*(interpret(client, hypotheses, make()) for make in POLICIES.values()))
                for result, player in zip(results.values(), players, strict=True):
                    result.add(ends, hypotheses, player.words())
    for title, result in results.items():
        print(f"{title:26} {result}")


@dataclass
class Result:
    delays_s: list[float] = field(default_factory=list)
    num_wrong: int = 0
    num_words: int = 0

    def add(self, ends: list[tuple[str, float]], hypotheses: list[Hypothesis], spoken: list[tuple[str, float]]) -> None:
        """`spoken`: words, and when each is heard."""
        finals = [key(word) for each in hypotheses if each.is_final for word in each.text.split()]
        said = [word for word, _ in spoken]
        self.num_words += len(finals)
        self.num_wrong += max(len(finals), len(said)) - sum(block.size for block in matching(finals, said))
        for block in matching([word for word, _ in ends], said):
            self.delays_s += [spoken[block.b + k][1] - ends[block.a + k][1] for k in range(block.size)]

    def __str__(self) -> str:
        p50, p95 = np.percentile(self.delays_s, (50, 95))
        return (
            f"{self.num_words} words, wrong {self.num_wrong / self.num_words:6.1%}; word end to speech, s: "
            f"p50 {p50:.2f} p95 {p95:.2f}"
        )


def matching(a: list[str], b: list[str]) -> list[difflib.Match]:
    return difflib.SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.measure.live_words", description=__doc__)
    parser.add_argument("--num", type=int, default=12, help="recordings")
    parser.add_argument("--seed", type=int, default=1, help="which")
    return parser


if __name__ == "__main__":
    asyncio.run(main(_parser().parse_args()))
