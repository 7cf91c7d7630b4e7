"""Every encoding through a real channel and the three RPCs, on an engine whose samples are known."""

import io
import math
import subprocess
import sys
from typing import Any

import av
import grpc
import numpy as np
import pytest
import soundfile

from sonorant.service.audio import g711, opus
from sonorant.service.audio.writer import AudioSpec
from sonorant.service.pacing.pacer import AHEAD_FRAMES
from sonorant.tts.v1 import audio_pb2, speak_pb2, synthesis_pb2
from sonorant.tts.v1.text_to_speech_service_pb2 import (
    GetCapabilitiesRequest,
    SynthesizeRequest,
    SynthesizeStreamRequest,
)
from tests.service.decoders import decoded, pages
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import FRAME_SAMPLES, FRAMES_PER_CHAR, spoken
from tests.service.harness import Stub, failure, flush, say, served
from tests.service.written_audio import joined, pieces_of

PCM = audio_pb2.AUDIO_ENCODING_PCM_S16LE
WAV = audio_pb2.AUDIO_ENCODING_WAV
FLAC = audio_pb2.AUDIO_ENCODING_FLAC
MULAW = audio_pb2.AUDIO_ENCODING_MULAW
ALAW = audio_pb2.AUDIO_ENCODING_ALAW
OPUS = audio_pb2.AUDIO_ENCODING_OPUS
OGG_OPUS = audio_pb2.AUDIO_ENCODING_OGG_OPUS
CODES = audio_pb2.AUDIO_ENCODING_CODES
LOSSLESS = [(encoding, rate_hz) for encoding in (PCM, WAV) for rate_hz in (8_000, 16_000, 24_000, 48_000)]
LOSSLESS += [(MULAW, 8_000), (ALAW, 8_000)]
TEXT = "Hello, streams."
SAMPLES = np.frombuffer(spoken(TEXT, 7), "<i2")


def synthesis(audio: dict[str, Any], **fields: Any) -> synthesis_pb2.SynthesisConfig:
    return synthesis_pb2.SynthesisConfig(audio=audio, sampling={"seed": 7}, **fields)


async def streamed(stub: Stub, config: synthesis_pb2.SynthesisConfig, text: str = TEXT) -> list[audio_pb2.AudioChunk]:
    call = stub.SynthesizeStream(SynthesizeStreamRequest(text=text, config=config))
    return in_order([response.audio async for response in call if response.HasField("audio")], config)


async def said(
    stub: Stub, config: synthesis_pb2.SynthesisConfig, *requests: speak_pb2.SpeakRequest, max_lead_ms: int = 0
) -> list[audio_pb2.AudioChunk]:
    first = speak_pb2.SpeakRequest(config=speak_pb2.SpeakConfig(synthesis=config, max_lead_ms=max_lead_ms))
    call = stub.Speak(iter([first, *requests]))
    responses = [response async for response in call]
    assert responses[-1].done.reason == synthesis_pb2.FINISH_REASON_COMPLETED
    chunks = in_order([response.audio for response in responses if response.HasField("audio")], config)
    rate_hz = responses[0].session.audio.sample_rate_hz
    assert responses[-1].done.stats.sent_ms == sum(chunk.num_samples for chunk in chunks) * 1000 // rate_hz
    return chunks


def in_order(chunks: list[audio_pb2.AudioChunk], config: synthesis_pb2.SynthesisConfig) -> list[audio_pb2.AudioChunk]:
    """Checked: chunks say where they begin."""
    rate_hz = config.audio.sample_rate_hz or (8_000 if config.audio.encoding in (MULAW, ALAW) else 24_000)
    at = 0
    for chunk in chunks:
        assert chunk.start_ms == at * 1000 // rate_hz
        at += chunk.num_samples
    return chunks


def data(chunks: list[audio_pb2.AudioChunk]) -> bytes:
    return b"".join(chunk.data for chunk in chunks)


