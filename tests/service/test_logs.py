"""The log of a real server: JSON lines with ids, and nothing that anyone said."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from grpc._cython import cygrpc

from sonorant.logs import json_handler
from sonorant.service.log_filters import LOG_FILTERS
from sonorant.tts.v1 import speak_pb2
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeRequest
from tests.service.fake_engine import FakeEngine
from tests.service.harness import Transcript, config, end, eventually, failure, read_all, read_until, say, served

SECRET = "Xylophones whisper"


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    handler, root = json_handler(stream, *LOG_FILTERS), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield stream
    root.removeHandler(handler)
    root.setLevel(level)


def lines(stream: io.StringIO, message: str) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, stream.getvalue().splitlines()) if line["message"] == message]


async def test_lines_have_ids_and_sizes_but_no_text(stream: io.StringIO) -> None:
    async with served(FakeEngine(), max_text_chars=100) as server:
        call, transcript = server.stub.Speak(metadata=(("x-request-id", "r-77"),)), Transcript()
        await call.write(speak_pb2.SpeakRequest(config=config()))
        await call.write(say(SECRET, "x"))
        await call.write(end("x"))
        await read_until(call, transcript, "done")
        await call.write(say(SECRET * 20, "too-long"))
        await call.write(say(f"{SECRET}\0", "control"))
        await call.done_writing()
        await read_all(call, transcript)
        for text in (SECRET * 20, f"{SECRET}\0"):
            await failure(server.stub.Synthesize(SynthesizeRequest(text=text)))
        instructions = {"instructions": SECRET * 80}
        await failure(server.stub.Synthesize(SynthesizeRequest(text=SECRET, config=instructions)))
        await server.stub.Synthesize(SynthesizeRequest(text=SECRET))
    assert "ylophone" not in stream.getvalue()
    session_id = transcript.responses[0].session.session_id
    over = {line["utterance_id"]: line for line in lines(stream, "utterance ended") if line.get("session_id")}
    assert {line["session_id"] for line in over.values()} == {session_id}
    assert {line["request_id"] for line in over.values()} == {"r-77"}
    assert (over["x"]["chars"], over["x"]["reason"]) == (len(SECRET), "COMPLETED")
    assert over["x"]["audio_ms"] == over["x"]["sent_ms"] == len(SECRET) * 160
    assert "first_audio_ms" in over["x"]
    assert over["too-long"]["reason"] == over["control"]["reason"] == "FAILED"
    refused = over["too-long"]
    assert (refused["code"], refused["level"], "limit of 100" in refused["error"]) == (
        "INVALID_ARGUMENT",
        "warning",
        True,
    )
    assert refused["error_reason"] and "error" not in over["x"]
    calls = lines(stream, "call ended")
    assert sorted(line["code"] for line in calls) == ["INVALID_ARGUMENT"] * 3 + ["OK"] * 2
    assert all(line["request_id"] and line["method"] and "duration_ms" in line for line in calls)
    assert all((line["code"] == "OK") == ("error" not in line) for line in calls)


async def test_a_bug_is_logged_under_the_id_that_the_caller_was_given(
    stream: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = FakeEngine()
    async with served(engine) as server:
        monkeypatch.setattr(engine, "open", lambda *_, **__: 1 / 0)
        _, message, details = await failure(server.stub.Synthesize(SynthesizeRequest(text=SECRET)))
        request_id = details["RequestInfo"].request_id
        assert request_id in message
        assert "ZeroDivision" not in message
        await eventually(lambda: "call ended" in stream.getvalue(), True)
    (failed,) = [line for line in map(json.loads, stream.getvalue().splitlines()) if "exception" in line]
    assert failed["request_id"] == request_id
    assert "ZeroDivisionError" in failed["exception"]
    assert "ylophone" not in stream.getvalue()


def test_a_client_that_leaves_while_it_is_written_to_is_no_error(stream: io.StringIO) -> None:
    """gRPC logs the whole traceback, and a flood of such clients would be a flood of them."""
    log = logging.getLogger("grpc._cython.cygrpc")
    try:
        raise cygrpc.ExecuteBatchError("SendMessageOperation")
    except cygrpc.ExecuteBatchError:
        log.exception("raised in core")
    log.error("something else")
    assert [json.loads(line)["message"] for line in stream.getvalue().splitlines()] == ["something else"]
