"""A checkpoint that has nothing to say and does not stop, behind a real server."""

from pathlib import Path

import grpc

from sonorant.tts.v1 import synthesis_pb2
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeRequest, SynthesizeStreamRequest
from tests.e2e.server_process import ServerProcess
from tests.service.harness import Stub
from tests.tiny_checkpoint import write_tiny_checkpoint

GREEDY = {"do_sample": False, "subtalker_do_sample": False, "repetition_penalty": 1.0, "max_frames": 250}


async def test_every_call_says_that_and_why_the_model_was_stopped(tmp_path: Path) -> None:
    model = write_tiny_checkpoint(tmp_path / "tiny")
    with ServerProcess(tmp_path / "log", "--model", str(model), "--num-slots", "2") as server:
        async with grpc.aio.insecure_channel(server.address) as channel:
            stub, synthesis = Stub(channel), {"sampling": GREEDY}
            clip = await stub.Synthesize(SynthesizeRequest(text="Hello there.", config=synthesis))
            streamed = stub.SynthesizeStream(SynthesizeStreamRequest(text="Hello there.", config=synthesis))
            responses = [response async for response in streamed]
    assert clip.reason == responses[-1].done.reason == synthesis_pb2.FINISH_REASON_RUNAWAY
    (warning,) = clip.warnings
    assert warning.code == "RUNAWAY" and "text tokens" in warning.message
    assert responses[-2].warning.code == "RUNAWAY"
    assert 0 < clip.stats.codec_frames < 250
