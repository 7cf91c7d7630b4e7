"""What holds for every call: here, responses without the bytes of their audio."""

import pytest

from sonorant.tts.v1 import speak_pb2, text_to_speech_service_pb2
from tests.service.fake_engine import FakeEngine
from tests.service.harness import config, say, served

TEXT = "Hello"
CONFIG = {"sampling": {"seed": 7}}


@pytest.mark.parametrize(("value", "omitted"), [("1", True), ("0", False)])
async def test_audio_is_left_out_on_request_and_nothing_else(value: str, omitted: bool) -> None:
    metadata = (("x-audio-omit", value),)
    async with served(FakeEngine()) as server:
        request = text_to_speech_service_pb2.SynthesizeRequest(text=TEXT, config=CONFIG)
        clip = await server.stub.Synthesize(request, metadata=metadata)
        whole = await server.stub.Synthesize(request)
        assert bool(clip.audio) is not omitted and whole.audio
        assert clip.stats.audio_ms == whole.stats.audio_ms > 0 and clip.format == whole.format

        streamed = server.stub.SynthesizeStream(
            text_to_speech_service_pb2.SynthesizeStreamRequest(text=TEXT, config=CONFIG), metadata=metadata
        )
        call = server.stub.Speak(metadata=metadata)
        await call.write(speak_pb2.SpeakRequest(config=config(**CONFIG)))
        await call.write(say(TEXT))
        await call.done_writing()
        for responses in (streamed, call):
            chunks = [each.audio async for each in responses if each.WhichOneof("payload") == "audio"]
            assert sum(chunk.num_samples for chunk in chunks) * 2 == len(whole.audio)
            assert all(bool(chunk.data) is not omitted for chunk in chunks)
