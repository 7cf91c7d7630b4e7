"""What the tests of all doors ask: what was said, and whether anything is left on the server."""

import asyncio
import time
import wave
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
from pocketsphinx import Decoder

from sonorant.client import SpeechClient
from sonorant.client.turn import Heard

HEARING_HZ = 16_000


def words_heard(pcm: bytes) -> list[str]:
    """By a recognizer, in 16-bit samples at HEARING_HZ."""
    decoder = Decoder(samprate=HEARING_HZ, loglevel="FATAL")
    decoder.start_utt()
    decoder.process_raw(pcm, full_utt=True)
    decoder.end_utt()
    hypothesis = decoder.hyp()
    return hypothesis.hypstr.split() if hypothesis else []


def assert_says(pcm: bytes, text: str) -> None:
    """Most of the words, whatever their order: a small recognizer mishears some."""
    wanted = {word.strip(".,!?").lower() for word in text.split()}
    heard = words_heard(pcm)
    assert len(wanted & set(heard)) >= 0.7 * len(wanted), f"{text!r} was heard as {' '.join(heard)!r}"


def beginning_of(recording: Path, duration_ms: int) -> bytes:
    """Of a mono WAV file of 16-bit samples, at HEARING_HZ."""
    with wave.open(str(recording)) as file:
        rate_hz = file.getframerate()
        samples = np.frombuffer(file.readframes(duration_ms * rate_hz // 1000), dtype="<i2")
    positions = np.arange(len(samples) * HEARING_HZ // rate_hz) * rate_hz / HEARING_HZ
    return np.interp(positions, np.arange(len(samples)), samples).astype("<i2").tobytes()


def assert_agree(transcript: str, heard: Heard) -> None:
    """A framework's own account of what was heard may be a second of speech off: it goes by a speed of its own. LiveKit
    counts a word when it has shown it for a quarter of a second a syllable."""
    said, spoken = sorted((transcript.strip(), heard.text.strip()), key=len)
    assert spoken.startswith(said)
    characters_per_s = len(heard.text) / heard.played_ms * 1000
    assert (len(spoken) - len(said)) / characters_per_s <= 1.0, f"{transcript!r} and {heard.text!r}"


async def assert_idle(target: str, within_s: float = 1.0) -> None:
    """The server's streams are all given back."""
    deadline_s = time.monotonic() + within_s
    async with SpeechClient(target) as client:
        while (busy := (await client.capabilities()).active_streams) and time.monotonic() < deadline_s:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert not busy, f"{busy} streams are still there after {within_s} s"


@asynccontextmanager
async def watched(target: str) -> AsyncIterator[Callable[[], int]]:
    """How many streams the server had when it was last asked, for those who cannot wait for an answer."""
    busy = 0

    async def watch() -> None:
        nonlocal busy
        async with SpeechClient(target) as client:
            while True:
                busy = (await client.capabilities()).active_streams
                await asyncio.sleep(0.02)

    watching = asyncio.create_task(watch())
    try:
        yield lambda: busy
    finally:
        watching.cancel()
