import contextlib
import io
import math
import re
import resource
from pathlib import Path

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonorant.engine.encoder import containers
from sonorant.engine.encoder.recording import MAX_RECORDING_S, read_recording, read_upload
from sonorant.engine.errors import InvalidRecording
from tests.engine.encoder.recordings import audio_file, flac_that_claims, noise, spoken, wav_that_claims

RATE_HZ = 24000


def as_float(samples: np.ndarray, rate_hz: int = RATE_HZ) -> io.BytesIO:
    return io.BytesIO(audio_file(samples, rate_hz, subtype="FLOAT"))


def refusal(data: bytes) -> InvalidRecording:
    with pytest.raises(InvalidRecording) as error:
        read_upload(data, RATE_HZ)
    assert error.value.field == "reference"
    return error.value


def test_a_recording_at_the_right_rate_is_read_as_it_is() -> None:
    samples = noise(0.1)
    np.testing.assert_array_equal(read_recording(as_float(samples), RATE_HZ).samples, samples)


def test_channels_are_averaged() -> None:
    samples = noise(0.1).reshape(-1, 2)
    np.testing.assert_array_equal(read_recording(as_float(samples), RATE_HZ).samples, samples.mean(1))


def test_blocks_make_no_difference() -> None:
    samples = noise(20).reshape(-1, 3)  # more than one block
    np.testing.assert_array_equal(read_recording(as_float(samples), RATE_HZ).samples, samples.mean(1))


@pytest.mark.parametrize("rate_hz", [8000, 16000, 22050, 44100, 48000, 191_999])
def test_other_rates_are_resampled(rate_hz: int) -> None:
    tone = np.sin(2 * np.pi * 440 * np.arange(rate_hz) / rate_hz).astype(np.float32)
    samples = read_recording(as_float(tone, rate_hz), RATE_HZ).samples
    assert abs(len(samples) - RATE_HZ) <= 1
    expected = np.sin(2 * np.pi * 440 * np.arange(RATE_HZ) / RATE_HZ)
    np.testing.assert_allclose(samples[1000:23000], expected[1000:23000], atol=1e-3)


@pytest.mark.parametrize("kind", ["WAV", "WAVEX", "RF64", "FLAC", "OGG", "MP3"])
def test_containers_are_known_by_content(kind: str) -> None:
    recording = read_upload(spoken(kind=kind), RATE_HZ)
    assert recording.info.duration_ms == 2000
    assert recording.info.level_dbfs == pytest.approx(-20, abs=1)
    assert len(recording.samples) == 2 * RATE_HZ


def test_what_was_uploaded_is_told() -> None:
    info = read_upload(audio_file(noise(6).reshape(-1, 2), 48000), RATE_HZ).info
    assert (info.duration_ms, info.sample_rate_hz, info.channels) == (1500, 48000, 2)


@pytest.mark.slow
def test_a_thousand_rates_leave_nothing_behind() -> None:
    """Each recording gets its own resampler, which costs less than a millisecond and is not kept."""

    def read(rate_hz: int) -> None:
        assert read_recording(as_float(noise(0.01, rate_hz), rate_hz), RATE_HZ).info.sample_rate_hz == rate_hz

    rates_hz = range(8_000, 188_000, 120)
    assert len(rates_hz) == 1_500
    for rate_hz in rates_hz[-250:]:  # the largest first: what numpy and libsndfile need at most
        read(rate_hz)
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for rate_hz in rates_hz:
        read(rate_hz)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 3_000


def test_files_that_cannot_be_read_at_all(tmp_path: Path) -> None:
    with pytest.raises(InvalidRecording, match="cannot be read"):
        read_recording(tmp_path / "missing.wav", RATE_HZ)
    with pytest.raises(InvalidRecording, match="cannot be read"):
        read_recording(io.BytesIO(b"not audio at all"), RATE_HZ)


@pytest.mark.parametrize(
    ("begins", "message"),
    [
        (b"", "it is empty"),
        (b"hello world!", "begins with the bytes 68 65 6c 6c 6f"),
        (b"FORM\0\0\0\0AIFF", "is AIFF"),
    ],
)
def test_wrong_types_are_named(begins: bytes, message: str) -> None:
    error = refusal(begins)
    assert error.reason == "RECORDING_UNREADABLE"
    assert message in str(error) and "give a WAV, FLAC, Ogg or MP3 file" in str(error)


