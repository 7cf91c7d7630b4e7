"""The runner on CUDA: graphs, filled-up rows, number formats. The CPU's result is what it is compared with."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import get_args

import numpy as np
import numpy.typing as npt
import pytest
import torch

from sonorant.engine import offline
from sonorant.engine.checkpoint.config import Checkpoint, load_checkpoint
from sonorant.engine.checkpoint.folders import BUILTIN_VOICE_DIR
from sonorant.engine.code2wav.run import runner as runner_module
from sonorant.engine.code2wav.run.runner import Code2WavRunner
from sonorant.engine.config import CodecDtypeName, EngineConfig
from sonorant.engine.types import Float32Array, Int16Array
from tests.measure.codec_frames import PUBLISHED_DECODER
from tests.tiny_checkpoint import write_tiny_checkpoint

pytestmark = pytest.mark.gpu

NUM_SLOTS = 9
NUM_STREAMS = 7
STREAM_FRAMES = 40  # several windows of attention
FRAME_SAMPLES = 1920
MIN_SNR_DB = 36.0


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> EngineConfig:
    folder = write_tiny_checkpoint(tmp_path_factory.mktemp("checkpoint"))
    return EngineConfig.of(model=folder, code2wav_device="cuda:0", num_slots=NUM_SLOTS, max_decode_batch=6)


@pytest.fixture(scope="module")
def codes() -> Int16Array:
    return np.random.default_rng(0).integers(0, 64, (NUM_STREAMS, STREAM_FRAMES, 4)).astype(np.int16)


@pytest.fixture(scope="module")
def expected(config: EngineConfig, codes: Int16Array) -> Float32Array:
    """Every stream by itself and at once, on the CPU."""
    runner = make_runner(config.but(code2wav_device="cpu"))
    samples = np.concatenate([runner.decode([slot], codes[slot : slot + 1]) for slot in range(NUM_STREAMS)])
    return samples.astype(np.float32)


def make_runner(config: EngineConfig) -> Code2WavRunner:
    return Code2WavRunner(load_checkpoint(config.model), config, float_output=True)


def decode_by_schedule(runner: Code2WavRunner, codes: Int16Array, seed: int) -> Float32Array:
    """Calls for any streams, in any order, with any number of frames, until all are through.

    After each, one slot's state leaves it and comes back.
    """
    rng = np.random.default_rng(seed)
    slots = rng.permutation(NUM_SLOTS)[:NUM_STREAMS]
    for slot in slots:
        runner.reset(int(slot))
    num_done = np.zeros(NUM_STREAMS, int)
    samples = np.full((NUM_STREAMS, STREAM_FRAMES * FRAME_SAMPLES), np.nan, np.float32)
    while (open_streams := np.flatnonzero(num_done < STREAM_FRAMES)).size:
        streams = rng.permutation(open_streams)[: rng.integers(1, NUM_STREAMS + 1)]
        size = min(int(rng.integers(1, 16)), STREAM_FRAMES - num_done[streams].max())
        chunk = np.stack([codes[stream, num_done[stream] : num_done[stream] + size] for stream in streams])
        for stream, row in zip(streams, runner.decode(slots[streams].tolist(), chunk), strict=True):
            samples[stream, num_done[stream] * FRAME_SAMPLES :][: size * FRAME_SAMPLES] = row
        num_done[streams] += size
        slot, kept = int(rng.choice(slots)), NUM_SLOTS + int(rng.integers(4))
        runner.copy(slot, kept)
        runner.reset(slot)
        runner.copy(kept, slot)
    return samples


@contextmanager
def no_synchronization() -> Iterator[None]:
    """What makes the host wait for the device is an error, but for events."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("enforce_eager", [False, True])
def test_any_schedule_gives_the_audio_of_the_cpu_without_synchronization(
    config: EngineConfig, codes: Int16Array, expected: Float32Array, enforce_eager: bool
) -> None:
    runner = make_runner(replace(config, enforce_eager=enforce_eager))
    decode_by_schedule(runner, codes, seed=0)
    with no_synchronization():
        samples = decode_by_schedule(runner, codes, seed=1)
    np.testing.assert_allclose(samples, expected, rtol=0, atol=1e-4)


