"""Checkpoints that have nothing to say and do not stop, with real worker processes: their streams end, and say why."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from sonorant.engine import EngineConfig, FinishReason
from tests.engine.one_engine import OwnedEngine, start_engine
from tests.engine.speech import Heard, say, speech, until_idle
from tests.tiny_checkpoint import QUICK, write_tiny_checkpoint


def write_silent_checkpoint(folder: Path) -> Path:
    """The same checkpoint with a codec whose last layer is zero."""
    model = write_tiny_checkpoint(folder, **QUICK)
    file = model / "speech_tokenizer" / "model.safetensors"
    tensors = load_file(file)
    last = max(int(name.split(".")[2]) for name in tensors if name.startswith("decoder.decoder."))
    for name in tensors:
        if name.startswith(f"decoder.decoder.{last}."):
            tensors[name] = np.zeros_like(tensors[name])
    save_file(tensors, file, {"format": "pt"})
    return model


@asynccontextmanager
async def running(model: Path) -> AsyncIterator[OwnedEngine]:
    engine = await start_engine(EngineConfig.of(model, num_slots=2, max_context=512, cpu_threads=1))
    try:
        yield engine
        await asyncio.wait_for(until_idle(engine), 60)
    finally:
        await engine.close()


async def spoken(engine: OwnedEngine, **sampling: object) -> Heard:
    params = speech(engine, max_frames=400, repetition_penalty=1.0, **sampling)
    return await asyncio.wait_for(say(engine, "Hello there.", params), 60)


@pytest.mark.slow
async def test_a_model_that_does_not_end_is_ended(tmp_path: Path) -> None:
    """With random weights the speech has nothing to do with the text, and no end token comes."""
    async with running(write_tiny_checkpoint(tmp_path, **QUICK)) as engine:
        heard = await spoken(engine, do_sample=False, subtalker_do_sample=False)
    assert heard.end.reason is FinishReason.RUNAWAY
    assert "text tokens" in heard.end.detail
    assert 0 < heard.num_frames <= heard.end.num_frames < 400


@pytest.mark.slow
async def test_a_model_that_falls_silent_is_ended_unless_its_frames_were_asked_for(tmp_path: Path) -> None:
    async with running(write_silent_checkpoint(tmp_path)) as engine:
        heard = await spoken(engine, do_sample=True, temperature=2.0, min_frames=400)  # random weights may say the end
        asked = await spoken(engine, ignore_eos=True)
    assert heard.end.reason is FinishReason.RUNAWAY
    assert heard.end.detail.startswith("the model was silent for ")
    assert not heard.samples.any()
    assert (asked.end.reason, asked.num_frames) == (FinishReason.MAX_FRAMES, 400)
