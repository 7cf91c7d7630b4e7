"""A stream whose text changes goes on, behind the frames that do not know of it, as one that always had that text.

Draws have much chance here, so that frames would differ if they knew whether the text had ended.
"""

import asyncio
import dataclasses
from pathlib import Path

import numpy as np
import pytest

from sonorant.engine import EngineConfig, SynthesisParams
from sonorant.engine.types import Int16Array
from tests.engine.one_engine import OwnedEngine, start_engine
from tests.engine.speech import listen, until_idle
from tests.tiny_checkpoint import QUICK, write_tiny_checkpoint

TEXT = "The train to London leaves in twenty minutes from here."
# (the old text in pieces, whether it has ended, the new text): words changed, in the middle of a word, shorter, longer.
CASES = [
    ((TEXT,), True, "The train to London leaves in an hour."),
    ((TEXT[:20], TEXT[20:]), False, TEXT[:33] + "nty-six minutes."),
    ((TEXT[:22],), False, TEXT),
    ((TEXT,), True, TEXT + " Or so."),
    ((TEXT[:17], None, TEXT[17:]), False, "The train to Lon. No."),
    ((TEXT,), False, "A train"),
]
NUM_FRAMES = 20


async def codes_of(engine: OwnedEngine, params: SynthesisParams, text: str, known: Int16Array | None) -> Int16Array:
    async with engine.open(params, known_codes=known) as stream:
        stream.push_text(text)
        stream.end_text()
        num_known = 0 if known is None else len(known)
        heard = await listen(stream, engine.info.frame_samples, num_known)
    return np.concatenate([*([] if known is None else [known]), *(chunk.codes for chunk in heard.chunks)])


@pytest.mark.slow
@pytest.mark.parametrize("task", ["custom_voice", "base"])
async def test_frames_in_common_are_those_of_the_new_text_and_the_rest_follows(tmp_path: Path, task: str) -> None:
    model = write_tiny_checkpoint(tmp_path, task, **QUICK)
    config = EngineConfig.of(model, num_slots=4, max_context=512, cpu_threads=1, talker_device="cpu")
    engine = await start_engine(config)
    sampling = dataclasses.replace(
        engine.info.default_sampling, do_sample=True, temperature=2.0, top_k=0, seed=3, max_frames=NUM_FRAMES
    )
    params = SynthesisParams(sampling, speaker=engine.info.speakers[0] if engine.info.speakers else None)
    if task == "base":  # with a transcript, beside which the first of the text stands in the prompt
        rng = np.random.default_rng(0)
        params = dataclasses.replace(
            params,
            x_vector=rng.standard_normal(engine.info.hidden_size).astype(np.float32),
            reference_codes=rng.integers(0, 64, (9, engine.info.num_codebooks), np.int16),
            reference_text="Fine!",
        )
    kept = []
    try:
        for pieces, is_ended, new in CASES:
            async with engine.open(params) as stream:
                for piece in pieces:
                    stream.flush_text() if piece is None else stream.push_text(piece)
                if is_ended:
                    stream.end_text()
                common = stream.frames_in_common([new])
                chunks: list[Int16Array] = []
                while sum(map(len, chunks)) < min(common, NUM_FRAMES):
                    event = await asyncio.wait_for(stream.next_event(), 60)
                    chunks.append(event.codes)
            known = np.concatenate([np.empty((0, engine.info.num_codebooks), np.int16), *chunks])[:common]
            fresh = await codes_of(engine, params, new, None)
            assert np.array_equal(known, fresh[: len(known)]), new
            assert np.array_equal(await codes_of(engine, params, new, known), fresh), new
            kept.append(len(known))
        await asyncio.wait_for(until_idle(engine), 60)
    finally:
        await engine.close()
    assert max(kept) > 8
