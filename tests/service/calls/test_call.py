"""A call ends with a status of ours, unless nobody is there any more who could get it."""

from collections.abc import AsyncGenerator
from typing import Any

import grpc
import pytest
from grpc._cython.cygrpc import ExecuteBatchError

from sonorant.service.calls.call import Call, CallParts
from sonorant.service.calls.context import CallContext
from sonorant.service.calls.loop_share import LoopShare
from sonorant.service.calls.stalled import Stalled
from sonorant.service.rpc.speech import TextToSpeechServicer
from sonorant.tts.v1 import speak_pb2
from tests.service.fake_engine import FakeEngine
from tests.service.harness import config, served


class LeftCall:
    """gRPC's object for a call whose client has left, which the call's task does not know yet."""

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    async def read(self) -> Any:
        raise ExecuteBatchError("receive_message")

    async def abort_with_status(self, _status: object) -> None:
        raise ExecuteBatchError("send_status")


class Handler:
    async def stream_stream(self, _requests: object, _rpc: object) -> AsyncGenerator[Any, None]:
        raise ExecuteBatchError("send_initial_metadata")
        yield


async def test_a_client_that_has_just_left_is_no_bug(caplog: pytest.LogCaptureFixture) -> None:
    call = Call("Speak", Handler(), CallContext(), None, CallParts(1.0, Stalled(), LoopShare()), None)
    with pytest.raises(grpc.aio.InternalError):
        async for _ in call.serve(None, LeftCall()):
            pass
    assert not caplog.records


async def test_a_client_that_is_still_there_is_told_of_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def greet(*_: object) -> None:
        raise ExecuteBatchError("send_initial_metadata")

    monkeypatch.setattr(TextToSpeechServicer, "_greet", greet)
    async with served(FakeEngine()) as server:
        call = server.stub.Speak()
        await call.write(speak_pb2.SpeakRequest(config=config()))
        assert await call.code() == grpc.StatusCode.INTERNAL
    assert "Speak failed" in caplog.text
