"""What the tests of all doors ask: what was said, and whether anything is left on the server."""

import asyncio
import time

from pocketsphinx import Decoder

from sonorant.client import SpeechClient

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


async def assert_idle(target: str, within_s: float = 1.0) -> None:
    """The server's streams are all given back."""
    deadline_s = time.monotonic() + within_s
    async with SpeechClient(target) as client:
        while (busy := (await client.capabilities()).active_streams) and time.monotonic() < deadline_s:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert not busy, f"{busy} streams are still there after {within_s} s"
