"""Checkpoints that loop, or miss their end, behind a real server."""

from pathlib import Path

import grpc
import numpy as np
import pytest

from sonorant.service.utterance.signs import SILENT_PEAK, TAIL_FRAMES
from sonorant.tts.v1 import synthesis_pb2
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeRequest, SynthesizeStreamRequest
from tests.e2e.server_process import ServerProcess
from tests.endless_voice import write_endless_voice
from tests.service.harness import Stub, config, end, flush, say, speak
from tests.tiny_checkpoint import QUICK, write_tiny_checkpoint

# The seed is of the draws after the loop: with this one they end after 9 frames, with some others they go wrong, too.
GREEDY = {"do_sample": False, "subtalker_do_sample": False, "repetition_penalty": 1.0, "max_frames": 250, "seed": 12}


@pytest.mark.slow
@pytest.mark.rare
async def test_a_loop_is_not_heard_in_a_clip_and_a_stream_says_why_it_was_stopped(tmp_path: Path) -> None:
    model = write_tiny_checkpoint(tmp_path / "tiny", **QUICK)
    with ServerProcess(tmp_path / "log", "--model", str(model), "--num-slots", "2") as server:
        async with grpc.aio.insecure_channel(server.address) as channel:
            stub, synthesis = Stub(channel), {"sampling": GREEDY}
            clip = await stub.Synthesize(SynthesizeRequest(text="Hello there.", config=synthesis))
            streamed = stub.SynthesizeStream(SynthesizeStreamRequest(text="Hello there.", config=synthesis))
            responses = [response async for response in streamed]
    # Nobody has heard a clip before its end, so it is spoken again, with draws in place of the greedy choice.
    assert clip.reason == synthesis_pb2.FINISH_REASON_COMPLETED
    assert not clip.warnings
    assert (clip.stats.heals, clip.stats.audio_ms) == (1, clip.stats.codec_frames * 80)
    assert clip.stats.dropped_frames > 96
    # A stream without a limit of its lead had sent all of it.
    assert responses[-1].done.reason == synthesis_pb2.FINISH_REASON_RUNAWAY
    warning = responses[-2].warning
    assert warning.code == "RUNAWAY" and "text tokens" in warning.message
    assert 0 < responses[-1].done.stats.codec_frames < 250


@pytest.mark.slow
async def test_a_missed_end_is_not_heard_and_what_follows_is(stub: Stub, tmp_path: Path) -> None:
    """All of what the voice says when it finds its end, with up to the tail of silence behind it."""
    first, second = "The warm bear rested at work.", "We saw seven bees near the farm"
    requests = [config(), say(first), flush(1), say(second), end()]
    usual = (await speak(stub, requests)).done["u1"]
    usual_clip = await stub.Synthesize(SynthesizeRequest(text=first))
    model = write_endless_voice(tmp_path / "endless", 0.2)
    with ServerProcess(tmp_path / "log", "--model", str(model), "--num-slots", "2") as server:
        async with grpc.aio.insecure_channel(server.address) as channel:
            endless = Stub(channel)
            mended = await speak(endless, requests)
            clip = await endless.Synthesize(SynthesizeRequest(text=first))
    stats = mended.done["u1"].stats
    assert (usual.stats.missed_ends, stats.missed_ends) == (0, 2)
    assert mended.done["u1"].reason == synthesis_pb2.FINISH_REASON_COMPLETED
    assert not mended.warnings
    assert (stats.heals, stats.spoken_chars) == (0, len(first + second))
    assert 0 <= stats.codec_frames * 80 - stats.sent_ms <= 240, "silence at the beginning is not sent"
    assert abs(stats.codec_frames - usual.stats.codec_frames) <= 2 * TAIL_FRAMES, "or less of the silence at the end"
    assert (clip.reason, clip.stats.missed_ends) == (synthesis_pb2.FINISH_REASON_COMPLETED, 1)
    heard, wanted = (np.frombuffer(each.audio, "<i2").astype(int) for each in (clip, usual_clip))
    num_samples = int(np.flatnonzero(np.abs(wanted) > SILENT_PEAK)[-1]) + 1
    assert np.abs(heard[:num_samples] - wanted[:num_samples]).max() <= 2, "all of the sound"
    assert len(heard) - num_samples <= (TAIL_FRAMES + 1) * 1920
