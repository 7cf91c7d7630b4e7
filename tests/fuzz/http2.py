"""Connections that are no gRPC client's: noise, frames out of place, floods, half a call. Others must not notice."""

import asyncio
import random
from contextlib import suppress

from grpc_health.v1 import health_pb2
from hpack import Encoder

from sonorant.tts.v1.text_to_speech_service_pb2 import GetCapabilitiesRequest, SynthesizeStreamRequest
from tests.fuzz.bytes import mutated
from tests.service.harness import Served
from tests.service.raw_http2 import framed

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, END_HEADERS = 0x1, 0x4
SPEECH = "/sonorant.tts.v1.TextToSpeechService/"
REST_S = 0.05  # how long such a connection is kept open, for the server to answer


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind & 0xFF, flags & 0xFF]) + stream.to_bytes(4, "big") + payload


def headers(address: str, method: str, *more: tuple[str, str]) -> bytes:
    fields = [(":method", "POST"), (":scheme", "http"), (":path", method), (":authority", address)]
    return bytes(Encoder().encode([*fields, ("content-type", "application/grpc"), ("te", "trailers"), *more]))


def begin(address: str, stream: int, rng: random.Random) -> bytes:
    """The headers of a call of one of the methods, or of none."""
    method = rng.choice(
        ("TextToSpeechService/Speak", "TextToSpeechService/SynthesizeStream", "VoiceService/UploadVoice")
    )
    path = rng.choice((f"/sonorant.tts.v1.{method}", "/grpc.health.v1.Health/Watch", "/no.Such/Method"))
    return frame(HEADERS, END_HEADERS, stream, headers(address, path))


def whole_call(address: str, stream: int, rng: random.Random) -> bytes:
    path, request = rng.choice(
        (
            (f"{SPEECH}GetCapabilities", GetCapabilitiesRequest()),
            (f"{SPEECH}SynthesizeStream", SynthesizeStreamRequest(text="ab")),
            ("/grpc.health.v1.Health/Watch", health_pb2.HealthCheckRequest()),
        )
    )
    return frame(HEADERS, END_HEADERS, stream, headers(address, path)) + frame(
        DATA, END_STREAM, stream, framed(request)
    )


def noise(address: str, rng: random.Random) -> bytes:
    return rng.randbytes(rng.randrange(2000))


def random_frames(address: str, rng: random.Random) -> bytes:
    sent = [PREFACE, frame(SETTINGS, 0, 0)]
    for _ in range(rng.randint(1, 30)):
        if rng.random() < 0.3:
            sent.append(begin(address, 2 * rng.randrange(8) + 1, rng))
        kind, flags = rng.choice((*range(10), 11, 200)), rng.choice((0, 1, 4, 5, 8, 0x20, 0xFF))
        payload = rng.randbytes(rng.choice((0, 1, 4, 5, 6, 8, 9, 100)))
        sent.append(frame(kind, flags, rng.choice((0, 1, 2, 3, 5, 2**31 - 1, 2**31)), payload))
    return b"".join(sent)


def changed_calls(address: str, rng: random.Random) -> bytes:
    calls = b"".join(whole_call(address, 2 * number + 1, rng) for number in range(rng.randint(1, 8)))
    return PREFACE + mutated(frame(SETTINGS, 0, 0) + calls, rng, most=8)


def rapid_reset(address: str, rng: random.Random) -> bytes:
    calls = [
        whole_call(address, 2 * number + 1, rng) + frame(RST_STREAM, 0, 2 * number + 1, (8).to_bytes(4, "big"))
        for number in range(200)
    ]
    return PREFACE + frame(SETTINGS, 0, 0) + b"".join(calls)


def continuation_flood(address: str, rng: random.Random) -> bytes:
    block = headers(address, f"{SPEECH}Speak")
    pieces = [frame(CONTINUATION, 0, 1, rng.randbytes(rng.randrange(200))) for _ in range(500)]
    return PREFACE + frame(SETTINGS, 0, 0) + frame(HEADERS, 0, 1, block) + b"".join(pieces)


def floods_of_control(address: str, rng: random.Random) -> bytes:
    one = rng.choice(
        (
            frame(SETTINGS, 0, 0),
            frame(PING, 0, 0, rng.randbytes(8)),
            frame(WINDOW_UPDATE, 0, 0, (2**31 - 1).to_bytes(4, "big")),
            frame(SETTINGS, 0, 0, (4).to_bytes(2, "big") + rng.choice((0, 2**31, 2**32 - 1)).to_bytes(4, "big")),
            frame(PRIORITY, 0, 3, rng.randbytes(5)),
        )
    )
    return PREFACE + frame(SETTINGS, 0, 0) + one * 1000


def closed_windows(address: str, rng: random.Random) -> bytes:
    nothing = frame(SETTINGS, 0, 0, (4).to_bytes(2, "big") + (0).to_bytes(4, "big"))
    return PREFACE + nothing + b"".join(whole_call(address, 2 * number + 1, rng) for number in range(20))


def half_calls(address: str, rng: random.Random) -> bytes:
    calls = [begin(address, 2 * number + 1, rng) for number in range(20)]
    started = frame(DATA, 0, 1, b"\0\x7f\xff\xff\xff" + rng.randbytes(rng.randrange(100)))
    return PREFACE + frame(SETTINGS, 0, 0) + b"".join(calls) + started


SHAPES = (
    *(noise, random_frames, changed_calls, rapid_reset, continuation_flood, floods_of_control),
    *(closed_windows, half_calls),
)


async def send_frames(server: Served, rng: random.Random) -> int:
    """One connection; returns how many bytes it was sent."""
    data = rng.choice(SHAPES)(server.address, rng)
    await send(server.address, data)
    return len(data)


async def send(address: str, data: bytes) -> None:
    """Over a connection of its own, which is kept for a moment and cut off."""
    host, _, port = address.rpartition(":")
    with suppress(ConnectionError, TimeoutError):
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(data)
            async with asyncio.timeout(REST_S):
                await writer.drain()
                while await reader.read(65_536):
                    pass
        finally:
            writer.transport.abort()
