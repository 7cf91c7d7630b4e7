"""Requests of every method with random fields, whole or with bytes changed: each gets one status, and never a bug's."""

import asyncio
import random
from typing import Any

import grpc
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

from sonorant.tts.v1 import text_to_speech_service_pb2, voice_service_pb2
from tests.fuzz.bytes import mutated
from tests.service.harness import Served

METHODS: tuple[MethodDescriptor, ...] = (
    *text_to_speech_service_pb2.DESCRIPTOR.services_by_name["TextToSpeechService"].methods,
    *voice_service_pb2.DESCRIPTOR.services_by_name["VoiceService"].methods,
)
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
    for field in kind.fields:
        if rng.random() < 0.5:
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


def _scalar(field: FieldDescriptor, rng: random.Random) -> Any:
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
        random_message(method.input_type, rng).SerializeToString()
        for _ in range(rng.randint(1, 8) if method.client_streaming else 1)
    ]
    is_changed = rng.random() < 0.5
    if is_changed:
        requests = [mutated(data, rng) if rng.random() < 0.5 else data for data in requests]
    call = server.channel.stream_stream(f"/{method.containing_service.full_name}/{method.name}")(iter(requests))
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
        assert is_changed, f"{method.name} did not end: {requests!r}"  # else it may be for good audio, at its pace
        return len(requests)
    except grpc.aio.AioRpcError as error:
        code, details = error.code(), error.details()
    # What a client makes of a call that ends while it writes.
    lost = details == "Internal error from Core"
    assert code not in BUGS or lost, f"{method.name} ended with {code}: {details}; {requests!r}"
    return len(requests)
