import io
import itertools
import wave

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from service.audio import AudioSpec, Framer, wav_header
from sonorant.tts.v1 import audio_pb2


@given(chunks=st.lists(st.integers(0, 700)), frame_samples=st.integers(1, 500))
def test_framing_keeps_every_sample_and_cuts_evenly_however_they_come(chunks: list[int], frame_samples: int) -> None:
    samples = np.arange(sum(chunks)).astype(np.int16)
    framer = Framer(frame_samples * 2)
    frames = []
    for start, end in itertools.pairwise([0, *itertools.accumulate(chunks)]):
        frames += framer.push(samples[start:end])
    rest = framer.flush()
    assert b"".join(frames + rest) == samples.tobytes()
    assert all(len(frame) == frame_samples * 2 for frame in frames)
    assert all(0 < len(frame) < frame_samples * 2 for frame in rest)
    assert framer.flush() == []


def test_a_wav_file_is_read_by_others() -> None:
    pcm = np.arange(-100, 100, dtype="<i2").tobytes()
    spec = AudioSpec(audio_pb2.AUDIO_ENCODING_WAV, 24_000, 80)
    with wave.open(io.BytesIO(spec.file(pcm))) as reader:
        assert reader.getparams()[:4] == (1, 2, 24_000, 200)
        assert reader.readframes(200) == pcm


def test_the_header_of_a_stream_says_that_the_length_is_unknown() -> None:
    header = wav_header(24_000)
    assert (len(header), header[4:8], header[40:44]) == (44, b"\xff" * 4, b"\xff" * 4)
    assert AudioSpec(audio_pb2.AUDIO_ENCODING_WAV, 24_000, 80).header == header
    assert AudioSpec(audio_pb2.AUDIO_ENCODING_PCM_S16LE, 24_000, 80).header == b""


def test_frame_bytes() -> None:
    assert AudioSpec(audio_pb2.AUDIO_ENCODING_PCM_S16LE, 24_000, 80).frame_bytes == 3840
