"""Whether a text that is spoken in segments is as good as its sentences alone: `python -m tests.measure.long_texts`.

A server of its own speaks everyday sentences with the built-in voice, as one text and one by one. Told are the words
that a recognizer hears wrong, and how level and pitch change from the 500 ms before to the 500 ms after a sentence's
end: at joints of segments, and within them.
"""

import argparse
import asyncio
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import soxr

from sonorant.client import SpeechClient, synthesis_config
from sonorant.client.local_server import local_server
from sonorant.engine.types import Int16Array
from sonorant.training.evaluation import acoustics
from sonorant.training.evaluation.recognizer import SAMPLE_RATE_HZ, Dictation, edit_distance, words_of
from sonorant.tts.v1.synthesis_pb2 import Mark

EVERYDAY = Path(acoustics.__file__).with_name("everyday.txt")
RATE_HZ = 24_000
SIDE_MS = 500


async def measure(voice: str, num_sentences: int) -> None:
    sentences = EVERYDAY.read_text(encoding="utf-8").splitlines()[:num_sentences]
    text = " ".join(sentences)
    config = synthesis_config(voice=voice)
    async with local_server() as target, SpeechClient(target) as client:
        pcm, marks = bytearray(), list[Mark]()
        async for payload in client.stream(text, config, timestamps=True, max_lead_ms=0):
            pcm += getattr(payload, "data", b"")
            marks += getattr(payload, "marks", ())
        whole = np.frombuffer(bytes(pcm), np.int16)
        alone = [np.frombuffer((await client.synthesize(each, config)).audio, np.int16) for each in sentences]
        segments = (await client.explain(text, config)).segments
    wanted, recognizer = words_of(text), Dictation()
    wrong = edit_distance(wanted, recognizer.hear(_for_recognizers(whole)))
    wrong_alone = sum(
        edit_distance(words_of(each), recognizer.hear(_for_recognizers(one)))
        for each, one in zip(sentences, alone, strict=True)
    )
    print(f"{voice}: {len(text)} characters in {len(segments)} segments, {len(whole) / RATE_HZ:.1f} s")
    print(f"of {len(wanted)} words {wrong} are heard wrong; {wrong_alone} of the sentences alone")
    joints = {segment.text_start for segment in segments}
    for name, at_joint in (("joints of segments", True), ("sentence ends within them", False)):
        changes = [
            _change(whole, before, after)
            for before, after in pairwise(marks)
            if text[before.text_end - 1] in ".!?" and at_joint == bool(joints & {after.text_start})
        ]
        _tell(name, changes)


def _for_recognizers(samples: Int16Array) -> Int16Array:
    heard: Int16Array = soxr.resample(samples, RATE_HZ, SAMPLE_RATE_HZ).astype(np.int16)
    return heard


def _change(samples: Int16Array, before: Mark, after: Mark) -> tuple[float, float, int]:
    """Return dB, semitones and the pause in ms from one word to the next."""
    end, begin = before.end_ms * RATE_HZ // 1000, after.start_ms * RATE_HZ // 1000
    side = SIDE_MS * RATE_HZ // 1000
    levels, pitches = [], []
    for part in (samples[max(0, end - side) : end], samples[begin : begin + side]):
        levels.append(10 * np.log10(np.mean(part.astype(float) ** 2)))
        pitches.append(acoustics.median_pitch_hz(_for_recognizers(part)))
    return levels[1] - levels[0], 12 * float(np.log2(pitches[1] / pitches[0])), after.start_ms - before.end_ms


def _tell(name: str, changes: Sequence[tuple[float, float, int]]) -> None:
    level, pitch, pause = (np.nanmedian(np.abs(each)) for each in zip(*changes, strict=True))
    print(f"{len(changes)} {name}: level {level:.1f} dB, pitch {pitch:.1f} semitones, pause {pause:.0f} ms (medians)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--voice", default="linden")
    parser.add_argument("--sentences", type=int, default=40)
    args = parser.parse_args()
    asyncio.run(measure(args.voice, args.sentences))


if __name__ == "__main__":
    main()