@pytest.mark.parametrize(("encoding", "rate_hz"), LOSSLESS)
@pytest.mark.parametrize(("speed", "gain_db"), ((1.0, 0.0), (1.3, 6.0)))
async def test_lossless_audio_is_the_same_bytes_in_every_rpc(
    encoding: audio_pb2.AudioEncoding, rate_hz: int, speed: float, gain_db: float
) -> None:
    config = synthesis({"encoding": encoding, "sample_rate_hz": rate_hz}, speed=speed, volume_gain_db=gain_db)
    spec = AudioSpec(encoding, rate_hz, 80, speed=speed, gain_db=gain_db)
    expected = joined(pieces_of(spec, SAMPLES))
    async with served(FakeEngine()) as server:
        whole = await server.stub.Synthesize(SynthesizeRequest(text=TEXT, config=config))
        stream = await streamed(server.stub, config)
        session = await said(server.stub, config, *(say(char) for char in TEXT))
    assert whole.audio == spec.file(expected)
    assert data(stream) == expected
    assert data(session) == expected
    assert sum(chunk.num_samples for chunk in stream) == math.ceil(math.ceil(len(SAMPLES) / speed) * rate_hz / 24_000)
    assert (whole.format.encoding, whole.format.sample_rate_hz) == (encoding, rate_hz)


@pytest.mark.parametrize("rate_hz", (8_000, 24_000))
async def test_flac_is_a_whole_file_and_nothing_else(rate_hz: int) -> None:
    config = synthesis({"encoding": FLAC, "sample_rate_hz": rate_hz})
    async with served(FakeEngine()) as server:
        whole = await server.stub.Synthesize(SynthesizeRequest(text=TEXT, config=config))
        code, message, _ = await failure(
            server.stub.SynthesizeStream(SynthesizeStreamRequest(text=TEXT, config=config))
        )
    read, read_hz = soundfile.read(io.BytesIO(whole.audio), dtype="int16")
    assert read_hz == rate_hz
    assert read.astype("<i2").tobytes() == joined(pieces_of(AudioSpec(PCM, rate_hz, 80), SAMPLES))
    assert (code.name, "AUDIO_ENCODING_WAV" in message) == ("INVALID_ARGUMENT", True)


async def test_telephone_frames_of_20_ms() -> None:
    config = synthesis({"encoding": MULAW, "frame_duration_ms": 20})
    async with served(FakeEngine()) as server:
        chunks = await said(server.stub, config, say(TEXT))
    assert {len(chunk.data) for chunk in chunks} == {160}
    assert [chunk.start_ms for chunk in chunks] == [20 * k for k in range(len(chunks))]
    low = np.frombuffer(joined(pieces_of(AudioSpec(PCM, 8_000, 80), SAMPLES)), "<i2")
    assert data(chunks) == g711.mulaw(low)


@pytest.mark.parametrize("rate_hz", (8_000, 16_000, 24_000, 48_000))
async def test_ogg_opus_is_a_file_in_every_rpc(rate_hz: int) -> None:
    config = synthesis({"encoding": OGG_OPUS, "sample_rate_hz": rate_hz, "frame_duration_ms": 100})
    async with served(FakeEngine()) as server:
        whole = await server.stub.Synthesize(SynthesizeRequest(text=TEXT, config=config))
        stream = await streamed(server.stub, config)
        session = await said(server.stub, config, *(say(char) for char in TEXT))
    assert whole.format.bitrate_bps == 32_000
    assert (stream[0].num_samples, stream[0].data[:4]) == (0, b"OggS")
    for file in (whole.audio, data(stream), data(session)):
        with av.open(io.BytesIO(file)) as container:
            assert sum(frame.samples for frame in container.decode(audio=0)) == len(SAMPLES) * 2
        assert len(pages(file)) == 2 + math.ceil((len(SAMPLES) * 2 + 312) / 4800)
        assert pages(file)[-1][0] == 4


async def test_bare_packets_decode_and_are_not_for_files() -> None:
    config = synthesis({"encoding": OPUS, "sample_rate_hz": 48_000})
    async with served(FakeEngine()) as server:
        chunks = await said(server.stub, config, *(say(char) for char in TEXT))
        code, message, _ = await failure(server.stub.Synthesize(SynthesizeRequest(text=TEXT, config=config)))
    assert sum(chunk.num_samples for chunk in chunks) == len(SAMPLES) * 2
    assert len(decoded([chunk.data for chunk in chunks], 48_000)) == len(chunks) * 960
    assert (code.name, "AUDIO_ENCODING_OGG_OPUS" in message) == ("INVALID_ARGUMENT", True)


