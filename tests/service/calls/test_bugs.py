"""What callers are told of an exception that nobody raised on purpose, wherever it comes up: that there was one."""

from typing import Any

import grpc
import pytest

from sonorant.engine import SynthesisParams
from sonorant.tts.v1 import speak_pb2, synthesis_pb2
from sonorant.tts.v1.explain_pb2 import ExplainRequest
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeRequest, SynthesizeStreamRequest
from tests.service.fake_engine import FakeEngine
from tests.service.fake_streams import FakeStream
from tests.service.harness import config, details_of, eventually, failure, say, served

SECRET = "/secret/path of a bug"


class BrokenStream(FakeStream):
    def ready_events(self) -> Any:
        raise RuntimeError(SECRET)


class Broken(FakeEngine):
    """Has a bug in one method."""

    where = "none"

    def fail(self, where: str) -> None:
        if where == self.where:
            raise RuntimeError(SECRET)

    def check(self, params: SynthesisParams) -> None:
        self.fail("check")
        super().check(params)

    def open(self, *args: Any, **how: Any) -> FakeStream:
        self.fail("open")
        stream = super().open(*args, **how)
        if self.where == "events":
            stream.__class__ = BrokenStream
        return stream

    def explain(self, params: SynthesisParams, text: str) -> Any:
        self.fail("explain")


@pytest.mark.parametrize("where", ["check", "open", "events"])
async def test_no_call_tells_more_than_the_request_id(where: str, caplog: pytest.LogCaptureFixture) -> None:
    engine = Broken()
    async with served(engine) as server:
        engine.where = where
        calls = [
            server.stub.Synthesize(SynthesizeRequest(text="Hello")),
            server.stub.SynthesizeStream(SynthesizeStreamRequest(text="Hello")),
        ]
        if where == "check":
            calls += [server.stub.Explain(ExplainRequest(text="Hello")), server.stub.Speak()]
            await calls[-1].write(speak_pb2.SpeakRequest(config=config()))
        for call in calls:
            code, message, details = await failure(call)
            assert code == grpc.StatusCode.INTERNAL
            assert message == f"internal error, request_id={details['RequestInfo'].request_id}"
            assert "secret" not in repr(await call.trailing_metadata())
        await eventually(lambda: engine.num_streams, 0)
    assert caplog.text.count(SECRET) >= len(calls), "the log has it"


@pytest.mark.parametrize("where", ["open", "events"])
async def test_an_utterance_tells_no_more_either_and_the_session_lives_on(where: str) -> None:
    engine = Broken()
    async with served(engine) as server:
        call = server.stub.Speak()
        await call.write(speak_pb2.SpeakRequest(config=config()))
        await call.read()
        for engine.where in (where, "none"):
            await call.write(say("Hello", engine.where))
            await call.write(speak_pb2.SpeakRequest(end={}, utterance_id=engine.where))
            while not (response := await call.read()).HasField("done"):
                pass
            error = response.done.error
            if engine.where == "none":
                assert response.done.reason == synthesis_pb2.FINISH_REASON_COMPLETED
            else:
                assert error.message == f"internal error, request_id={details_of(error)['RequestInfo'].request_id}"
                assert b"secret" not in response.SerializeToString()
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        await eventually(lambda: engine.num_streams, 0)


async def test_explain_tells_no_more_either() -> None:
    engine = Broken()
    async with served(engine) as server:
        engine.where = "explain"
        code, message, _ = await failure(server.stub.Explain(ExplainRequest(text="Hello")))
        assert code == grpc.StatusCode.INTERNAL and "secret" not in message
