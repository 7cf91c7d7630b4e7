"""On a GPU with room for it, a pair gets a standby that takes over, and nothing is measured a second time."""

import asyncio
import os
import signal
from dataclasses import replace

import pytest

from sonorant.engine import EngineConfig, EngineState, FinishReason, SynthesisParams, resolve_model, start_here
from tests.engine.speech import listen


@pytest.mark.gpu
async def test_a_standby_takes_over_and_new_workers_measure_nothing_again() -> None:
    config = EngineConfig.of(
        resolve_model("qwen3-tts-12hz-0.6b-customvoice"),
        load_format="dummy",
        num_slots=16,
        max_context=1024,
        max_decode_batch=16,
        code2wav_dtype="auto",
    )
    engines = await start_here([replace(config, wants_standby=True)])
    try:
        pairs = engines.owner._pairs

        async def both_ready() -> None:
            async with asyncio.timeout(120):
                while any(pair.state is not EngineState.READY for pair in engines.pairs()):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)

        await both_ready()
        assert len(pairs) == 2
        first = pairs[0].workers.facts
        sampling = replace(engines.info.default_sampling, seed=1, ignore_eos=True, max_frames=60)
        stream = engines.open(SynthesisParams(sampling, speaker=engines.info.speakers[0]), credit_frames=4)
        stream.push_text("One, two, three, and four of them.")
        stream.end_text()
        event = await stream.next_event()
        workers = pairs[0].workers
        assert workers is not None
        os.kill(workers.children[0].pid, signal.SIGKILL)
        stream.grant(60)
        async with asyncio.timeout(5):  # long before new workers have loaded
            heard = await listen(stream, engines.info.frame_samples, getattr(event, "num_frames", 0))
        assert heard.end.reason is FinishReason.MAX_FRAMES
        assert [pair.is_standby for pair in pairs] == [True, False]
        await both_ready()
        for pair in pairs:
            talker, codec = (pair.workers.facts[name] for name in ("talker", "code2wav"))
            assert talker["step_s"] == first["talker"]["step_s"]
            assert {codec[name] for name in ("frame_s", "format")} == {
                first["code2wav"][name] for name in ("frame_s", "format")
            }
    finally:
        await engines.close()
