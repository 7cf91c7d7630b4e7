"""Whose voice speaks an utterance of a load: a preset, one cloned from a recording, or one designed from a description.

Recordings come from a folder or are made here, so that nothing has to be downloaded: harmonics of a changing pitch, in
16 bits, at several sample rates. Those of different numbers have different bytes.
"""

import array
import math
import random
import struct
from dataclasses import dataclass
from functools import cache
from itertools import cycle, islice
from pathlib import Path
from typing import Literal

Task = Literal["preset", "clone", "design"]
TASKS: tuple[Task, ...] = ("preset", "clone", "design")

RATES_HZ = (24_000, 16_000, 48_000, 22_050, 44_100)
SHORTEST_S, LONGEST_S = 3.0, 15.0
WORDS_PER_S = 2.5
SUFFIXES = (".wav", ".flac", ".ogg", ".mp3", ".m4a", ".webm")
WORDS = "the lamp by the window was left on all night so that the last of us would find the door"


@dataclass(frozen=True, slots=True)
class BenchRecording:
    audio: bytes  # a file
    transcript: str  # "" = unknown


@dataclass(frozen=True, slots=True)
class Voices:
    """The voice of each utterance of a load, by its number."""

    task: Task = "preset"
    name: str = ""  # of a preset
    design: str = ""
    num_recordings: int = 0  # in rotation; 0 = each is sent once
    recording_s: float = 0.0  # how long those made here last; 0 = 3 to 15 s
    files: tuple[tuple[Path, str], ...] = ()  # recordings and their transcripts, instead of those made here
    salt: int = 0  # of a run, so that its recordings were never sent before

    def recording(self, number: int) -> BenchRecording:
        """Return the recording of an utterance; blocks for a millisecond, the first of each rate for some more."""
        number = number % self.num_recordings if self.num_recordings else number
        if self.files:
            path, transcript = self.files[number % len(self.files)]
            return BenchRecording(path.read_bytes(), transcript)
        return made(number, self.recording_s, self.salt)

    def warm_up(self) -> None:
        """Make what all recordings are made of now."""
        if self.task == "clone":
            for number in range(len(RATES_HZ)):
                self.recording(number)

    def was_sent(self, number: int) -> bool | None:
        """Whether the recording of an utterance is that of an earlier one, too; None without recordings."""
        if self.task != "clone":
            return None
        different = len(self.files) if self.files else self.num_recordings
        if self.files and self.num_recordings:
            different = min(different, self.num_recordings)
        return bool(different) and number >= different


PRESET = Voices()


def voices_in(folder: Path) -> tuple[tuple[Path, str], ...]:
    """Return the recordings of a folder; the transcript of `a.wav` is in `a.txt`. Raises ValueError for none."""
    found = sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)
    if not found:
        raise ValueError(f"{folder} has no recordings ({', '.join(SUFFIXES)})")
    texts = ((path, path.with_suffix(".txt")) for path in found)
    return tuple((path, text.read_text(encoding="utf-8").strip() if text.exists() else "") for path, text in texts)


def made(number: int, seconds: float, salt: int) -> BenchRecording:
    """Return the recording of a number, which is the same in every process of a run."""
    chance = random.Random(f"sonorant-bench/recording/{salt}/{number}")
    rate_hz = RATES_HZ[number % len(RATES_HZ)]
    seconds = seconds or chance.uniform(SHORTEST_S, LONGEST_S)
    second = _second(rate_hz)
    begin = 2 * chance.randrange(rate_hz)
    whole = (second * (2 + math.ceil(seconds)))[begin : begin + 2 * round(seconds * rate_hz)]
    mark = struct.pack("<4h", *(chance.randint(-2000, 2000) for _ in range(4)))
    words = list(islice(cycle(WORDS.split()), max(1, round(seconds * WORDS_PER_S))))
    return BenchRecording(wav(mark + whole[len(mark) :], rate_hz), " ".join(words).capitalize() + ".")


def wav(samples: bytes, rate_hz: int) -> bytes:
    head = struct.pack("<HHIIHH", 1, 1, rate_hz, 2 * rate_hz, 2, 16)
    parts = (b"RIFF", struct.pack("<I", 36 + len(samples)), b"WAVEfmt ", struct.pack("<I", 16), head)
    return b"".join((*parts, b"data", struct.pack("<I", len(samples)), samples))


@cache
def _second(rate_hz: int) -> bytes:
    """A second of something like a voice, in 16 bits: four syllables of a pitch that falls and rises."""
    samples, phase = array.array("h"), 0.0
    for n in range(rate_hz):
        at = n / rate_hz
        phase += 2 * math.pi * (130.0 + 15 * math.sin(2 * math.pi * at)) / rate_hz
        loudness = 0.15 + 0.85 * math.sin(4 * math.pi * at) ** 2
        value = math.sin(phase) + 0.6 * math.sin(2 * phase) + 0.4 * math.sin(5 * phase) + 0.2 * math.sin(11 * phase)
        samples.append(round(5000 * loudness * value))
    return samples.tobytes()
