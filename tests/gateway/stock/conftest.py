"""Where the gateway is, and ears. Without a gateway there is nothing here to collect."""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable

import pytest

URL = os.environ.get("SONORANT_GATEWAY_URL", "")

if not URL:
    collect_ignore_glob = ["*/test_*.py"]


@pytest.fixture
def url() -> str:
    return URL


@pytest.fixture
def key() -> str:
    return os.environ["SONORANT_GATEWAY_KEY"]


@pytest.fixture
def narrow_key() -> str:
    """Of somebody who may speak one text at a time."""
    return os.environ["SONORANT_GATEWAY_NARROW_KEY"]


@pytest.fixture
def wyoming_port() -> int:
    return int(os.environ["SONORANT_GATEWAY_WYOMING_PORT"])


@pytest.fixture
def streams() -> Callable[[], float]:
    """How many utterances the gateway is speaking now."""
    import urllib.request

    def count() -> float:
        with urllib.request.urlopen(f"{URL}/metrics") as response:
            lines = response.read().decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("gateway_streams{"))

    return count


@pytest.fixture
def idle(streams: Callable[[], float]) -> Callable[[], Awaitable[None]]:
    """Waits until nothing is spoken any more, a second at most."""

    async def wait() -> None:
        for _ in range(50):
            if not streams():
                return
            await asyncio.sleep(0.02)
        raise AssertionError("it is still spoken a second later")

    return wait


@pytest.fixture(scope="session")
def hear() -> Callable[[bytes, int], set[str]]:
    """The words that a recognizer makes of 16-bit samples."""
    import numpy as np
    from pocketsphinx import Decoder

    silence = np.zeros(3200, np.int16)

    def words(pcm: bytes, rate_hz: int) -> set[str]:
        samples = np.frombuffer(pcm, np.int16)
        at = np.arange(0, len(samples), rate_hz / 16_000)
        resampled = np.interp(at, np.arange(len(samples)), samples).astype(np.int16)
        decoder = Decoder(samprate=16_000, loglevel="FATAL")  # one that has heard others hears something else
        decoder.start_utt()
        decoder.process_raw(np.concatenate([silence, resampled, silence]).tobytes(), no_search=False, full_utt=True)
        decoder.end_utt()
        hypothesis = decoder.hyp()
        return set(re.findall(r"[a-z']+", hypothesis.hypstr)) if hypothesis else set()

    return words
