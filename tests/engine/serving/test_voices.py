"""Voices through the engine and its processes: presets, mixes, clones, and what a checkpoint lacks.

That clones and designs sound as they should is in tests/parity/test_engine.py.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace

import numpy as np
import pytest
import pytest_asyncio

from sonorant.engine import (
    EngineConfig,
    EngineUnavailable,
    FinishReason,
    InvalidRecording,
    InvalidSynthesis,
    PcmChunk,
    SynthesisParams,
    UnknownSpeaker,
    UnsupportedTask,
    mix_embeddings,
)
from sonorant.engine.types import Float32Array
from tests.engine.encoder.recordings import spoken
from tests.engine.one_engine import OwnedEngine, start_engine
from tests.engine.speech import assert_same_speech, listen, say, until_idle
from tests.tiny_checkpoint import QUICK, write_tiny_checkpoint

pytestmark = pytest.mark.asyncio(loop_scope="module")
TEXT = "Hello world, the quick brown fox."


async def started(tmp_path_factory: pytest.TempPathFactory, task: str) -> OwnedEngine:
    folder = write_tiny_checkpoint(tmp_path_factory.mktemp("checkpoint"), task, **QUICK)
    return await start_engine(EngineConfig.of(model=folder, num_slots=4, max_context=256, cpu_threads=1))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def custom_voice(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[OwnedEngine]:
    engine = await started(tmp_path_factory, "custom_voice")
    yield engine
    await engine.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def base(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[OwnedEngine]:
    engine = await started(tmp_path_factory, "base")
    yield engine
    await engine.close()


def greedy(engine: OwnedEngine, *, max_frames: int = 24, **voice: object) -> SynthesisParams:
    sampling = replace(
        engine.info.default_sampling,
        do_sample=False,
        subtalker_do_sample=False,
        max_frames=max_frames,
        ignore_eos=True,
    )
    return SynthesisParams(sampling, language="english", **voice)  # type: ignore[arg-type]


@pytest.mark.parametrize("spherical", [False, True])
async def test_a_mix_with_all_weight_on_one_speaker_is_that_speaker(custom_voice: OwnedEngine, spherical: bool) -> None:
    speakers = custom_voice.info.speakers
    embeddings = [custom_voice.model.speaker_embedding(speaker) for speaker in speakers]
    for n, speaker in enumerate(speakers):
        weights = [float(n == k) for k in range(len(speakers))]
        mix = mix_embeddings(embeddings, weights, spherical=spherical)
        pure = await say(custom_voice, TEXT, greedy(custom_voice, speaker=speaker))
        mixed = await say(custom_voice, TEXT, greedy(custom_voice, x_vector=mix))
        assert_same_speech(mixed.samples, pure.samples)


async def test_a_mix_of_two_speakers_is_neither(custom_voice: OwnedEngine) -> None:
    one, other, *_ = (custom_voice.model.speaker_embedding(speaker) for speaker in custom_voice.info.speakers)

    async def sound(x_vector: Float32Array) -> bytes:
        heard = await say(custom_voice, TEXT, greedy(custom_voice, x_vector=x_vector))
        return heard.samples.tobytes()

    mixes = [mix_embeddings([one, other], [0.5, 0.5], spherical=spherical) for spherical in (False, True)]
    assert len({await sound(each) for each in (one, other, *mixes)}) == 4


async def test_speakers_that_are_not_there(custom_voice: OwnedEngine, base: OwnedEngine) -> None:
    assert custom_voice.model.speaker_embedding("Vivian").shape == (custom_voice.info.hidden_size,)
    with pytest.raises(UnknownSpeaker, match="did you mean 'vivian'"):
        custom_voice.model.speaker_embedding("vivien")
    with pytest.raises(UnsupportedTask, match="no speakers"):
        base.model.speaker_embedding("vivian")


async def test_a_checkpoint_that_cannot_clone_says_so_before_it_looks(custom_voice: OwnedEngine) -> None:
    with pytest.raises(UnsupportedTask, match="cannot clone a voice; use one that it has, or load a Base checkpoint"):
        await custom_voice.encode_reference(spoken(), with_codes=True)
    with pytest.raises(UnsupportedTask, match="cannot clone"):
        await custom_voice.check_reference(b"")
    assert custom_voice.encoder_pid is None


@pytest.mark.slow
async def test_a_clone_speaks_with_and_without_its_transcript(base: OwnedEngine) -> None:
    encoded = await base.encode_reference(spoken(3), with_codes=True)
    assert encoded.recording == await base.check_reference(spoken(3))
    assert encoded.codes is not None and len(encoded.codes) == 38
    clone = greedy(base, x_vector=encoded.x_vector)
    in_context = replace(clone, reference_codes=encoded.codes, reference_text="the lazy dog")
    by_embedding = await say(base, TEXT, clone)
    by_example = await say(base, TEXT, in_context)
    assert by_embedding.num_frames == by_example.num_frames == 24  # of its own; 38 of the reference are not heard
    assert not np.array_equal(by_embedding.samples, by_example.samples)
    again = await say(base, TEXT, in_context)  # the codec begins with what it kept of the reference
    assert_same_speech(again.samples, by_example.samples)


async def test_a_reference_longer_than_the_context_is_refused(base: OwnedEngine) -> None:
    encoded = await base.encode_reference(spoken(25), with_codes=True)
    clone = greedy(base, x_vector=encoded.x_vector, reference_codes=encoded.codes, reference_text="the lazy dog")
    with pytest.raises(InvalidSynthesis, match="leaves none for speech; shorten text, instruct or reference audio"):
        base.open(clone)


@pytest.mark.slow
async def test_live_streams_outlive_the_encoder(base: OwnedEngine) -> None:
    encoded = await base.encode_reference(spoken(), with_codes=False)
    params = greedy(base, x_vector=encoded.x_vector, max_frames=100)
    expected = await say(base, TEXT, params)
    pid = base.encoder_pid
    assert pid is not None
    async with base.open(params) as stream:
        stream.push_text(TEXT)
        stream.end_text()
        first = await stream.next_event()
        assert isinstance(first, PcmChunk)
        stream.grant(first.num_frames)
        os.kill(pid, signal.SIGSTOP)
        job = asyncio.create_task(base.encode_reference(spoken(), with_codes=True))
        await asyncio.sleep(0.2)
        os.kill(pid, signal.SIGKILL)
        assert (await job).codes is not None  # by the next encoder
        with pytest.raises(InvalidRecording):
            await base.encode_reference(b"no recording", with_codes=True)
        rest = []
        while isinstance(event := await asyncio.wait_for(stream.next_event(), 60), PcmChunk):
            stream.grant(event.num_frames)
            rest.append(event.samples)
    assert event.reason is FinishReason.MAX_FRAMES
    assert_same_speech(np.concatenate([first.samples, *rest]), expected.samples)


async def test_recordings_are_encoded_while_streams_speak(base: OwnedEngine) -> None:
    encoded = await base.encode_reference(spoken(), with_codes=True)
    async with base.open(greedy(base, x_vector=encoded.x_vector, max_frames=100)) as stream:
        stream.push_text(TEXT)
        stream.end_text()
        again, heard = await asyncio.gather(
            base.encode_reference(spoken(), with_codes=True), listen(stream, base.info.frame_samples)
        )
    assert heard.num_frames == 100
    np.testing.assert_array_equal(again.x_vector, encoded.x_vector)
    np.testing.assert_array_equal(again.codes, encoded.codes)
    await until_idle(base)


@pytest.mark.slow
async def test_closing_the_engine_while_it_encodes(tmp_path_factory: pytest.TempPathFactory) -> None:
    engine = await started(tmp_path_factory, "base")
    job = asyncio.create_task(engine.encode_reference(spoken(30), with_codes=True))
    await asyncio.sleep(0.1)
    await engine.close()
    with pytest.raises(EngineUnavailable):
        await job


async def test_an_embedding_far_beyond_the_checkpoint_s_own_is_refused(base: OwnedEngine) -> None:
    size = base.info.hidden_size
    for value in (np.finfo(np.float32).max, 5e3):
        with pytest.raises(InvalidSynthesis, match="the speaker embedding has values up to") as error:
            base.model.check(greedy(base, x_vector=np.full(size, value, np.float32)))
        assert error.value.field == "x_vector"
    base.model.check(greedy(base, x_vector=np.full(size, 4.0, np.float32)))
