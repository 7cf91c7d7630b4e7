"""Whatever string of whatever request is long: the answer is a status of ours, in full, and small enough to arrive."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from sonorant.tts.v1 import dictionary_service_pb2, text_to_speech_service_pb2, voice_service_pb2
from tests.service.fake_engine import FakeEngine
from tests.service.harness import failure, served

MAX_TRAILER_BYTES = 8 * 1024  # what clients take by default
SERVICES = (
    text_to_speech_service_pb2.DESCRIPTOR.services_by_name["TextToSpeechService"],
    voice_service_pb2.DESCRIPTOR.services_by_name["VoiceService"],
    dictionary_service_pb2.DESCRIPTOR.services_by_name["DictionaryService"],
)
LONG = {"ascii": "a" * 200_000, "wide": "\U0001d54f" * 110_000, "control": "\x01" * 5_000}

NOT_OURS = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)

Fill = Callable[[Any, str], None]


def strings(message: Descriptor, depth: int = 5) -> Iterator[tuple[str, Fill]]:
    """The path of each string within messages of this type, and what sets it."""
    for field in message.fields:
        if field.message_type is None:
            if field.type == FieldDescriptor.TYPE_STRING:
                yield field.name, _setter(field)
        elif depth:
            for path, fill in strings(field.message_type, depth - 1):
                yield f"{field.name}.{path}", _inside(field, fill)


def _setter(field: FieldDescriptor) -> Fill:
    def fill(message: Any, text: str) -> None:
        if field.is_repeated:
            getattr(message, field.name).append(text)
        else:
            setattr(message, field.name, text)

    return fill


def _inside(field: FieldDescriptor, fill: Fill) -> Fill:
    def fill_inside(message: Any, text: str) -> None:
        inner = getattr(message, field.name)
        if field.message_type.GetOptions().map_entry:
            inner[text] = text
        else:
            fill(inner.add() if field.is_repeated else inner, text)

    return fill_inside


CASES = {
    f"{method.name}.{path}": (method, fill)
    for service in SERVICES
    for method in service.methods
    for path, fill in strings(method.input_type)
}


def base(method: str, request: Any) -> None:
    """What else such a request needs to get as far as the string."""
    if method in ("Synthesize", "SynthesizeStream", "Explain"):
        request.text = "Hello."
    elif method == "CreateVoice":
        request.voice_id = "my-voice"


async def test_a_long_string_is_answered_with_a_status_of_ours(tmp_path: Path) -> None:
    """All in one test, since they may share a server."""
    wrong = []
    async with served(FakeEngine(), voices_dir=tmp_path) as server:
        for case, (method, fill) in CASES.items():
            for kind, text in LONG.items():
                request = GetMessageClass(method.input_type)()
                base(method.name, request)
                fill(request, text)
                path = f"/{method.containing_service.full_name}/{method.name}"
                call = server.channel.stream_stream(path)(iter([request.SerializeToString()]))
                with suppress(grpc.aio.AioRpcError):
                    while await call.read() is not grpc.aio.EOF:
                        pass
                if await call.code() == grpc.StatusCode.OK:
                    continue
                code, message, details = await failure(call)
                # The message is encoded on its way, three times as long at most.
                trailers = await call.trailing_metadata()
                size = sum(len(name) + len(value) + 32 for name, value in trailers) + 3 * len(message.encode())
                whole = not message.endswith("...")
                if code in NOT_OURS or "ErrorInfo" not in details or size > MAX_TRAILER_BYTES or not whole:
                    wrong.append((case, kind, code.name, message[:100], size))
    assert not wrong
