"""Keepalives: that they come, and above all when they do not."""

import asyncio

import grpc
import pytest

from sonorant.service.pacing.outbox import Outbox
from sonorant.service.session.keepalive import LOOK_S, Keepalive, Keepalives
from sonorant.tts.v1 import speak_pb2
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeStreamRequest
from tests.fake_loop import FakeLoop
from tests.service.fake_engine import FakeEngine
from tests.service.harness import Transcript, end, failure, read_all, read_until, say, served


class Posted(Outbox[speak_pb2.SpeakResponse]):
    """Its writer is this test."""

    def __init__(self, loop: FakeLoop) -> None:
        super().__init__()
        self.loop = loop
        self.since_s: float | None = loop.now_s
        self.signs_s: list[float] = []

    @property
    def quiet_since_s(self) -> float | None:
        return self.since_s

    def post(self, response: speak_pb2.SpeakResponse) -> None:
        assert response.HasField("alive")
        self.signs_s.append(round(self.loop.now_s - 1000, 6))
        self.since_s = self.loop.now_s

    def write(self) -> None:
        self.since_s = self.loop.now_s


def test_they_come_where_nothing_else_does_and_only_while_something_is_open() -> None:
    loop = FakeLoop()
    outbox, is_open = Posted(loop), [True]
    keepalive = Keepalive(outbox, lambda: speak_pb2.SpeakResponse(alive={}), 0.5, lambda: is_open[0])
    keepalives = Keepalives(loop)
    keepalives.follow(keepalive)
    loop.run(1.2)
    first_s, second_s = outbox.signs_s
    assert 0.5 - LOOK_S <= first_s <= 0.5 and 0.5 - LOOK_S <= second_s - first_s <= 0.5
    for _ in range(10):
        outbox.write()
        loop.run(0.4)
    assert len(outbox.signs_s) == 2, "audio flows"
    assert loop.num_timers == 1
    outbox.since_s = None
    loop.run(60)
    assert len(outbox.signs_s) == 2, "the client does not read"
    is_open[0] = False
    loop.run(1)
    assert loop.num_timers == 0
    outbox.since_s = loop.now_s
    loop.run(60)
    is_open[0] = True
    keepalives.follow(keepalive)
    loop.run(0.5 - LOOK_S)
    assert len(outbox.signs_s) == 2, "silence of before does not count"
    loop.run(LOOK_S)
    assert len(outbox.signs_s) == 3
    keepalives.follow(keepalive)
    assert loop.num_timers == 1
    keepalives.forget(keepalive)
    loop.run(LOOK_S)
    assert loop.num_timers == 0


async def test_a_session_that_asks_hears_them_while_its_text_pauses_and_no_other_does() -> None:
    async with served(FakeEngine()) as server:
        calls = {silence_ms: server.stub.Speak() for silence_ms in (100, None)}
        heard = {silence_ms: Transcript() for silence_ms in calls}
        for silence_ms, call in calls.items():
            synthesis = {"sampling": {"seed": 7}}
            config = speak_pb2.SpeakConfig(synthesis=synthesis, max_lead_ms=0, max_silence_ms=silence_ms)
            await call.write(speak_pb2.SpeakRequest(config=config))
            await read_until(call, heard[silence_ms], "session")
            assert heard[silence_ms].responses[0].session.max_silence_ms == (silence_ms or 0)
            await call.write(say("ab"))
        for _ in range(2):
            await read_until(calls[100], heard[100], "alive")
        await asyncio.gather(*(call.write(end()) for call in calls.values()))
        for silence_ms, call in calls.items():
            await read_until(call, heard[silence_ms], "done")
            await call.done_writing()
            await read_all(call, heard[silence_ms])
        assert heard[100].pcm == heard[None].pcm
        assert "alive" not in [kind for _, kind in heard[None].kinds]


async def test_the_stream_of_a_whole_text_has_them_too() -> None:
    engine = FakeEngine()
    async with served(engine) as server:
        for silence_ms in (100, None):
            engine.hold()
            call = server.stub.SynthesizeStream(SynthesizeStreamRequest(text="ab", max_silence_ms=silence_ms))
            kinds = []
            while (response := await call.read()) is not grpc.aio.EOF:
                kinds.append(response.WhichOneof("payload"))
                if response.HasField("started"):
                    assert response.started.max_silence_ms == (silence_ms or 0)
                if kinds.count("alive") == 2 or silence_ms is None:
                    engine.release()
            assert (kinds[-1], kinds.count("started")) == ("done", 1)
            assert kinds.count("alive") >= 2 if silence_ms else "alive" not in kinds


@pytest.mark.parametrize("silence_ms", [0, 99, 60_001])
async def test_silences_have_limits(silence_ms: int) -> None:
    async with served(FakeEngine()) as server:
        _, message, _ = await failure(
            server.stub.SynthesizeStream(SynthesizeStreamRequest(text="ab", max_silence_ms=silence_ms))
        )
        assert "max_silence_ms" in message
        call = server.stub.Speak()
        await call.write(speak_pb2.SpeakRequest(config={"max_silence_ms": silence_ms}))
        _, message, _ = await failure(call)
        assert "config.max_silence_ms" in message