@pytest.mark.parametrize("after", ((), (say("More."),)))
async def test_a_flush_ends_the_sound_before_it_and_the_file_goes_on(after: tuple[speak_pb2.SpeakRequest, ...]) -> None:
    pcm = synthesis({"sample_rate_hz": 16_000, "frame_duration_ms": 30}, speed=0.9)
    ogg = synthesis({"encoding": OGG_OPUS})
    async with served(FakeEngine()) as server:
        chunks = await said(server.stub, pcm, say("Hello."), flush(1), *after)
        file = data(await said(server.stub, ogg, say("Hello."), flush(1), *after))
    spec = AudioSpec(PCM, 16_000, 30, speed=0.9)
    parts = [joined(pieces_of(spec, np.frombuffer(spoken(text, 7), "<i2"))) for text in ("Hello.", "More.")]
    assert b"".join(chunk.data for chunk in chunks if chunk.flush_id == 0) == parts[0]
    assert b"".join(chunk.data for chunk in chunks if chunk.flush_id == 1) == (parts[1] if after else b"")
    assert [page[0] for page in pages(file)][-1] == 4
    num_frames = len("Hello." + ("More." if after else "")) * FRAMES_PER_CHAR
    with av.open(io.BytesIO(file)) as container:
        num_samples = sum(frame.samples for frame in container.decode(audio=0))
    padding = num_samples - 2 * num_frames * FRAME_SAMPLES
    assert 0 <= padding < 960 + 312 + (312 if after else 0)


@pytest.mark.parametrize("speed", (0.5, 2.0))
@pytest.mark.parametrize("encoding", (MULAW, OGG_OPUS))
async def test_long_frames_and_short_leads_do_not_starve_the_engine(
    encoding: audio_pb2.AudioEncoding, speed: float
) -> None:
    """More frames than the engine has credit for, held back by frames of a second and a listener who hears at once."""
    text = "a" * 60
    async with served(FakeEngine()) as server:
        config = synthesis({"encoding": encoding, "frame_duration_ms": 1000}, speed=speed)
        chunks = await streamed(server.stub, config, text)
    rate_hz = 8_000 if encoding == MULAW else 24_000
    num_samples = len(text) * FRAMES_PER_CHAR * FRAME_SAMPLES / speed * rate_hz / 24_000
    assert sum(chunk.num_samples for chunk in chunks) == num_samples


async def test_the_engine_is_granted_what_may_be_heard_in_its_own_time() -> None:
    """At half speed a frame is heard for twice as long."""
    engine = FakeEngine()
    async with served(engine) as server:
        config = speak_pb2.SpeakConfig(synthesis=synthesis({}, speed=0.5), max_lead_ms=800)
        call = server.stub.Speak()
        await call.write(speak_pb2.SpeakRequest(config=config))
        await call.write(say("b" * 100))
        await call.read()
        await call.read()
        (stream,) = engine.live.values()
        assert stream.num_frames + stream.credit == 800 // 160 + AHEAD_FRAMES + 1
        call.cancel()


async def test_without_pyav_everything_but_opus_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opus, "available", lambda: False)
    async with served(FakeEngine()) as server:
        capabilities = await server.stub.GetCapabilities(GetCapabilitiesRequest())
        request = SynthesizeRequest(text=TEXT, config=synthesis({"encoding": OGG_OPUS}))
        code, message, details = await failure(server.stub.Synthesize(request))
        assert (await server.stub.Synthesize(SynthesizeRequest(text=TEXT, config=synthesis({})))).audio
    assert list(capabilities.encodings) == [PCM, WAV, MULAW, ALAW, FLAC, CODES]
    assert (code, "pip install 'sonorant-server[opus]'" in message) == (grpc.StatusCode.UNIMPLEMENTED, True)
    assert details["ErrorInfo"].reason == "OPUS_NOT_INSTALLED"
    assert details["BadRequest"].field_violations[0].field == "config.audio.encoding"


def test_the_server_needs_no_pyav() -> None:
    script = "import sys; sys.modules['av'] = None; import sonorant.service.server; "
    script += "from sonorant.service.audio.opus import available; "
    subprocess.run([sys.executable, "-c", script + "sys.exit(available())"], check=True)
