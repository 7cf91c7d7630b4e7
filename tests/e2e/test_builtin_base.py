"""The built-in Base checkpoint clones what it hears, through a real server; the built-in voices make the recordings."""

from collections.abc import AsyncIterator, Iterator

import numpy as np
import pytest

from sonorant.client import SpeechClient, synthesis_config
from sonorant.training.evaluation.acoustics import median_pitch_hz
from tests.e2e.server_process import ServerProcess

SAID = "The weather is fine today, so we are going to the park."
TEXT = "Please bring me a glass of water and the newspaper."
RATE_HZ = 16000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    log = tmp_path_factory.mktemp("builtin") / "log"
    with ServerProcess(log, "--model", "builtin_voice", "--model", "builtin_base", "--num-slots", "4") as process:
        yield process


@pytest.fixture
async def client(server: ServerProcess) -> AsyncIterator[SpeechClient]:
    async with SpeechClient(server.address) as client:
        yield client


@pytest.mark.slow
@pytest.mark.rare
@pytest.mark.parametrize("transcript", ["", SAID], ids=["by embedding", "by continuation"])
async def test_a_clone_has_the_pitch_of_its_reference(client: SpeechClient, transcript: str) -> None:
    pitches = {}
    for voice in ("linden", "wren"):
        reference = await client.synthesize(SAID, synthesis_config(voice=voice, encoding="wav"))
        asked = synthesis_config(
            reference=reference.audio, transcript=transcript, encoding="pcm_s16le", sample_rate_hz=RATE_HZ
        )
        clone = await client.synthesize(TEXT, asked)
        samples = np.frombuffer(clone.audio, "<i2")
        assert 1.5 < len(samples) / RATE_HZ < 6  # all of it, and it ends by itself
        pitches[voice] = median_pitch_hz(samples)
    assert pitches["linden"] == pytest.approx(104, rel=0.15)
    assert pitches["wren"] == pytest.approx(190, rel=0.15)
