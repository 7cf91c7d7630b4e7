import io
import itertools
import wave

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from sonorant.service.audio import g711
from sonorant.service.audio.writer import AudioSpec, AudioWriter, Piece, wav_header
from sonorant.tts.v1 import audio_pb2
from tests.service.sounds import noise, snr_db, voiced
from tests.service.written_audio import joined, pieces_of

PCM = audio_pb2.AUDIO_ENCODING_PCM_S16LE
WAV = audio_pb2.AUDIO_ENCODING_WAV
FLAC = audio_pb2.AUDIO_ENCODING_FLAC
MULAW = audio_pb2.AUDIO_ENCODING_MULAW
ALAW = audio_pb2.AUDIO_ENCODING_ALAW
RATES_HZ = (8_000, 16_000, 24_000, 48_000)


@given(
    encoding=st.sampled_from((PCM, WAV, FLAC, MULAW, ALAW)),
    rate_hz=st.sampled_from(RATES_HZ),
    frame_ms=st.integers(10, 200),
    speed=st.sampled_from((0.5, 1.0, 1.3, 2.0)),
    gain_db=st.sampled_from((-6.0, 0.0, 9.0)),
    where=st.lists(st.integers(0, 9600), max_size=6),
    flushes=st.sets(st.integers(0, 6)),
)
@settings(max_examples=100)
def test_bytes_do_not_depend_on_how_the_engine_cuts(
    encoding: int, rate_hz: int, frame_ms: int, speed: float, gain_db: float, where: list[int], flushes: set[int]
) -> None:
    """Between flushes, which are borders of the sound itself."""
    spec = AudioSpec(encoding, rate_hz, frame_ms, speed=speed, gain_db=gain_db)
    samples = noise(9600)
    where = sorted(where)
    borders = [cut for number, cut in enumerate(where) if number in flushes]
    pieces = pieces_of(spec, samples, where, sorted(flushes))
    assert joined(pieces) == joined(pieces_of(spec, samples, borders, range(len(borders))))
    frame_samples = rate_hz * frame_ms // 1000
    lengths = [-(-int(np.ceil(len(part) / speed)) * rate_hz // 24_000) for part in np.split(samples, borders)]
    audio = [piece.num_samples for piece in pieces if piece.num_samples]
    expected = [frame for length in lengths for frame in frames_of(length, frame_samples)]
    assert audio == expected, "all frames but the last before each flush are full"


def frames_of(length: int, frame_samples: int) -> list[int]:
    full, rest = divmod(length, frame_samples)
    return [frame_samples] * full + ([rest] if rest else [])


@given(
    chunks=st.lists(st.integers(0, 700)),
    frame_ms=st.integers(10, 100),
)
def test_at_the_engines_rate_every_sample_goes_out_as_it_is(chunks: list[int], frame_ms: int) -> None:
    samples = noise(sum(chunks), peak=32_767)
    pieces = pieces_of(AudioSpec(PCM, 24_000, frame_ms), samples, list(itertools.accumulate(chunks))[:-1])
    assert joined(pieces) == samples.astype("<i2").tobytes()


def test_stages_come_in_order() -> None:
    """Gain acts before the rate changes and speed before both: the same by hand."""
    samples = voiced(150, 24_000)
    slow = joined(pieces_of(AudioSpec(PCM, 24_000, 80, speed=0.8), samples))
    loud = joined(pieces_of(AudioSpec(PCM, 24_000, 80, gain_db=6.0), np.frombuffer(slow, "<i2")))
    low = joined(pieces_of(AudioSpec(PCM, 8_000, 80), np.frombuffer(loud, "<i2")))
    whole = pieces_of(AudioSpec(MULAW, 8_000, 20, speed=0.8, gain_db=6.0), samples)
    assert joined(whole) == g711.mulaw(np.frombuffer(low, "<i2"))
    assert {len(piece.data) for piece in whole[:-1]} == {160}


@pytest.mark.parametrize("rate_hz", RATES_HZ)
def test_a_wav_file_is_read_by_others(rate_hz: int) -> None:
    samples = noise(2400)
    spec = AudioSpec(WAV, rate_hz, 80)
    pieces = pieces_of(spec, samples)
    assert (pieces[0].num_samples, len(pieces[0].data)) == (0, 44)
    with wave.open(io.BytesIO(spec.file(joined(pieces)))) as reader:
        num_samples = 2400 * rate_hz // 24_000
        assert reader.getparams()[:4] == (1, 2, rate_hz, num_samples)
        assert reader.readframes(num_samples) == joined(pieces_of(AudioSpec(PCM, rate_hz, 80), samples))


@pytest.mark.parametrize("rate_hz", RATES_HZ)
def test_a_flac_file_has_every_sample(rate_hz: int) -> None:
    samples = noise(2400)
    spec = AudioSpec(FLAC, rate_hz, 80)
    read, read_hz = soundfile.read(io.BytesIO(spec.file(joined(pieces_of(spec, samples)))), dtype="int16")
    assert read_hz == rate_hz
    assert read.astype("<i2").tobytes() == joined(pieces_of(AudioSpec(PCM, rate_hz, 80), samples))


def test_the_header_of_a_stream_says_that_the_length_is_unknown() -> None:
    header = wav_header(24_000)
    assert (len(header), header[4:8], header[40:44]) == (44, b"\xff" * 4, b"\xff" * 4)
    assert AudioWriter(AudioSpec(WAV, 24_000, 80)).begin() == [Piece(header, 0)]
    assert AudioWriter(AudioSpec(PCM, 24_000, 80)).begin() == []


def test_nothing_begun_leaves_nothing_to_end() -> None:
    assert AudioWriter(AudioSpec(audio_pb2.AUDIO_ENCODING_OGG_OPUS, 24_000, 80, 32_000)).end() == []


@pytest.mark.parametrize("rate_hz", RATES_HZ)
def test_streams_stay_in_time_at_every_rate(rate_hz: int) -> None:
    """No delay builds up or remains: up- or downsampled speech lies on top of the original."""
    out = joined(pieces_of(AudioSpec(PCM, rate_hz, 20), voiced(150, 24_000), range(1920, 24_000, 1920)))
    middle = slice(rate_hz // 20, -rate_hz // 20)
    assert snr_db(voiced(150, rate_hz, rate_hz)[middle], np.frombuffer(out, "<i2")[middle]) > 60
