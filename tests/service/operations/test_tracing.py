"""Spans of a real server, as a collector gets them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from sonorant.service.operations.latency import PARTS
from sonorant.tts.v1 import speak_pb2
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeRequest
from tests.service.fake_engine import FakeEngine
from tests.service.harness import Transcript, cancel, config, end, read_all, read_until, say, served

TRACE_ID, CALLER_SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@asynccontextmanager
async def collector() -> AsyncIterator[tuple[str, list[Any]]]:
    """An OTLP collector's URL, and the spans that it was sent."""
    spans: list[Any] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        assert head.startswith("post /v1/traces ")
        length = int(head.split("content-length:")[1].split()[0])
        request = ExportTraceServiceRequest.FromString(await reader.readexactly(length))
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                spans.extend(scope.spans)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/traces", spans


def attributes(span: Any) -> dict[str, Any]:
    return {a.key: a.value.string_value or a.value.int_value or a.value.double_value for a in span.attributes}


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the exporter's pool of connections, when it is collected
async def test_each_utterance_is_a_span_of_its_callers_trace() -> None:
    async with collector() as (url, spans):
        async with served(FakeEngine(frame_s=0.002), traces=url) as server:
            traced = (("traceparent", f"00-{TRACE_ID}-{CALLER_SPAN}-01"), ("x-request-id", "r-5"))
            call, transcript = server.stub.Speak(metadata=traced), Transcript()
            await call.write(speak_pb2.SpeakRequest(config=config()))
            await call.write(say("ab", "x"))
            await call.write(end("x"))
            await call.write(say("c" * 50, "y"))
            await read_until(call, transcript, "audio", "y")
            await call.write(cancel("y"))
            await call.done_writing()
            await read_all(call, transcript)
            await server.stub.Synthesize(SynthesizeRequest(text="ab"))
        one, two, alone = sorted(spans, key=lambda span: span.start_time_unix_nano)
    for span in (one, two):
        assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE_ID, CALLER_SPAN)
        assert span.end_time_unix_nano > span.start_time_unix_nano
    session_id = transcript.responses[0].session.session_id
    told = attributes(one)
    assert (told["sonorant.utterance_id"], told["sonorant.request_id"]) == ("x", "r-5")
    assert (told["sonorant.session_id"], told["sonorant.reason"]) == (session_id, "COMPLETED")
    assert (told["sonorant.chars"], told["sonorant.sent_ms"]) == (2, 320)
    for span in (one, two, alone):
        assert [event.name for event in span.events] == list(PARTS)
        times_ns = [event.time_unix_nano for event in span.events]
        assert times_ns == sorted(times_ns)
        assert sum(attributes(event)["sonorant.ms"] for event in span.events) > 0
    assert attributes(two)["sonorant.reason"] == "CANCELLED"
    assert (alone.name, alone.parent_span_id) == ("utterance", b"")
    assert attributes(alone)["sonorant.method"] == "TextToSpeechService/Synthesize"
