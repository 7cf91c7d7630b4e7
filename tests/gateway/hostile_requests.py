"""Requests that are small for a stranger and were dear for the gateway, as bytes."""

import functools
import gzip
import json
from urllib.parse import urlencode

PART = b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n\r\n'
END = b"--x--\r\n"
IN_PARTS = b"multipart/form-data; boundary=x"
URL_ENCODED = b"application/x-www-form-urlencoded"
JSON = b"application/json"
SPEECH, BATCH, VOICES = "/v1/audio/speech", "/v1/audio/speech/batch", "/v1/audio/voices"


def post(path: str, kind: bytes, body: bytes, *headers: bytes) -> bytes:
    lines = (
        b"POST %b HTTP/1.1" % path.encode(),
        *(b"Host: localhost", b"Connection: close", b"Content-Type: " + kind, b"Content-Length: %d" % len(body)),
        *headers,
    )
    return b"\r\n".join((*lines, b"", body))


def packed(path: str, kind: bytes, body: bytes) -> bytes:
    return post(path, kind, gzip.compress(body), b"Content-Encoding: gzip")


def in_chunks(path: str, kind: bytes, body: bytes) -> bytes:
    """Each byte is a chunk of its own."""
    head = post(path, kind, b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    return head + b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"


def part(name: str, data: bytes) -> bytes:
    return b'--x\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n' % (name.encode(), data)


def in_json(**fields: object) -> bytes:
    return json.dumps(fields).encode()


@functools.cache
def requests() -> dict[str, bytes]:
    """By what they have. They are made when they are wanted, which takes seconds."""
    numbers = "[" + ",".join(["1"] * 1_000_000) + "]"
    recording = "data:audio/wav;base64," + "A" * 10_000_000
    return {
        "300,000 parts in gzip": packed(VOICES, IN_PARTS, PART * 300_000 + END),
        "40,000 parts": post(VOICES, IN_PARTS, PART * 40_000 + END),
        "8 MB in one part of nothing but line ends": post(
            VOICES, IN_PARTS, part("audio_sample", b"\r\n-" * 2_600_000) + END
        ),
        "half of a part's head": post(VOICES, IN_PARTS, b"--x\r\nA: " + b"b" * 5_000_000),
        "an embedding in gzip": packed(
            VOICES, URL_ENCODED, urlencode({"name": "a", "speaker_embedding": numbers}).encode()
        ),
        "an embedding in a url-encoded form": post(
            VOICES, URL_ENCODED, b"name=a&consent=b&speaker_embedding=" + numbers.encode()
        ),
        "an embedding in a part": post(
            VOICES, IN_PARTS, part("name", b"a") + part("speaker_embedding", b"[" + b"[1]," * 60_000) + END
        ),
        "millions of escapes": post(VOICES, URL_ENCODED, b"name=" + b"%41" * 4_000_000),
        "JSON in gzip": packed(SPEECH, JSON, b'{"input": "%b"}' % (b"a" * 200_000_000)),
        "numbers of thousands of digits": post(SPEECH, JSON, b'{"x": [%b1]}' % (b"9" * 4300 + b",") * 2500),
        "a number of megabytes": post(SPEECH, JSON, b'{"x": 1.%b}' % (b"9" * 11_000_000)),
        "a recording for all of a batch": post(BATCH, JSON, in_json(ref_audio=recording, items=[{"input": "a"}] * 32)),
        "the same model, at length, for all of a batch": post(
            BATCH, JSON, in_json(model="A" * 11_000_000, items=[{"input": "a"}] * 32)
        ),
        "unknown fields for all of a batch": post(
            BATCH, JSON, in_json(items=[{"input": "a"}] * 32, **{f"f{number}": number for number in range(34_000)})
        ),
        "a language of megabytes": post("/tts/bytes", JSON, in_json(transcript="a", language="A" * 11_000_000)),
        "bytes as chunks": in_chunks(SPEECH, JSON, b" " * 100_000),
        "a form's bytes as chunks": in_chunks(VOICES, IN_PARTS, part("audio_sample", b"\r" * 100_000) + END),
    }
