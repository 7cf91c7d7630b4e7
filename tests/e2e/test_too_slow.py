"""Speech that takes longer to be made than to be heard is refused to those who ask for a lead; others are told.

The frames of this checkpoint are so short that no CPU makes them in time.
"""

from pathlib import Path
from typing import Any

import grpc
import pytest

from sonorant.tts.v1.speak_pb2 import SpeakConfig
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeRequest, SynthesizeStreamRequest
from tests.e2e.server_process import ServerProcess
from tests.service.harness import Stub, end, failure, say, speak
from tests.tiny_checkpoint import write_tiny_checkpoint

CONFIG: dict[str, Any] = {"audio": {"frame_duration_ms": 20}, "sampling": {"ignore_eos": True, "max_frames": 40}}
TEXT = "Hello there."


@pytest.mark.slow
@pytest.mark.rare
async def test_callers_who_ask_for_a_lead_are_refused_and_others_are_told(tmp_path: Path) -> None:
    model = write_tiny_checkpoint(tmp_path / "tiny", upsample_rates=(2, 2, 1, 1))  # frames of 16 samples
    settings = ("--device", "cpu", "--cpu-threads", "1", "--model", str(model))
    with ServerProcess(tmp_path / "log", *settings) as server:
        async with grpc.aio.insecure_channel(server.address) as channel:
            stub = Stub(channel)
            stream = stub.SynthesizeStream(SynthesizeStreamRequest(text=TEXT, config=CONFIG, max_lead_ms=500))
            code, message, details = await failure(stream)
            assert (code, details["ErrorInfo"].reason) == (grpc.StatusCode.FAILED_PRECONDITION, "TOO_SLOW"), message
            assert "leave out max_lead_ms" in message

            refused = await speak(stub, [SpeakConfig(synthesis=CONFIG, max_lead_ms=500), say(TEXT), end()])
            assert refused.done["u1"].error.code == grpc.StatusCode.FAILED_PRECONDITION.value[0]
            assert not refused.pcm
            whole = await speak(stub, [SpeakConfig(synthesis=CONFIG), say(TEXT), end()])
            assert whole.pcm["u1"] and whole.warnings == [("u1", "SLOWER_THAN_SPEECH")]

            clip = await stub.Synthesize(SynthesizeRequest(text=TEXT, config=CONFIG))
            assert clip.stats.codec_frames == CONFIG["sampling"]["max_frames"]
            assert [warning.code for warning in clip.warnings] == ["SLOWER_THAN_SPEECH"]
