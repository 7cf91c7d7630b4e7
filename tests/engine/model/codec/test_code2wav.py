"""Streaming = offline: the decoder's state makes any partition of a stream into calls equal to one call."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.model.codec.code2wav import UNUSED_TENSORS, Code2Wav
from sonorant.engine.model.weights import TensorFile, load_module
from tests.measure.codec_frames import PUBLISHED_DECODER
from tests.tiny_checkpoint import write_tiny_checkpoint

NUM_SLOTS = 5
STREAM_FRAMES = 24  # several windows of attention
FRAME_SAMPLES = 1920
TOLERANCE = 1e-5


@dataclass(frozen=True)
class Call:
    """Some streams, in this row order, a few frames further."""

    streams: Sequence[int]
    num_frames: int


@pytest.fixture(scope="module", params=[{}, {"codec_window": 3, "heads": 2, "codebooks": 6, "decoder_dim": 48}])
def decoder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Code2Wav:
    folder = write_tiny_checkpoint(tmp_path_factory.mktemp("checkpoint"), **request.param)
    return load_decoder(folder)


def load_decoder(folder: Path, dtype: torch.dtype = torch.float32) -> Code2Wav:
    with torch.device("meta"):
        decoder = Code2Wav(load_checkpoint(folder).codec.decoder)
    file = TensorFile(folder / "speech_tokenizer" / "model.safetensors")
    load_module(decoder, file, "decoder.", torch.device("cpu"), dtype, optional_unused=UNUSED_TENSORS)
    decoder.prepare()
    return decoder


def random_codes(decoder: Code2Wav, num_streams: int) -> torch.Tensor:
    rng = np.random.default_rng(num_streams)
    shape = (num_streams, STREAM_FRAMES, decoder.config.num_quantizers)
    return torch.from_numpy(rng.integers(0, decoder.config.codebook_size, shape))


def decode_at_once(decoder: Code2Wav, codes: torch.Tensor) -> torch.Tensor:
    """Each row by itself, in one call, on a fresh state."""
    return torch.cat([decoder.step(row[None], decoder.new_state(1), torch.tensor([0])) for row in codes])


@pytest.fixture(scope="module")
def codes(decoder: Code2Wav) -> torch.Tensor:
    return random_codes(decoder, 3)


@pytest.fixture(scope="module")
def expected(decoder: Code2Wav, codes: torch.Tensor) -> torch.Tensor:
    return decode_at_once(decoder, codes)


calls = st.builds(
    Call,
    st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True),
    st.integers(1, 12),
)


@pytest.mark.slow
@settings(max_examples=20)
@given(schedule=st.lists(calls, max_size=20), slots=st.permutations(range(NUM_SLOTS)))
def test_any_partition_order_and_interleaving_gives_the_same_audio(
    decoder: Code2Wav, codes: torch.Tensor, expected: torch.Tensor, schedule: Sequence[Call], slots: Sequence[int]
) -> None:
    state = decoder.new_state(NUM_SLOTS)
    done = [0, 0, 0]
    for call in [*schedule, Call([0], STREAM_FRAMES), Call([1], STREAM_FRAMES), Call([2], STREAM_FRAMES)]:
        num_frames = min([call.num_frames, *(STREAM_FRAMES - done[stream] for stream in call.streams)])
        if not num_frames:
            continue
        piece = torch.stack([codes[stream, done[stream] : done[stream] + num_frames] for stream in call.streams])
        samples = decoder.step(piece, state, torch.tensor([slots[stream] for stream in call.streams]))
        assert samples.shape == (len(call.streams), num_frames * FRAME_SAMPLES)
        for row, stream in enumerate(call.streams):
            first = done[stream] * FRAME_SAMPLES
            torch.testing.assert_close(
                samples[row], expected[stream, first : first + samples.shape[1]], rtol=0, atol=TOLERANCE
            )
            done[stream] += num_frames
    assert done == [STREAM_FRAMES] * 3


def test_a_reset_slot_is_as_new(decoder: Code2Wav, codes: torch.Tensor, expected: torch.Tensor) -> None:
    state = decoder.new_state(NUM_SLOTS)
    decoder.step(codes[:2], state, torch.tensor([3, 1]))
    state.reset(3)
    samples = decoder.step(codes[2:], state, torch.tensor([3]))
    torch.testing.assert_close(samples, expected[2:], rtol=0, atol=TOLERANCE)
    assert state.num_frames.tolist() == [0, STREAM_FRAMES, 0, STREAM_FRAMES, 0]


def test_slots_out_of_a_call_are_untouched(decoder: Code2Wav, codes: torch.Tensor) -> None:
    state = decoder.new_state(NUM_SLOTS)
    decoder.step(codes[:2], state, torch.tensor([0, 4]))
    before = [array[[0, 4]].clone() for array in (state.num_frames, state.tails, state.keys, state.values)]
    decoder.step(codes[2:], state, torch.tensor([2]))
    after = [array[[0, 4]] for array in (state.num_frames, state.tails, state.keys, state.values)]
    for a, b in zip(before, after, strict=True):
        assert torch.equal(a, b)


def test_what_masked_keys_hold_does_not_matter(decoder: Code2Wav, codes: torch.Tensor, expected: torch.Tensor) -> None:
    state = decoder.new_state(3)
    state.keys.fill_(1e3)
    state.values.fill_(1e3)
    samples = decoder.step(codes, state, torch.arange(3))
    torch.testing.assert_close(samples, expected, rtol=0, atol=TOLERANCE)


def test_sound_does_not_depend_on_what_follows(decoder: Code2Wav, codes: torch.Tensor, expected: torch.Tensor) -> None:
    beginning = decode_at_once(decoder, codes[:, :5])
    torch.testing.assert_close(beginning, expected[:, : 5 * FRAME_SAMPLES], rtol=0, atol=TOLERANCE)


def decoded_behind(decoder: Code2Wav, codes: torch.Tensor, num_past: int, calls: Sequence[int]) -> torch.Tensor:
    """What is decoded behind `num_past` frames that were remembered, in calls of these sizes and one of the rest."""
    state = decoder.new_state(2)
    slots, done = torch.tensor([1]), 0
    for size in [*calls, num_past]:
        if piece := min(size, num_past - done):
            decoder.remember(codes[:, done : done + piece], state, slots)
            done += piece
    assert state.num_frames.tolist() == [0, num_past]
    return decoder.step(codes[:, num_past:], state, slots)


@pytest.mark.parametrize("calls", [(), (1, 2, 5), (14,)])
@pytest.mark.parametrize("num_past", [1, 2, 9, 20])
def test_what_is_remembered_sounds_as_if_it_was_decoded(
    decoder: Code2Wav, codes: torch.Tensor, expected: torch.Tensor, num_past: int, calls: Sequence[int]
) -> None:
    samples = decoded_behind(decoder, codes[:1], num_past, calls)
    torch.testing.assert_close(samples, expected[:1, num_past * FRAME_SAMPLES :], rtol=0, atol=TOLERANCE)


@torch.inference_mode()
@pytest.mark.parametrize("num_decoded", [0, 4])
def test_frames_that_are_only_attended_to_sound_as_if_they_were_decoded(
    decoder: Code2Wav, codes: torch.Tensor, expected: torch.Tensor, num_decoded: int
) -> None:
    """Behind as many decoded ones as are said."""
    state, slots = decoder.new_state(3), torch.tensor([1, 0, 2])
    num_heard = 2
    num_past = codes.shape[1] - num_heard
    num_attended = num_past - decoder.convolved_frames - num_decoded
    assert num_attended > 1
    decoder.step(codes[:, :num_decoded], state, slots) if num_decoded else None
    decoder.attend(codes[:, num_decoded : num_decoded + 1], state, slots)
    decoder.attend(codes[:, num_decoded + 1 : num_decoded + num_attended], state, slots)
    decoder.step(codes[:, num_decoded + num_attended : num_past], state, slots)
    assert state.num_frames.tolist() == [num_past] * 3
    samples = decoder.step(codes[:, num_past:], state, slots)
    torch.testing.assert_close(samples, expected[:, num_past * FRAME_SAMPLES :], rtol=0, atol=TOLERANCE)


@torch.inference_mode()
def test_the_state_depends_on_as_many_frames_as_are_said_and_not_one_more(tmp_path: Path) -> None:
    """Two pasts that differ leave the same bits behind that many equal frames, and others behind one less. In float64,
    where what comes a long way through small factors is not lost in rounding."""
    decoder = load_decoder(write_tiny_checkpoint(tmp_path), torch.float64)
    num_equal = decoder.receptive_frames
    rng = np.random.default_rng(0)
    num_frames, books = num_equal + 6, decoder.config.num_quantizers
    codes = torch.from_numpy(rng.integers(0, decoder.config.codebook_size, (2, num_frames, books)))

    def kept_behind(past: torch.Tensor) -> list[torch.Tensor]:
        state = decoder.new_state(1)
        for frames in past[None].split(5, 1):
            decoder.step(frames, state, torch.tensor([0]))
        return [state.tails, state.keys, state.values]

    kept = kept_behind(codes[0])
    for num_other, is_same in ((6, True), (7, False)):
        other = kept_behind(torch.cat((codes[1, :num_other], codes[0, num_other:])))
        assert all(torch.equal(*arrays) for arrays in zip(kept, other, strict=True)) is is_same


@torch.inference_mode()
def test_a_slot_may_begin_as_many_frames_before(decoder: Code2Wav) -> None:
    num_needed, num_skipped, num_heard = decoder.receptive_frames, 17, 3
    rng = np.random.default_rng(1)
    shape = (1, num_skipped + num_needed + num_heard, decoder.config.num_quantizers)
    codes = torch.from_numpy(rng.integers(0, decoder.config.codebook_size, shape))
    undisturbed = decoder.step(codes, decoder.new_state(1), torch.tensor([0]))[:, -num_heard * FRAME_SAMPLES :]
    state = decoder.new_state(1)
    state.reset(0, num_skipped)
    decoder.remember(codes[:, num_skipped:-num_heard], state, torch.tensor([0]))
    samples = decoder.step(codes[:, -num_heard:], state, torch.tensor([0]))
    torch.testing.assert_close(samples, undisturbed, rtol=0, atol=TOLERANCE)


def test_the_published_decoder_sees_580_frames() -> None:
    with torch.device("meta"):
        assert Code2Wav(PUBLISHED_DECODER).receptive_frames == 10 + 8 * 71 + 2
