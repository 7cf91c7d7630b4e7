"""The client without asyncio does what the one with it does, against the same real server."""

import asyncio
import subprocess
import sys
import threading
import time
import wave
from collections.abc import Iterator
from pathlib import Path

import pytest

from sonorant.client import AudioChunk, InvalidRequest, Reason, UtteranceDone, VoiceNotFound
from sonorant.client.client import SpeechClient as WithAsyncio
from sonorant.client.dictionary_methods import DictionaryMethods
from sonorant.client.sync import SpeechClient, synthesis_config
from sonorant.client.voice_methods import VoiceMethods
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import spoken
from tests.service.harness import served


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a server in a thread of its own."""
    loop, ready, over = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    addresses: list[str] = []
    folder = tmp_path_factory.mktemp("voices")

    async def serve() -> None:
        async with served(FakeEngine(), voices_dir=folder) as server:
            addresses.append(server.address)
            ready.set()
            await over.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert ready.wait(20)
    yield addresses[0]
    loop.call_soon_threadsafe(over.set)
    thread.join()
    loop.close()


CONFIG = synthesis_config(voice="ada", seed=7)


def test_a_clip_is_made_and_saved(address: str, tmp_path: Path) -> None:
    with SpeechClient(address) as client:
        clip = client.synthesize("Hello.", CONFIG)
        path = clip.save(tmp_path / "hello.wav")
    assert clip.audio == spoken("Hello.", 7)
    with wave.open(str(path)) as file:
        assert file.readframes(file.getnframes()) == clip.audio and file.getframerate() == 24_000
    assert clip.reason is Reason.COMPLETED and str(clip.reason) == "COMPLETED"
    with pytest.raises(InvalidRequest, match=r"did you mean '\.wav'"):
        clip.save(tmp_path / "hello.wave")
    with pytest.raises(ValueError, match=r"name it \.wav or .* or \.pcm"):
        clip.save(tmp_path / "hello.ogg")


def test_statistics_say_what_was_sent_in_the_listeners_time(address: str) -> None:
    with SpeechClient(address) as client:
        clip = client.synthesize("Hello there.", synthesis_config(voice="ada", seed=7, speed=2))
    assert clip.duration_s == pytest.approx(len(clip.audio) / 48_000, abs=0.002)
    assert clip.stats.audio_ms == pytest.approx(2 * clip.stats.sent_ms, abs=2)


def test_a_stream_is_read_or_left_and_written_to_a_file(address: str, tmp_path: Path) -> None:
    with SpeechClient(address) as client:
        payloads = list(client.stream("Hello.", CONFIG))
        for payload in client.stream("Hello. " * 20, CONFIG):
            if isinstance(payload, AudioChunk):
                break
        begin_s = time.monotonic()
        saved = client.stream_to_file("Hello.", tmp_path / "hello.wav", CONFIG)
        assert 0 < saved.first_audio_s < time.monotonic() - begin_s
        client.stream_to_file("Hello.", tmp_path / "hello.pcm", CONFIG)
    assert b"".join(p.data for p in payloads if isinstance(p, AudioChunk)) == spoken("Hello.", 7)
    assert saved.reason is Reason.COMPLETED and saved.stats.spoken_chars == 6
    assert (tmp_path / "hello.pcm").read_bytes() == spoken("Hello.", 7)
    assert (tmp_path / "hello.wav").read_bytes()[44:] == spoken("Hello.", 7)


LEFT_TO_THE_END = """
import sys
from sonorant.client.sync import SpeechClient
left = []
for _ in range(30):
    with SpeechClient(sys.argv[1]) as client:
        left.append(client.stream("Hello. " * 20))
        next(left[-1])
del left[:10]
unclosed = SpeechClient(sys.argv[1])
unclosed.health()
"""


def test_streams_that_are_left_to_the_end_of_the_process_say_nothing(address: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-X", "dev", "-c", LEFT_TO_THE_END, address], capture_output=True, text=True
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_session_speaks(address: str) -> None:
    with SpeechClient(address) as client, client.speak(CONFIG, max_lead_ms=0) as session:
        session.send_text("Hel")
        session.send_text("lo.")
        session.finish()
        payloads = [event.payload for event in session]
    assert b"".join(p.data for p in payloads if isinstance(p, AudioChunk)) == spoken("Hello.", 7)
    assert isinstance(payloads[-1], UtteranceDone)


def test_every_method_of_the_client_with_asyncio_is_there() -> None:
    names = {name for name in vars(WithAsyncio) | vars(VoiceMethods) | vars(DictionaryMethods) if name[0] != "_"}
    assert names <= set(dir(SpeechClient)) | {"target"}


def test_a_dictionary_is_made_and_named(address: str) -> None:
    with SpeechClient(address) as client:
        assert client.put_dictionary("names", {"Nguyen": "win"}).version == 1
        assert dict(client.dictionary("names").pronunciations) == {"Nguyen": "win"}
        config = synthesis_config(voice="ada", seed=7, dictionaries=["names"])
        assert client.synthesize("Nguyen", config).audio == spoken("win", 7)
        assert [each.dictionary_id for each in client.dictionaries()] == ["names"]
        client.delete_dictionary("names")


def test_errors_are_those_of_the_client_with_asyncio(address: str) -> None:
    with SpeechClient(address) as client:
        with pytest.raises(VoiceNotFound):
            client.synthesize("Hello.", synthesis_config(voice="nobody"))
        assert client.health() == "SERVING" and client.capabilities().model == "fake"
        assert {voice.voice_id for voice in client.voices()} >= {"ada", "bob"}
