"""Every encoding at every rate from the real engine, decoded by others and held against the 24 kHz samples."""

import asyncio
import io
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import soundfile

from sonorant.tts.v1 import audio_pb2, speak_pb2, synthesis_pb2
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeRequest, SynthesizeStreamRequest
from tests.e2e.server_process import ServerProcess
from tests.service.decoders import alaw_level, decoded, mulaw_level
from tests.service.harness import Stub

PCM = audio_pb2.AUDIO_ENCODING_PCM_S16LE
WAV = audio_pb2.AUDIO_ENCODING_WAV
FLAC = audio_pb2.AUDIO_ENCODING_FLAC
MULAW = audio_pb2.AUDIO_ENCODING_MULAW
ALAW = audio_pb2.AUDIO_ENCODING_ALAW
OPUS = audio_pb2.AUDIO_ENCODING_OPUS
OGG_OPUS = audio_pb2.AUDIO_ENCODING_OGG_OPUS
RATES_HZ = (8_000, 16_000, 24_000, 48_000)
SUPPORTED = [(e, r) for e in (PCM, WAV, FLAC, OGG_OPUS, OPUS) for r in RATES_HZ] + [(MULAW, 8_000), (ALAW, 8_000)]
LEAST_SNR_DB = {PCM: 40, WAV: 40, FLAC: 40, MULAW: 25, ALAW: 25, OGG_OPUS: 12, OPUS: 12}
TEXT = "The quick brown fox."
NUM_FRAMES = 12  # 0.96 s

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Heard:
    """What came back, and the one thing that a listener does with it."""

    data: list[bytes]
    num_samples: int

    def decoded(self, encoding: int, rate_hz: int) -> tuple[Floats, int]:
        """Samples between -1 and 1, and their rate."""
        joined = b"".join(self.data)
        if encoding == OPUS:
            late = decoded(self.data, 48_000)[312:]
            return late[: self.num_samples * 48_000 // rate_hz] / 32_768, 48_000
        if encoding in (MULAW, ALAW):
            level = mulaw_level if encoding == MULAW else alaw_level
            return np.array([level(code) for code in joined]) / 32_768, rate_hz
        if encoding == PCM:
            return np.frombuffer(joined, "<i2") / 32_768, rate_hz
        samples, read_hz = soundfile.read(io.BytesIO(joined))
        return samples, read_hz


def synthesis(**fields: Any) -> synthesis_pb2.SynthesisConfig:
    greedy = {"do_sample": False, "subtalker_do_sample": False, "max_frames": NUM_FRAMES, "ignore_eos": True}
    return synthesis_pb2.SynthesisConfig(sampling=greedy, non_streaming_mode=False, **fields)


async def whole(stub: Stub, config: synthesis_pb2.SynthesisConfig) -> Heard:
    response = await stub.Synthesize(SynthesizeRequest(text=TEXT, config=config))
    assert response.stats.codec_frames == NUM_FRAMES
    return Heard([response.audio], response.stats.sent_ms * response.format.sample_rate_hz // 1000)


async def streamed(stub: Stub, config: synthesis_pb2.SynthesisConfig) -> Heard:
    call = stub.SynthesizeStream(SynthesizeStreamRequest(text=TEXT, config=config))
    chunks = [response.audio async for response in call if response.HasField("audio")]
    return Heard([chunk.data for chunk in chunks], sum(chunk.num_samples for chunk in chunks))


async def said(stub: Stub, config: synthesis_pb2.SynthesisConfig) -> Heard:
    first = speak_pb2.SpeakConfig(synthesis=config, max_lead_ms=0)
    words = [speak_pb2.SpeakRequest(text=f"{word} ") for word in TEXT.split()]
    call = stub.Speak(iter([speak_pb2.SpeakRequest(config=first), *words]))
    chunks = [response.audio async for response in call if response.HasField("audio")]
    return Heard([chunk.data for chunk in chunks], sum(chunk.num_samples for chunk in chunks))


def snr_in_band_db(reference: Floats, samples: Floats, rate_hz: int) -> float:
    """Below three quarters of the Nyquist frequency of the lower rate. The sounds are equally long in time."""
    ours, theirs = (np.fft.rfft(sound) / len(sound) for sound in (samples, reference))
    top = int(0.75 * min(rate_hz, 24_000) / 2 * len(reference) / 24_000)
    signal, error = np.abs(theirs[:top]) ** 2, np.abs(theirs[:top] - ours[:top]) ** 2
    return float(10 * np.log10(signal.sum() / error.sum())) if error.any() else math.inf


@pytest.mark.slow
async def test_every_encoding_at_every_rate_is_the_same_speech(stub: Stub) -> None:
    reference = (await whole(stub, synthesis())).decoded(PCM, 24_000)[0]
    assert (NUM_FRAMES - 3) * 1920 <= len(reference) <= NUM_FRAMES * 1920, "but for silence at the beginning"
    assert np.abs(reference).max() > 0.02, "there is speech to compare"
    a_few = asyncio.Semaphore(12)

    async def check(encoding: audio_pb2.AudioEncoding, rate_hz: int, rpc: Any) -> str | None:
        bitrate_bps = 96_000 if encoding in (OPUS, OGG_OPUS) else 0
        audio = {"encoding": encoding, "sample_rate_hz": rate_hz, "bitrate_bps": bitrate_bps}
        async with a_few:
            heard: Heard = await rpc(stub, synthesis(audio=audio))
        samples, read_hz = heard.decoded(encoding, rate_hz)
        seconds = len(reference) / 24_000
        snr_db = snr_in_band_db(reference, samples, rate_hz)
        if (heard.num_samples, len(samples)) == (seconds * rate_hz, seconds * read_hz) and snr_db > LEAST_SNR_DB[
            encoding
        ]:
            return None
        name = audio_pb2.AudioEncoding.Name(encoding)
        return f"{name} {rate_hz} {rpc.__name__}: {heard.num_samples} and {len(samples)} samples, {snr_db:.1f} dB"

    results = await asyncio.gather(
        *(
            check(encoding, rate_hz, rpc)
            for encoding, rate_hz in SUPPORTED
            for rpc in (whole, streamed, said)
            if (encoding, rpc) != (OPUS, whole) and (encoding != FLAC or rpc is whole)
        )
    )
    assert not [result for result in results if result], "\n".join(filter(None, results))


@pytest.mark.parametrize("speed", (0.5, 0.8, 1.25, 2.0))
async def test_speed_changes_the_length_and_not_the_pitch(stub: Stub, speed: float) -> None:
    plain = (await streamed(stub, synthesis())).decoded(PCM, 24_000)[0]
    heard = await streamed(stub, synthesis(speed=speed, volume_gain_db=-6.0))
    changed = heard.decoded(PCM, 24_000)[0]
    assert len(changed) == heard.num_samples == math.ceil(len(plain) / speed)
    assert 20 * np.log10(rms(changed) / rms(plain)) == pytest.approx(-6.0, abs=1.0)
    assert centroid_hz(changed) == pytest.approx(centroid_hz(plain), rel=0.1)
    # No clicks: the sharpest bends of the waveform are those of the speech.
    assert np.abs(np.diff(changed, 2)).max() <= np.abs(np.diff(plain, 2)).max()


async def test_the_command_line_saves_files_that_others_read(server: ServerProcess, tmp_path: Path) -> None:
    common = [
        "--server",
        server.address,
        "--no-do-sample",
        "--no-subtalker-do-sample",
        "--max-frames",
        "8",
        "--ignore-eos",
    ]
    for arguments, num_samples, rate_hz in (
        (["--wav", "out.wav", "--sample-rate-hz", "8000", "--speed", "1.25"], 8 * 640 * 0.8, 8_000),
        (["--ogg", "out.ogg", "--bitrate-bps", "24000", "--volume-gain-db", "3"], 8 * 1920, 24_000),
    ):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sonorant.cli", "say", TEXT, *common, *arguments),
            cwd=tmp_path,
            stderr=asyncio.subprocess.PIPE,
        )
        _, stderr = await process.communicate()
        assert process.returncode == 0, stderr.decode()
        samples, read_hz = soundfile.read(tmp_path / arguments[1])
        assert num_samples * 5 / 8 <= len(samples) <= num_samples, "but for silence at the beginning"
        assert read_hz == rate_hz
        assert np.abs(samples).max() > 0.02


def rms(sound: Floats) -> float:
    return float(np.sqrt(np.mean(sound**2)))


def centroid_hz(sound: Floats) -> float:
    """Where the middle of the spectrum is; playing faster would raise it by as much."""
    power = np.abs(np.fft.rfft(sound)) ** 2
    return float((power * np.arange(len(power))).sum() / power.sum() * 24_000 / len(sound))