@pytest.mark.parametrize(
    ("begins", "message"),
    [
        (b"\0\0\0\x1cftypM4A ", "is MP4 or M4A, which is not supported; give a WAV"),
        (b"\x1aE\xdf\xa3\x01", "is WebM or Matroska"),
        (b"\xff\xf1\x50\x80", "is AAC"),
    ],
)
def test_formats_that_need_pyav_are_named_without_it(
    begins: bytes, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "object" not in str(refusal(begins))  # with it, these beginnings are damaged files
    monkeypatch.setattr(containers, "can_read", lambda: False)
    assert message in str(refusal(begins))


@pytest.mark.parametrize(
    ("kind", "codec", "rate_hz"), [("mp4", "aac", 44_100), ("webm", "libopus", 48_000), ("adts", "aac", 24_000)]
)
def test_what_phones_and_browsers_record(kind: str, codec: str, rate_hz: int) -> None:
    data = recorded(kind, codec, rate_hz, 2.0)
    recording = read_upload(data, RATE_HZ)
    assert recording.info.duration_ms == pytest.approx(2000, abs=60)  # whole frames of the codec
    assert (recording.info.sample_rate_hz, recording.info.channels) == (rate_hz, 1)
    spectrum = np.abs(np.fft.rfft(recording.samples[RATE_HZ // 2 :][:RATE_HZ]))
    assert int(spectrum.argmax()) == 440
    long = refusal(recorded(kind, codec, rate_hz, 31.0))
    assert long.reason == "RECORDING_TOO_LONG"
    with contextlib.suppress(InvalidRecording):
        read_upload(data[: len(data) // 2], RATE_HZ)


def recorded(kind: str, codec: str, rate_hz: int, seconds: float) -> bytes:
    """A tone of 440 Hz, as a phone or a browser would send it."""
    file = io.BytesIO()
    with av.open(file, "w", format=kind) as container:
        stream = container.add_stream(codec, rate=rate_hz, layout="mono")
        at = np.arange(round(seconds * rate_hz)) / rate_hz
        tone = (0.3 * np.sin(2 * np.pi * 440 * at)).astype(np.float32)
        frame = av.AudioFrame.from_ndarray(tone[None], format="fltp", layout="mono")
        frame.sample_rate = rate_hz
        fifo = av.AudioFifo()
        fifo.write(frame)
        while (part := fifo.read(960)) or (part := fifo.read()):
            container.mux(stream.encode(part))
        container.mux(stream.encode(None))
    return file.getvalue()


@pytest.mark.parametrize("num_bytes", [0, 0xFFFFFFFF])
def test_a_wav_file_from_a_pipe_is_read_to_its_end(num_bytes: int) -> None:
    assert read_upload(wav_that_claims(num_bytes, noise_bytes(2)), RATE_HZ).info.duration_ms == 2000
    assert refusal(wav_that_claims(num_bytes, noise_bytes(31))).reason == "RECORDING_TOO_LONG"
    assert refusal(wav_that_claims(num_bytes, b"")).reason == "RECORDING_TOO_SHORT"


def test_errors_name_no_objects() -> None:
    for kind in ("WAV", "FLAC", "OGG", "MP3"):
        for at in (20, 200, 2000):
            try:
                read_upload(spoken(kind=kind)[:at], RATE_HZ)
            except InvalidRecording as error:
                assert "object" not in str(error) and "0x" not in str(error)


@pytest.mark.parametrize("begins", [b"RIFF", b"RIFF\0\0\0\0WAVE", b"fLaC", b"OggS", b"ID3", b"\xff\xfb"])
def test_no_more_than_a_beginning(begins: bytes) -> None:
    assert refusal(begins).reason == "RECORDING_UNREADABLE"


@pytest.mark.parametrize(
    ("samples", "reason", "measured"),
    [
        (noise(0.5), "RECORDING_TOO_SHORT", r"lasts 0\.500 s; 1 s is the least"),
        (noise(0)[:0], "RECORDING_TOO_SHORT", r"lasts 0\.000 s"),
        (np.ones(1, np.float32), "RECORDING_TOO_SHORT", r"lasts 0\.000 s"),
        (noise(31), "RECORDING_TOO_LONG", r"lasts 31\.0 s by its header; cut it to 30 s"),
        (noise(2, level=0), "RECORDING_SILENT", "has no sound at all"),
        (noise(2, level=3e-4), "RECORDING_SILENT", r"at -70\.\d dBFS"),
        (np.stack([noise(2), -noise(2)], axis=1), "RECORDING_SILENT", "mixed down"),
        (noise(2).clip(-0.1, 0.1) * 10, "RECORDING_CLIPPED", r"31\.\d% of the recording is at full scale"),
    ],
)
def test_what_no_voice_can_be_made_of(samples: np.ndarray, reason: str, measured: str) -> None:
    error = refusal(audio_file(samples))
    assert error.reason == reason
    assert re.search(measured, str(error))


def test_a_constant_is_silence() -> None:
    assert refusal(audio_file(np.full(RATE_HZ * 2, 0.5, np.float32))).reason == "RECORDING_SILENT"


@pytest.mark.parametrize(("value", "message"), [(np.nan, "not finite"), (np.inf, "as large as inf"), (1e30, "1e+30")])
def test_numbers_that_are_no_samples(value: float, message: str) -> None:
    samples = noise(2)
    samples[1000] = value
    error = refusal(audio_file(samples, subtype="FLOAT"))
    assert error.reason == "RECORDING_UNREADABLE" and message in str(error)


@pytest.mark.parametrize(("rate_hz", "channels"), [(7999, 1), (192_001, 1), (24000, 33)])
def test_rates_and_channels_beyond_reason(rate_hz: int, channels: int) -> None:
    error = refusal(audio_file(np.zeros((100, channels), np.float32), rate_hz))
    assert error.reason == "RECORDING_UNSUPPORTED"
    assert f"{channels} channels at {rate_hz} Hz; use 1 to 32 channels at 8000 to 192000 Hz" in str(error)


def test_ten_hours_by_header() -> None:
    num_samples = 36_000 * RATE_HZ
    flac = flac_that_claims(num_samples, spoken(kind="FLAC"))
    assert "lasts 36000.0 s by its header" in str(refusal(flac))
    # libsndfile takes a WAV file for as long as it is, whatever its header says.
    wav = wav_that_claims(num_samples * 2, noise_bytes(2))
    assert read_upload(wav, RATE_HZ).info.duration_ms == 2000


def noise_bytes(seconds: float) -> bytes:
    return (noise(seconds) * 32767).astype(np.int16).tobytes()


def test_a_decompression_bomb_is_not_decoded_to_its_end() -> None:
    """Twenty minutes of a tone, with a header that says two seconds, or no length at all."""
    flac = audio_file(np.tile(noise(0.01), 100 * 60 * 20), kind="FLAC")
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert read_upload(flac_that_claims(2 * RATE_HZ, flac), RATE_HZ).info.duration_ms == 2000
    assert "does not say how long it is" in str(refusal(flac_that_claims(0, flac)))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 20_000  # all of it would be 115,000


@pytest.mark.parametrize("kind", ["WAV", "FLAC", "OGG", "MP3"])
@settings(max_examples=50)  # of each kind
@given(st.data())
def test_truncated_and_damaged_files_are_read_or_refused(kind: str, data: st.DataObject) -> None:
    file = bytearray(spoken(1.5, kind=kind))
    for _ in range(data.draw(st.integers(0, 4))):
        file[data.draw(st.integers(0, min(len(file) - 1, 400)))] = data.draw(st.integers(0, 255))
    try:
        recording = read_upload(bytes(file[: data.draw(st.integers(0, len(file)))]), RATE_HZ)
    except InvalidRecording:
        return
    assert np.isfinite(recording.samples).all()
    assert 1000 <= recording.info.duration_ms <= MAX_RECORDING_S * 1000
    assert math.isfinite(recording.info.level_dbfs)


def test_speech_is_what_sounds_without_its_pauses() -> None:
    samples = noise(8, level=0.001)
    for begin_s in (0.5, 3, 6):
        samples[round(begin_s * 24000) :][:24000] += noise(1, level=0.2)
    assert read_upload(audio_file(samples), 24000).info.speech_ms == pytest.approx(3000, abs=60)


def test_in_loud_noise_pauses_cannot_be_told() -> None:
    assert read_upload(audio_file(noise(4)), 24000).info.speech_ms == 0