def test_audio_is_the_same_while_graphs_are_still_captured(
    config: EngineConfig, codes: Int16Array, expected: Float32Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sonorant.engine.deferred_work.PAUSE_S", 0.0)
    runner = Code2WavRunner(load_checkpoint(config.model), config, float_output=True, hurries=True)
    decode, pieces = runner.decode, 0

    def decode_and_capture(slots: Sequence[int], chunk: Int16Array) -> Float32Array:
        nonlocal pieces
        pieces += runner.do_deferred() is not None
        return decode(slots, chunk).astype(np.float32)

    monkeypatch.setattr(runner, "decode", decode_and_capture)
    for seed in range(3):
        samples = decode_by_schedule(runner, codes, seed)
        np.testing.assert_allclose(samples, expected, rtol=0, atol=1e-4)
    assert pieces
    assert runner.do_deferred() is None, "all graphs are captured"


def test_graphs_compute_what_separate_kernels_do(config: EngineConfig, codes: Int16Array) -> None:
    graphs, eager = (make_runner(replace(config, enforce_eager=eager)) for eager in (False, True))
    for seed in range(3):
        np.testing.assert_allclose(
            decode_by_schedule(graphs, codes, seed), decode_by_schedule(eager, codes, seed), rtol=0, atol=1e-5
        )


@pytest.mark.parametrize("enforce_eager", [False, True])
def test_urgent_chunks_beside_a_call_sound_as_alone(
    config: EngineConfig, codes: Int16Array, expected: Float32Array, enforce_eager: bool
) -> None:
    runner = make_runner(replace(config, enforce_eager=enforce_eager))
    for _ in range(20):
        for slot in range(NUM_STREAMS):
            runner.reset(slot)
        call = runner.start(range(4), codes[:4, :12])
        runner.reset(6)
        beside = [runner.decode_urgent([4, 5], codes[4:6, :1]), runner.decode_urgent([6], codes[6:, :1])]
        np.testing.assert_allclose(call.samples(), expected[:4, : 12 * FRAME_SAMPLES], rtol=0, atol=1e-4)
        np.testing.assert_allclose(np.concatenate(beside), expected[4:, :FRAME_SAMPLES], rtol=0, atol=1e-4)
        rest = runner.decode(range(NUM_STREAMS), np.concatenate([codes[:4, 12:16], codes[4:, 1:5]]))
        np.testing.assert_allclose(rest[:4], expected[:4, 12 * FRAME_SAMPLES : 16 * FRAME_SAMPLES], rtol=0, atol=1e-4)
        np.testing.assert_allclose(rest[4:], expected[4:, FRAME_SAMPLES : 5 * FRAME_SAMPLES], rtol=0, atol=1e-4)


def test_rows_that_fill_up_touch_no_slot(config: EngineConfig, codes: Int16Array) -> None:
    runner = make_runner(config)
    every_slot = range(NUM_STREAMS)
    for slot in every_slot:
        runner.decode([slot], codes[slot : slot + 1, :5])
    before = {name: getattr(runner._state, name).clone() for name in ("num_frames", "tails", "keys", "values")}
    runner.decode([0, 3, 5, 1, 2], codes[:5, :4])  # six rows
    for name, array in before.items():
        for slot in (4, 6, 7, 8):
            assert torch.equal(array[slot], getattr(runner._state, name)[slot]), (name, slot)


def test_calls_larger_than_a_pass(
    config: EngineConfig, codes: Int16Array, expected: Float32Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_module, "max_pass_frames", lambda *_: 16)
    samples = make_runner(config).decode(range(NUM_STREAMS), codes)
    np.testing.assert_allclose(samples, expected, rtol=0, atol=1e-4)


def test_pcm_is_the_callers_own(config: EngineConfig, codes: Int16Array, expected: Float32Array) -> None:
    runner = Code2WavRunner(load_checkpoint(config.model), config)
    pcm = runner.decode([0], codes[:1, :12])
    runner.decode([0], codes[:1, 12:24])
    assert pcm.dtype == np.int16
    np.testing.assert_allclose(pcm / 32767, expected[:1, : 12 * FRAME_SAMPLES], rtol=0, atol=2e-4)


@pytest.fixture(scope="module")
def utterance() -> Int16Array:
    """The codes of a sentence by the built-in voice."""
    return offline.synthesize("The numbers have to be right before they can be fast.", device="cpu").codes


@pytest.mark.parametrize("dtype", [name for name in get_args(CodecDtypeName) if name not in ("auto", "float32")])
def test_signal_to_noise_ratio_of_short_number_formats(dtype: CodecDtypeName, utterance: Int16Array) -> None:
    checkpoint = load_checkpoint(BUILTIN_VOICE_DIR)
    config = EngineConfig.of(model=checkpoint.folder, code2wav_device="cuda:0", num_slots=1, max_decode_batch=1)
    exact, samples = (
        Code2WavRunner(checkpoint, config.but(code2wav_dtype=name), float_output=True).decode([0], utterance[None])
        for name in ("float32", dtype)
    )
    ratio_db = snr_db(exact, samples)
    print(f"built-in voice, {dtype}: {ratio_db:.1f} dB")
    assert ratio_db > MIN_SNR_DB


@pytest.mark.parametrize("dtype", [name for name in get_args(CodecDtypeName) if name != "auto"])
def test_the_published_shape_is_finite_and_streams_exactly(dtype: CodecDtypeName) -> None:
    checkpoint = published_shape()
    config = EngineConfig.of(
        model=checkpoint.folder,
        load_format="dummy",
        code2wav_device="cuda:0",
        code2wav_dtype=dtype,
        num_slots=4,
        max_decode_batch=2,
    )
    runner = Code2WavRunner(checkpoint, config, float_output=True)
    codes = np.random.default_rng(0).integers(0, 2048, (2, 24, 16)).astype(np.int16)
    at_once = runner.decode([0, 1], codes)
    assert np.isfinite(at_once).all()
    by_chunks = np.hstack([runner.decode([3, 2], codes[:, start : start + 3]) for start in range(0, 24, 3)])
    assert np.isfinite(by_chunks).all()
    print(f"published shape, {dtype}: at once against chunks {snr_db(at_once, by_chunks):.1f} dB")


def published_shape() -> Checkpoint:
    checkpoint = load_checkpoint(BUILTIN_VOICE_DIR)
    return replace(checkpoint, codec=replace(checkpoint.codec, decoder=PUBLISHED_DECODER))


def snr_db(exact: npt.NDArray[np.generic], samples: npt.NDArray[np.generic]) -> float:
    signal = exact.astype(np.float64)
    noise = float(np.mean((samples.astype(np.float64) - signal) ** 2))
    return 10 * float(np.log10(np.mean(signal**2) / max(noise, 1e-30)))


@pytest.mark.parametrize("enforce_eager", [False, True])
def test_what_is_remembered_sounds_as_if_it_was_decoded(
    config: EngineConfig, codes: Int16Array, expected: Float32Array, enforce_eager: bool
) -> None:
    runner = make_runner(replace(config, enforce_eager=enforce_eager))
    runner.decode([5], codes[5:6, :12])  # a slot whose former stream is forgotten
    num_past = STREAM_FRAMES - 3
    slots = [4, 1, 5]
    for slot in slots:
        runner.reset(slot)
    done = 0
    while done < num_past:
        size = runner.context.next_unheard(num_past - done)
        runner.remember(slots, codes[:3, done : done + size])
        done += size
    samples = runner.decode(slots, codes[:3, num_past:])
    np.testing.assert_allclose(samples, expected[:3, num_past * FRAME_SAMPLES :], rtol=0, atol=1e-4)
