"""Requests of every method with random fields, whole or with bytes changed: each gets one status, and never a bug's."""

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import grpc
import numpy as np
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.message_factory import GetMessageClass

from sonorant.service.audio.codes import CodesHeader, Kind, record
from sonorant.service.rpc.riva import SERVICE as RIVA
from sonorant.tts.riva.v1 import riva_pb2
from sonorant.tts.v1 import dictionary_service_pb2, text_to_speech_service_pb2, voice_service_pb2
from sonorant.tts.v1.speak_pb2 import SpeakRequest
from tests.fuzz.bytes import mutated
from tests.service.fake_engine import FakeEngine
from tests.service.harness import Served
from tests.service.voice_values import file_of


@dataclass(frozen=True)
class Method:
    path: str
    kind: Descriptor  # of its requests
    is_stream: bool = False  # of requests


def _methods(*files: FileDescriptor) -> Iterator[Method]:
    for file in files:
        for service in file.services_by_name.values():
            for method in service.methods:
                path = f"/{service.full_name}/{method.name}"
                yield Method(path, method.input_type, method.client_streaming)


_RIVA = riva_pb2.SynthesizeSpeechRequest.DESCRIPTOR
METHODS = (
    *_methods(text_to_speech_service_pb2.DESCRIPTOR, voice_service_pb2.DESCRIPTOR, dictionary_service_pb2.DESCRIPTOR),
    Method(f"/{RIVA}/Synthesize", _RIVA),
    Method(f"/{RIVA}/SynthesizeOnline", _RIVA, is_stream=True),
    Method(f"/{RIVA}/GetRivaSynthesisConfig", riva_pb2.RivaSynthesisConfigRequest.DESCRIPTOR),
)
# By the path of a field: what a stranger finds out, and gives back changed.
KNOWN: dict[str, Callable[[random.Random], bytes | str]] = {
    "DecodeRequest.codes": lambda rng: stored_codes(rng),
    "Resume.checkpoint": lambda rng: FakeEngine().info.fingerprint,
    "SegmentCodes.codes": lambda rng: bytes(rng.randrange(64) * (at % 2 == 0) for at in range(8 * rng.randrange(40))),
    "ImportVoiceRequest.voice_file": lambda rng: file_of(1),
}
BUGS = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DATA_LOSS)
PATIENCE_S = 20.0
WORDS = (
    "Hello.",
    "",
    " ",
    "ada",
    "english",
    "en-US",
    "my-voice",
    "u1",
    "*",
    "\0",
    "。",
    "a\u0301",
    "\U0001f600",
    "x" * 40,
)
FLOATS = (0.0, 0.5, 1.0, 2.0, -1.0, 1e-38, 3.4e38, float("inf"), float("nan"))
WHOLE = (0, 1, 2, 3, 7, 16_000, 24_000, 2**31 - 1)
_INTEGERS = {FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64}
_UNSIGNED = {FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64}


def random_message(kind: Descriptor, rng: random.Random, depth: int = 6) -> Any:
    message = GetMessageClass(kind)()
    left_out = rng.choice((0.5, 0.9))  # few fields are refused less often
    for field in kind.fields:
        if rng.random() < left_out:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            for _ in range(rng.randrange(3)):
                getattr(message, field.name)[rng.choice(WORDS)] = rng.choice(WORDS)
        elif field.message_type is not None:
            if depth:
                for _ in range(rng.randrange(3) if field.is_repeated else 1):
                    inner = getattr(message, field.name)
                    made = random_message(field.message_type, rng, depth - 1)
                    (inner.add() if field.is_repeated else inner).CopyFrom(made)
        elif field.is_repeated:
            getattr(message, field.name).extend(_scalar(field, rng) for _ in range(rng.randrange(12)))
        else:
            setattr(message, field.name, _scalar(field, rng))
    if "max_lead_ms" in kind.fields_by_name:
        message.max_lead_ms = 0  # what is paced takes its time
    return message


def stored_codes(rng: random.Random) -> bytes:
    """Codes of the tests' engine, in records of any order."""
    header = CodesHeader.of(FakeEngine().info)
    if rng.random() < 0.2:
        header = replace(header, **{rng.choice(("num_codebooks", "bits", "frame_samples")): rng.randint(1, 15)})
    data = header.to_bytes()
    for _ in range(rng.randrange(6)):
        kind, count = rng.choice([*Kind]), rng.randrange(30)
        codes = np.frombuffer(rng.randbytes(count * header.num_codebooks), np.uint8).astype(np.int16)
        frames = header.pack(codes.reshape(count, -1) % 2 ** min(6, header.bits)) if count else b""
        data += record(kind, count, b"" if kind is Kind.PAUSE else frames)
    return mutated(data, rng) if rng.random() < 0.3 else data


def _scalar(field: FieldDescriptor, rng: random.Random) -> Any:
    if rng.random() < 0.8 and (known := KNOWN.get(f"{field.containing_type.name}.{field.name}")):
        return known(rng)
    if field.enum_type is not None:
        return rng.choice([*(value.number for value in field.enum_type.values), 99])
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return rng.random() < 0.5
    if field.cpp_type in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
        return rng.choice(FLOATS)
    if field.cpp_type in _INTEGERS or field.cpp_type in _UNSIGNED:
        return rng.choice((*WHOLE, -1, -(2**31)) if field.cpp_type in _INTEGERS else (*WHOLE, 2**32 - 1))
    text = rng.choice(WORDS)
    return text if field.type == FieldDescriptor.TYPE_STRING else text.encode()


async def send_random_requests(server: Served, rng: random.Random) -> int:
    """One call; returns how many messages went out."""
    method = rng.choice(METHODS)
    requests = [
        random_message(method.kind, rng).SerializeToString()
        for _ in range(rng.randint(1, 8) if method.is_stream else 1)
    ]
    if method.path.endswith("/Speak") and rng.random() < 0.7:  # else few sessions ever begin
        requests[0] = SpeakRequest(config={"resumable": rng.random() < 0.5}).SerializeToString()
    is_changed = rng.random() < 0.5
    if is_changed:
        requests = [mutated(data, rng) if rng.random() < 0.5 else data for data in requests]
    call = server.channel.stream_stream(method.path)(iter(requests))
    if rng.random() < 0.05:
        await asyncio.sleep(rng.random() * 0.01)
        call.cancel()
        return len(requests)
    try:
        async with asyncio.timeout(PATIENCE_S):
            while await call.read() is not grpc.aio.EOF:
                pass
            code, details = await call.code(), await call.details()
    except TimeoutError:
        call.cancel()
        assert is_changed, f"{method.path} did not end: {requests!r}"  # else it may be for good audio, at its pace
        return len(requests)
    except grpc.aio.AioRpcError as error:
        code, details = error.code(), error.details()
    # What a client makes of a call that ends while it writes.
    lost = details == "Internal error from Core"
    assert code not in BUGS or lost, f"{method.path} ended with {code}: {details}; {requests!r}"
    return len(requests)
