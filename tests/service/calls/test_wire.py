"""What is counted of a message is what the parser would make of it, and no more than may be."""

import random

import grpc
import numpy as np
import pytest
from google.protobuf.message import DecodeError

from sonorant.service.calls.wire import MAX_PARTS, PARTS_AT_ONCE, counted
from sonorant.service.errors import MalformedMessage
from sonorant.service.utterance.resumption import MAX_PARTS as MAX_RESUMED_PARTS
from sonorant.tts.v1 import speak_pb2, synthesis_pb2, voice_pb2
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeRequest
from tests.fuzz.bytes import mutated
from tests.fuzz.messages import METHODS, random_message
from tests.service.fake_engine import FakeEngine
from tests.service.harness import failure, served


def nested(field: int, body: bytes) -> bytes:
    length, rest = b"", len(body)
    while rest > 127:
        length, rest = length + bytes([rest & 127 | 128]), rest >> 7
    return bytes([field << 3 | 2]) + length + bytes([rest]) + body


def number(message: type, name: str) -> int:
    return message.DESCRIPTOR.fields_by_name[name].number


@pytest.mark.parametrize(
    ("message", "path", "part"),
    [
        (SynthesizeRequest, (), b"\x7a\x00"),  # a field that the contract does not have
        (SynthesizeRequest, (), b"\x78\x01"),
        (SynthesizeRequest, ((SynthesizeRequest, "config"), (synthesis_pb2.SynthesisConfig, "pronunciations")), b""),
        (speak_pb2.SpeakRequest, ((speak_pb2.SpeakRequest, "text"),), b"a"),
        (speak_pb2.SpeakRequest, ((speak_pb2.SpeakRequest, "resume"), (speak_pb2.Resume, "segments")), b""),
        (speak_pb2.SpeakRequest, ((speak_pb2.SpeakRequest, "resume"), (speak_pb2.Resume, "committed_chars")), b"\x01"),
    ],
)
def test_many_small_parts_are_refused_wherever_they_are(
    message: type, path: tuple[tuple[type, str], ...], part: bytes
) -> None:
    fields = [number(*step) for step in path]
    each = nested(fields.pop(), part) if fields else part

    def request(times: int) -> bytes:
        data = each * times
        for field in reversed(fields):
            data = nested(field, data)
        return data

    assert all(counted(request(MAX_PARTS - 1), message.DESCRIPTOR))
    with pytest.raises(MalformedMessage, match="more than 25000 parts"):
        list(counted(request(1_000_000), message.DESCRIPTOR))


def test_what_the_contract_allows_is_let_through() -> None:
    segments = [
        {"segment": number, "offset": 1, "codes": b"1234", "complete": True, "draw": 1}
        for number in range(MAX_RESUMED_PARTS)
    ]
    resume = speak_pb2.Resume(segments=segments, committed_chars=[100_000] * MAX_RESUMED_PARTS)
    request = speak_pb2.SpeakRequest(utterance_id="u1", resume=resume)
    steps = list(counted(request.SerializeToString(), request.DESCRIPTOR))
    assert len(steps) >= 5 * MAX_RESUMED_PARTS // PARTS_AT_ONCE, "others have their turn in between"
    recording = SynthesizeRequest(config={"voice": {"reference": {"audio": bytes(8_000_000)}}})
    assert not list(counted(recording.SerializeToString(), recording.DESCRIPTOR))
    embedding = voice_pb2.SpeakerEmbedding(values=np.ones(4096))
    assert not list(counted(embedding.SerializeToString(), embedding.DESCRIPTOR))


def test_only_what_the_parser_refuses_is_refused() -> None:
    rng, num_refused = random.Random(3), 0
    for _ in range(500):
        request = random_message(rng.choice(METHODS).kind, rng)
        whole = request.SerializeToString()
        list(counted(whole, request.DESCRIPTOR))
        data = mutated(whole, rng)
        try:
            list(counted(data, request.DESCRIPTOR))
        except MalformedMessage as error:
            if "wire type" not in str(error):
                num_refused += 1
                with pytest.raises(DecodeError):
                    type(request).FromString(data)
    assert num_refused > 50


@pytest.mark.parametrize(
    "data",
    [b"\x0a", b"\x0a\x05a", b"\x80" * 11, b"\x0d\x00", b"\x08", b"\x0b\x0c", nested(1, b"\x0a\x7f") + b"a" * 200],
)
def test_what_is_no_message_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        list(counted(data, SynthesizeRequest.DESCRIPTOR))


async def test_a_call_with_many_small_parts_is_told_why_it_is_refused() -> None:
    config = synthesis_pb2.SynthesisConfig(pronunciations={f"{number}": "a" for number in range(MAX_PARTS)})
    async with served(FakeEngine()) as server:
        code, message, details = await failure(server.stub.Synthesize(SynthesizeRequest(text="a", config=config)))
    assert (code, details["ErrorInfo"].reason) == (grpc.StatusCode.INVALID_ARGUMENT, "MALFORMED_MESSAGE")
    assert "more than 25000 parts" in message
