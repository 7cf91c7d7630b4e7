"""A clip is played by a program: the first one on the path gets its samples, and their rate."""

import asyncio
import sys
from pathlib import Path

import pytest

from sonorant.client import SpeechClient, synthesis_config
from sonorant.client.sync import Clip as SyncClip
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import spoken
from tests.service.harness import served


@pytest.fixture
def heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the arguments and the samples that the only player on the path got."""
    player = tmp_path / "aplay"
    player.write_text(
        f"#!{sys.executable}\n"
        "import pathlib, sys\n"
        f"folder = pathlib.Path({str(tmp_path)!r})\n"
        "(folder / 'samples').write_bytes(sys.stdin.buffer.read())\n"
        "(folder / 'arguments').write_text(' '.join(sys.argv[1:]))\n"
    )
    player.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


async def test_a_clip_is_played_to_its_end_at_its_rate(heard: Path) -> None:
    async with served(FakeEngine()) as server, SpeechClient(server.address) as client:
        clip = await client.synthesize("Hello there.", synthesis_config(voice="ada", seed=7))
        await clip.play()
        assert (heard / "samples").read_bytes() == spoken("Hello there.", 7)
        assert "--rate=24000" in (heard / "arguments").read_text().split()

        slow = await client.synthesize("Hello.", synthesis_config(voice="ada", sample_rate_hz=8000))
        await asyncio.to_thread(SyncClip(slow.response).play)
        assert (heard / "samples").read_bytes() == slow.audio
        assert "--rate=8000" in (heard / "arguments").read_text().split()


async def test_a_clip_that_no_player_takes_says_what_to_do(heard: Path) -> None:
    async with served(FakeEngine()) as server, SpeechClient(server.address) as client:
        encoded = await client.synthesize(
            "Hello.", synthesis_config(voice="ada", encoding="mulaw", sample_rate_hz=8000)
        )
        with pytest.raises(ValueError, match="only pcm_s16le can be played; leave the encoding out"):
            await encoded.play()
        assert not (heard / "samples").exists()

        (heard / "aplay").unlink()
        clip = await client.synthesize("Hello.", synthesis_config(voice="ada"))
        with pytest.raises(FileNotFoundError, match="neither ffplay nor aplay is installed"):
            await clip.play()
