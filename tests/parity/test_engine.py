"""Cloned and designed voices through the engine and its processes, against the official package.

The same goldens as in test_codec.py; here the recording goes through the encoder process and the audio comes in chunks.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from sonorant.engine import Engine, EngineConfig, FinishReason, SynthesisParams
from tests.engine.one_engine import OwnedEngine, start_engine
from tests.engine.speech import Heard, listen, until_idle
from tests.parity import make_goldens
from tests.parity.make_codec_goldens import CASES, GOLDENS, MAX_FRAMES, SIZES, STRIDE, write_recording
from tests.tiny_checkpoint import write_tiny_checkpoint

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOO_SHORT = 1  # a recording of a tenth of a second
FRAME_SAMPLES = 1920


@pytest_asyncio.fixture(
    scope="module", loop_scope="module", params=[("base", s) for s in SIZES] + [("voice_design", s) for s in SIZES]
)
async def voices(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Engine, list[int]]]:
    """An engine, and the cases for its checkpoint."""
    task, sizes = request.param
    folder = write_tiny_checkpoint(tmp_path_factory.mktemp("checkpoint"), task, **SIZES[sizes])
    engine = await start_engine(EngineConfig.of(model=folder, num_slots=4, max_context=512, cpu_threads=1))
    yield (
        engine,
        [
            n
            for n, case in enumerate(CASES)
            if (case["task"], case["sizes"]) == (task, sizes) and case.get("recording") != TOO_SHORT
        ],
    )
    await engine.close()


async def params_of(engine: OwnedEngine, case: dict[str, Any], recording: bytes | None) -> SynthesisParams:
    sampling = replace(engine.info.default_sampling, do_sample=False, subtalker_do_sample=False, max_frames=MAX_FRAMES)
    streaming = engine.info.task == "base" if case["non_streaming"] is None else not case["non_streaming"]
    params = SynthesisParams(
        sampling, language=case["language"], instruct=case.get("instruct", ""), non_streaming_mode=not streaming
    )
    if recording is None:
        return params
    encoded = await engine.encode_reference(recording, with_codes=bool(case["reference_text"]))
    return replace(
        params, x_vector=encoded.x_vector, reference_codes=encoded.codes, reference_text=case["reference_text"]
    )


async def test_voices_sound_as_the_official_ones(
    voices: tuple[Engine, list[int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """All at once, so that each is right beside the others; and nothing of a reference is heard, by the frame."""
    engine, indices = voices

    async def hear(index: int) -> Heard:
        case = CASES[index]
        recording = None
        if "recording" in case:
            recording = write_recording(tmp_path_factory.mktemp("recording"), case["recording"]).read_bytes()
        async with engine.open(await params_of(engine, case, recording)) as stream:
            stream.push_text(case["text"])
            stream.end_text()
            return await listen(stream, FRAME_SAMPLES)

    heard = await asyncio.gather(*(hear(index) for index in indices))
    with np.load(GOLDENS / "offline.npz") as golden:
        for index, each in zip(indices, heard, strict=True):
            codes, samples = golden[f"{index}.codes"], golden[f"{index}.samples"]
            assert each.end.num_frames == each.num_frames == len(codes)
            assert len(each.samples) == len(codes) * FRAME_SAMPLES
            np.testing.assert_allclose(each.samples[::STRIDE] / 32767, samples, rtol=0, atol=1e-3)
    await asyncio.wait_for(until_idle(engine), 60)


async def test_a_text_that_comes_whole_may_end_before_all_of_it_went_in(tmp_path: Path) -> None:
    """With random weights the official package ends some after a few frames, while text is still to come."""
    goldens = json.loads((GOLDENS / "talker.json").read_text())
    golden = next(each for each in goldens if not each["non_streaming_mode"] and len(each["codes"]) < 10)
    folder = write_tiny_checkpoint(tmp_path, golden["task"], **make_goldens.SIZES[golden["sizes"]])
    engine = await start_engine(EngineConfig.of(model=folder, num_slots=4, max_context=512, cpu_threads=1))
    sampling = replace(engine.info.default_sampling, do_sample=False, subtalker_do_sample=False)
    voice = {key: golden[key] for key in ("speaker", "language", "instruct")}
    async with engine.open(SynthesisParams(sampling, **voice)) as stream:
        stream.push_text(golden["text"], is_last=True)
        heard = await listen(stream, engine.info.frame_samples)
    assert heard.end.reason is FinishReason.COMPLETED
    assert np.concatenate([chunk.codes for chunk in heard.chunks]).tolist() == golden["codes"]
    await engine.close()
