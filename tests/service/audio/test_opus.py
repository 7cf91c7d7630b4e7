"""Opus packets and Ogg pages, judged by decoders of others: FFmpeg's and libsndfile's."""

import io

import av
import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from sonorant.service.audio.ogg import crc
from sonorant.service.audio.opus import OpusEncoder
from sonorant.service.audio.writer import AudioSpec, AudioWriter, Piece
from sonorant.tts.v1 import audio_pb2
from tests.service.decoders import decoded, pages
from tests.service.sounds import noise, snr_db, voiced
from tests.service.written_audio import joined, pieces_of

OPUS = audio_pb2.AUDIO_ENCODING_OPUS
OGG_OPUS = audio_pb2.AUDIO_ENCODING_OGG_OPUS
RATES_HZ = (8_000, 16_000, 24_000, 48_000)
MOST_BPS = 256_000


def test_checksum_is_that_of_the_specification() -> None:
    def bit_by_bit(data: bytes) -> int:
        value = 0
        for byte in data:
            value ^= byte << 24
            for _ in range(8):
                value = (value << 1 ^ 0x04C11DB7 if value & 0x80000000 else value << 1) & 0xFFFFFFFF
        return value

    for data in (b"", b"\0", b"OggS", noise(500).tobytes()):
        assert crc(data) == bit_by_bit(data)


