"""What the metrics of a real server say about its workers."""

import asyncio
from typing import Any

from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeRequest
from tests.e2e.server_process import ServerProcess, scrape

LOOK_S = 0.1


async def settled(server: ServerProcess) -> dict[tuple[str, str], float]:
    """Once workers have counted, which they do a moment after they have sent what they made."""
    before: dict[tuple[str, str], float] = {}
    while (now := {key: value for key, value in scrape(server).items() if key[1]}) != before:
        before = now
        await asyncio.sleep(LOOK_S)
    return now


async def test_workers_tell_how_many_rows_their_steps_have_and_how_long_they_take(
    server: ServerProcess, stub: Any
) -> None:
    # What another test has cancelled may not be over yet.
    while scrape(server)["tts_slots_used", ""]:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    before = await settled(server)
    clip = await stub.Synthesize(SynthesizeRequest(text="Hello, world."))
    after = await settled(server)
    grown = {key: after[key] - before[key] for key in after}
    frames = clip.stats.codec_frames
    assert frames <= grown["tts_batch_rows_count", "talker"] <= frames + 2, "one step per frame, one for the prompt"
    assert 0 < grown["tts_batch_rows_count", "code2wav"] <= frames, "some frames to a call"
    for worker in ("talker", "code2wav"):
        assert grown["tts_batch_rows_sum", worker] == grown["tts_batch_rows_count", worker], "it was alone"
        assert 0 < grown["tts_busy_seconds_total", worker] < clip.stats.generation_ms / 1000 + 1
        assert grown["tts_step_seconds_count", worker] == grown["tts_batch_rows_count", worker]
        assert grown["tts_step_seconds_sum", worker] == grown["tts_busy_seconds_total", worker]
        assert grown["tts_eager_passes_total", worker] >= grown["tts_batch_rows_count", worker], "on the CPU"
        assert grown["tts_graph_passes_total", worker] == 0
        assert grown["tts_pass_rows_total", worker] >= grown["tts_batch_rows_sum", worker]
        assert grown["tts_padding_rows_total", worker] >= 0
    assert grown["tts_prompt_rows_count", "talker"] >= 1
    went_in, were_there = grown["tts_prompt_rows_sum", "talker"], grown["tts_shared_prompt_rows_total", "talker"]
    assert went_in >= 1 and went_in + were_there >= 10, "other tests may have spoken with the same prompt"
    assert grown["tts_prompt_rows_count", "code2wav"] == 0
    assert scrape(server)["tts_slots_used", ""] == 0
