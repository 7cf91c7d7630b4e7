"""The preview text of a voice: given when it is made, kept, moved with it, shown, and said by the command."""

from pathlib import Path

from sonorant.cli.voices import PREVIEW_TEXT
from sonorant.client import InvalidRequest, SpeechClient
from tests.clients.cli._support import sonorant
from tests.gateway.harness import gateway_to
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import spoken
from tests.service.harness import served


async def test_a_voice_says_its_preview_text(tmp_path: Path) -> None:
    wav = tmp_path / "out.wav"
    async with served(FakeEngine(), voices_dir=tmp_path / "voices") as server:
        async with SpeechClient(server.address) as client:
            made = await client.create_voice("anna", speaker_embedding=range(8), preview_text="I am Anna.")
            assert made.preview_text == (await client.voice("anna")).preview_text == "I am Anna."
            moved = await client.import_voice(await client.export_voice("anna"), "anna-2")
            assert moved.preview_text == "I am Anna."
            try:
                await client.create_voice("ben", speaker_embedding=range(8), preview_text="x" * 513)
            except InvalidRequest as error:
                assert "voice.preview_text" in error.fields
            else:
                raise AssertionError("a longer one is refused")
        for name, text in (("anna", "I am Anna."), ("bob", PREVIEW_TEXT)):
            wav.unlink(missing_ok=True)
            status, stdout, stderr = await sonorant(
                "voices", "preview", name, "--wav", str(wav), "--server", server.address
            )
            assert (status, stdout.decode()) == (0, f"{text}\n"), stderr
            assert len(wav.read_bytes()) == 44 + len(spoken(text))
        async with gateway_to(server) as door, door.http.get("/v1/audio/voices/anna") as response:
            assert (await response.json())["preview_text"] == "I am Anna."