@pytest.mark.parametrize("rate_hz", RATES_HZ)
@pytest.mark.parametrize("frame_ms", (10, 20, 40, 60))
def test_bare_packets_decode_to_the_sound(rate_hz: int, frame_ms: int) -> None:
    samples = voiced(150, 24_000 + 333)
    pieces = pieces_of(AudioSpec(OPUS, rate_hz, frame_ms, MOST_BPS), samples)
    expected = voiced(150, -(-len(samples) * rate_hz // 24_000), rate_hz)
    assert sum(piece.num_samples for piece in pieces) == len(expected)
    look_ahead = 312 * rate_hz // 48_000
    packet_samples = rate_hz * frame_ms // 1000
    assert [piece.num_samples for piece in pieces[:2]] == [packet_samples - look_ahead, packet_samples]
    out = decoded([piece.data for piece in pieces], 48_000)
    assert len(out) == len(pieces) * frame_ms * 48
    sound = out[312 :: 48_000 // rate_hz][: len(expected)]
    assert snr_db(expected[rate_hz // 10 : -rate_hz // 10], sound[rate_hz // 10 : -rate_hz // 10]) > 20


@pytest.mark.parametrize("rate_hz", RATES_HZ)
@pytest.mark.parametrize("frame_ms", (10, 30, 80, 1000))
@pytest.mark.parametrize("length", (1, 1919, 24_000, 50_001))
def test_ogg_is_read_by_others_at_its_true_length(rate_hz: int, frame_ms: int, length: int) -> None:
    pieces = pieces_of(AudioSpec(OGG_OPUS, rate_hz, frame_ms, 64_000), voiced(150, length), range(1920, length, 1920))
    num_samples = -(-length * rate_hz // 24_000)
    assert sum(piece.num_samples for piece in pieces) == num_samples
    read, read_hz = soundfile.read(io.BytesIO(joined(pieces)))
    assert (len(read) * rate_hz, read_hz) == (num_samples * read_hz, read_hz)
    with av.open(io.BytesIO(joined(pieces))) as container:
        frames = list(container.decode(audio=0))
        assert sum(frame.samples for frame in frames) == num_samples * 48_000 // rate_hz
    if length > 20_000:
        expected = voiced(150, len(read), read_hz)
        assert snr_db(expected[read_hz // 10 : -read_hz // 10], read[read_hz // 10 : -read_hz // 10] * 32_767) > 10


def test_a_page_per_frame_and_the_last_one_marked() -> None:
    pieces = pieces_of(AudioSpec(OGG_OPUS, 24_000, 80, 32_000), voiced(150, 24_000))
    assert pieces[0].num_samples == 0
    head, tags, *audio = pages(joined(pieces))
    assert [head[0], tags[0]] == [2, 0]
    assert len(audio) == len(pieces) - 1
    assert [page[0] for page in audio] == [0] * (len(audio) - 1) + [4]
    assert [page[2] for page in (head, tags, *audio)] == list(range(len(audio) + 2))
    assert [page[1] for page in audio] == [*range(3840, 48_000, 3840), 48_000 + 312]
    assert joined(pieces)[28:].startswith(b"OpusHead\x01\x01")


@given(where=st.lists(st.integers(0, 9600), max_size=6), encoding=st.sampled_from((OPUS, OGG_OPUS)))
@settings(max_examples=20)
def test_packets_do_not_depend_on_how_the_engine_cuts(where: list[int], encoding: int) -> None:
    spec = AudioSpec(encoding, 24_000, 20, 32_000)

    def but_for_the_serial(pieces: list[Piece]) -> list[tuple[bytes, int]]:
        if encoding == OPUS:
            return [(piece.data, piece.num_samples) for piece in pieces]
        return [(piece.data[:14] + piece.data[18:22] + piece.data[26:], piece.num_samples) for piece in pieces[1:]]

    samples = voiced(150, 9600)
    assert but_for_the_serial(pieces_of(spec, samples, where)) == but_for_the_serial(pieces_of(spec, samples))


@pytest.mark.parametrize("encoding", (OPUS, OGG_OPUS))
@pytest.mark.parametrize("length", (1, 2000, 7680))
def test_a_flush_brings_everything_out_of_the_decoder(encoding: int, length: int) -> None:
    """Silence fills the packet up, and what follows is later by as much."""
    writer = AudioWriter(AudioSpec(encoding, 24_000, 20, MOST_BPS))
    begin, sound = writer.begin(), voiced(150, length)
    first = writer.push(sound) + writer.flush()
    assert length <= sum(piece.num_samples for piece in first) < length + 480 + 156
    assert writer.flush() == []
    second = writer.push(sound) + writer.end()
    if encoding == OGG_OPUS:
        out, _ = soundfile.read(io.BytesIO(joined(begin + first + second)))
        later = sum(piece.num_samples for piece in first) + 156
        assert len(out) == later + length
        if length > 2000:
            assert snr_db(sound[480:-480], out[480 : length - 480] * 32_767) > 15
            assert snr_db(sound[480:-480], out[later + 480 : -480] * 32_767) > 15
    else:
        assert len(first) == -(-(length + 156) // 480)


def test_an_utterance_that_ends_after_a_flush_is_closed_with_an_empty_page() -> None:
    writer = AudioWriter(AudioSpec(OGG_OPUS, 24_000, 80, 32_000))
    pieces = writer.begin() + writer.push(voiced(150, 4000)) + writer.flush()
    (closing,) = writer.end()
    assert closing.num_samples == 0
    flags, position, _, lacing = pages(closing.data)[0]
    assert (flags, lacing) == (4, [])
    assert position == pages(pieces[-1].data)[0][1]
    read, _ = soundfile.read(io.BytesIO(joined([*pieces, closing])))
    assert len(read) == sum(piece.num_samples for piece in pieces)


@pytest.mark.parametrize("bitrate_bps", (12_000, 24_000, 64_000))
def test_bit_rate_is_kept(bitrate_bps: int) -> None:
    encoder = OpusEncoder(24_000, 20, bitrate_bps)
    sound = voiced(150, 240_000)
    size = sum(len(encoder.encode(sound[start : start + 480])) for start in range(0, 240_000, 480))
    assert size * 8 / 10 == pytest.approx(bitrate_bps, rel=0.15)


@pytest.mark.parametrize("encoding", [OPUS, OGG_OPUS])
def test_skipped_audio_is_counted_like_encoded_audio_and_what_follows_sounds_right(encoding: int) -> None:
    spec, sound = AudioSpec(encoding, 24_000, 20, MOST_BPS), voiced(150, 24_000)
    written, skipped = AudioWriter(spec), AudioWriter(spec)
    for writer in (written, skipped):
        writer.begin()
    silence, codes = np.zeros(48_000, np.int16), np.zeros((25, 4), np.int16)
    before = skipped.skip(silence, codes)
    assert [piece.num_samples for piece in before] == [piece.num_samples for piece in written.speech(silence, codes)]
    after = [skipped.push(sound) + skipped.end(), written.push(sound) + written.end()]
    assert [piece.num_samples for piece in after[0]] == [piece.num_samples for piece in after[1]]
    if encoding == OGG_OPUS:
        headers = [[bytes(piece.data[:22]) for piece in pieces] for pieces in after]  # position and number of the page
        assert headers[0] == headers[1]
    else:
        ours, theirs = (decoded([piece.data for piece in pieces], 48_000) for pieces in after)
        assert snr_db(theirs, ours) > 20
