"""Speech stored as codes and spoken again through a real server: the samples that were spoken, in any encoding."""

import asyncio
import json
import shutil
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from sonorant.cli.main import main
from sonorant.client import AudioChunk, DecodeStarted, SpeechClient, UtteranceDone, synthesis_config
from sonorant.engine import BUILTIN_VOICE_DIR
from sonorant.service.audio.codes import parse
from sonorant.tts.v1 import audio_pb2, speak_pb2, synthesis_pb2
from sonorant.tts.v1.text_to_speech_service_pb2 import DecodeRequest, GetCapabilitiesRequest, SynthesizeRequest
from tests.e2e.server_process import ServerProcess
from tests.service.harness import Stub, failure, flush, say

CODES = audio_pb2.AUDIO_ENCODING_CODES
PCM = audio_pb2.AUDIO_ENCODING_PCM_S16LE
SAMPLING = {"seed": 7, "max_frames": 60}
TEXT = "Hello there, how are you? I am fine."


@pytest.fixture(scope="module")
def saying_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that also sends the silence with which the built-in voice begins, as `Decode` does."""
    folder = tmp_path_factory.mktemp("saying_all")
    shutil.copytree(BUILTIN_VOICE_DIR, folder / "voice")
    settings = folder / "voice" / "generation_config.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "silent_first_frames": 0}))
    with ServerProcess(folder / "log", "--model", str(folder / "voice")) as process:
        yield process


async def spoken(stub: Stub, encoding: int, *script: speak_pb2.SpeakRequest, **fields: Any) -> tuple[bytes, int]:
    """The bytes of an utterance, and how many samples it says it has."""
    config = speak_pb2.SpeakConfig(
        synthesis=synthesis_pb2.SynthesisConfig(audio={"encoding": encoding}, sampling=SAMPLING, **fields),
        max_lead_ms=0,
    )
    call = stub.Speak(iter([speak_pb2.SpeakRequest(config=config), *script]))
    chunks = [response.audio async for response in call if response.HasField("audio")]
    return b"".join(chunk.data for chunk in chunks), sum(chunk.num_samples for chunk in chunks)


async def decoded(stub: Stub, codes: bytes, **config: Any) -> bytes:
    """What `Decode` makes of it, checked for what always holds."""
    responses = [response async for response in stub.Decode(DecodeRequest(codes=codes, config=config))]
    started, *rest, last = responses
    assert started.WhichOneof("payload") == "started" and last.done.reason == synthesis_pb2.FINISH_REASON_COMPLETED
    rate_hz, sent = started.started.audio.sample_rate_hz, 0
    for response in rest:
        assert response.audio.start_ms == sent * 1000 // rate_hz
        sent += response.audio.num_samples
    assert last.done.stats.sent_ms == sent * 1000 // rate_hz
    assert abs(started.started.audio_ms - last.done.stats.sent_ms) <= 1
    return b"".join(response.audio.data for response in rest)


def assert_within(one: bytes, other: bytes, lsb: int) -> None:
    a, b = (np.frombuffer(pcm, "<i2").astype(int) for pcm in (one, other))
    assert len(a) == len(b) > 0
    assert np.abs(a - b).max() <= lsb


def assert_heard_again(one: bytes, other: bytes) -> None:
    """`other` has all of `one` but silence at its beginning and, in a second segment, in one place further on."""
    stored, heard = (np.frombuffer(pcm, "<i2").astype(int) for pcm in (one, other))
    differs = np.abs(stored[-len(heard) :] - heard) > 2
    before = (
        heard[: np.flatnonzero(differs)[-1] + 1] if differs.any() else heard[:0]
    )  # what is not the same from the end
    if len(before):
        loudest = int(np.abs(before).argmax())
        shifts = np.arange(len(stored) - len(heard) + 1)
        likely = shifts[np.abs(stored[loudest + shifts] - before[loudest]) <= 2]
        assert any(np.abs(stored[shift : shift + len(before)] - before).max() <= 2 for shift in likely)


@pytest.mark.slow
@pytest.mark.parametrize(
    "script",
    [
        [say(TEXT)],
        [say("Hello there, "), flush(1), say("how are you?")],
        [
            say("One. "),
            speak_pb2.SpeakRequest(flush={"flush_id": 1, "pause_ms": 350}),
            speak_pb2.SpeakRequest(flush={"flush_id": 2, "pause_ms": 40}),
            say("Two."),
        ],
    ],
    ids=["whole", "flush", "pauses"],
)
async def test_what_was_spoken_is_heard_again(stub: Stub, script: list[speak_pb2.SpeakRequest]) -> None:
    pcm, num_samples = await spoken(stub, PCM, *script)
    codes, num_coded = await spoken(stub, CODES, *script)
    assert 0 <= num_coded - num_samples <= 2 * 3 * 1920, "silence at the beginning of two segments is stored"
    assert_heard_again(await decoded(stub, codes), pcm)
    assert len(codes) < len(pcm) / 50


@pytest.mark.slow
@pytest.mark.parametrize(
    "fields",
    [
        {"speed": 1.5},
        {"speed": 0.5, "volume_gain_db": -6},
        {"audio": {"sample_rate_hz": 8_000}},
        {"audio": {"encoding": audio_pb2.AUDIO_ENCODING_WAV, "sample_rate_hz": 44_100, "frame_duration_ms": 20}},
    ],
)
async def test_sound_is_made_of_codes_as_it_is_made_of_speech(
    saying_all: ServerProcess, fields: dict[str, Any]
) -> None:
    script = [say("Hello there, "), flush(1), say("how are you?")]
    synthesis = synthesis_pb2.SynthesisConfig(sampling=SAMPLING, **fields)
    config = speak_pb2.SpeakConfig(synthesis=synthesis, max_lead_ms=0)
    async with grpc.aio.insecure_channel(saying_all.address) as channel:
        stub = Stub(channel)
        codes, _ = await spoken(stub, CODES, *script)
        call = stub.Speak(iter([speak_pb2.SpeakRequest(config=config), *script]))
        direct = b"".join([response.audio.data async for response in call if response.HasField("audio")])
        sound = await decoded(stub, codes, **fields)
    header = 44 if fields.get("audio", {}).get("encoding") else 0
    assert sound[:header] == direct[:header]
    assert_within(sound[header:], direct[header:], 3)


async def test_codes_come_out_of_every_call(stub: Stub) -> None:
    assert CODES in (await stub.GetCapabilities(GetCapabilitiesRequest())).encodings
    config = synthesis_pb2.SynthesisConfig(audio={"encoding": CODES}, sampling=SAMPLING, non_streaming_mode=False)
    clip = await stub.Synthesize(SynthesizeRequest(text=TEXT, config=config))
    call = stub.SynthesizeStream(SynthesizeRequest(text=TEXT, config=config))
    streamed = b"".join([response.audio.data async for response in call if response.HasField("audio")])
    said, _ = await spoken(stub, CODES, say(TEXT))
    for codes in (clip.audio, streamed, said):
        (segment,) = parse(codes).segments
        np.testing.assert_array_equal(segment, parse(clip.audio).segments[0])
    assert parse(said).header.checkpoint == clip.checkpoint
    again = await stub.Synthesize(SynthesizeRequest(text=TEXT, config=clip.replay))  # the receipt holds for codes, too
    assert again.audio == clip.audio or parse(again.audio).parts[0].tolist() == segment.tolist()


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"speed": 1.5}, "config.speed"),
        ({"volume_gain_db": 3}, "config.volume_gain_db"),
        ({"audio": {"encoding": CODES, "sample_rate_hz": 8_000}}, "config.audio.sample_rate_hz"),
        ({"audio": {"encoding": CODES, "frame_duration_ms": 20}}, "config.audio.frame_duration_ms"),
        ({"audio": {"encoding": CODES, "bitrate_bps": 9_000}}, "config.audio.bitrate_bps"),
    ],
)
async def test_nothing_is_done_to_codes(stub: Stub, fields: dict[str, Any], field: str) -> None:
    config = synthesis_pb2.SynthesisConfig(**{"audio": {"encoding": CODES}, **fields})
    code, message, _ = await failure(stub.Synthesize(SynthesizeRequest(text=TEXT, config=config)))
    assert (code.name, message.startswith(field)) == ("INVALID_ARGUMENT", True)


async def test_what_cannot_be_decoded_is_refused(stub: Stub) -> None:
    codes, _ = await spoken(stub, CODES, say("Hi."))
    other_codec = codes[:16] + b"\1\2\3\4\5\6\7\x08" + codes[24:]
    for wrong, config, status, reason in (
        (other_codec, {}, "FAILED_PRECONDITION", "CODEC_DIFFERS"),
        (codes[:-1], {}, "INVALID_ARGUMENT", "CODES_UNREADABLE"),
        (codes[:32], {}, "INVALID_ARGUMENT", "CODES_UNREADABLE"),
        (b"RIFF", {}, "INVALID_ARGUMENT", "CODES_UNREADABLE"),
        (codes[:5] + b"\4" + codes[6:], {}, "INVALID_ARGUMENT", ""),
        (codes, {"audio": {"encoding": CODES}}, "INVALID_ARGUMENT", "INVALID_FIELD"),
        (codes, {"audio": {"encoding": audio_pb2.AUDIO_ENCODING_FLAC}}, "INVALID_ARGUMENT", "INVALID_FIELD"),
        (codes, {"speed": 9}, "INVALID_ARGUMENT", "INVALID_FIELD"),
    ):
        code, message, details = await failure(stub.Decode(DecodeRequest(codes=wrong, config=config)))
        assert code.name == status, message
        assert details["ErrorInfo"].reason == reason or not reason
    assert "0102030405060708" in (await failure(stub.Decode(DecodeRequest(codes=other_codec))))[1]


async def test_who_leaves_or_does_not_read_holds_nothing(stub: Stub) -> None:
    codes, _ = await spoken(stub, CODES, say(TEXT))
    num_begun = 0
    while num_begun < 40:  # more than there are places
        call = stub.Decode(DecodeRequest(codes=codes, max_lead_ms=100))
        try:
            num_begun += (await call.read()).HasField("started")
        except grpc.aio.AioRpcError as error:  # a place is free once the workers have let go
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            await asyncio.sleep(0.05)
        call.cancel()


async def test_the_client_library_and_the_command(server: ServerProcess, tmp_path: Path) -> None:
    async with SpeechClient(server.address) as client:
        config = synthesis_config(encoding="codes", **SAMPLING)
        clip = await client.synthesize(TEXT, config)
        started, *chunks, done = [payload async for payload in client.decode(clip.audio, speed=2.0)]
        assert isinstance(started, DecodeStarted) and isinstance(done, UtteranceDone)
        assert all(isinstance(chunk, AudioChunk) for chunk in chunks)
        assert started.checkpoint == clip.checkpoint and abs(started.audio_ms - clip.stats.sent_ms / 2) <= 1


def test_the_command(server: ServerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored, sound = tmp_path / "hello.codes", tmp_path / "hello.wav"
    at = ("--server", server.address)
    for arguments in (
        ["say", TEXT, "--codes", str(stored), "--seed", "7"],
        ["decode", str(stored), "--wav", str(sound)],
    ):
        with pytest.raises(SystemExit) as ended:
            main([*arguments, *at])
        assert ended.value.code == 0, capsys.readouterr().err
    with wave.open(str(sound)) as file:
        assert file.getnframes() == len(parse(stored.read_bytes()).segments[0]) * 1920
