"""Noise for everything that reads a body: forms of all kinds, packed, in chunks, of many parts and numbers.

Each gets an answer that is no bug, and takes no turn of the event loop for long.
"""

import gzip
import random
import zlib
from urllib.parse import quote_plus

from tests.fuzz.bytes import mutated
from tests.gateway.harness import Door
from tests.gateway.hostile_requests import END, IN_PARTS, JSON, PART, URL_ENCODED, part, post
from tests.gateway.turns import burst

LONGEST_S = 0.25  # of processor time, all processes of a deployment being one here; the dearest request took a minute
PATIENCE_S = 30.0
PATHS = (*("/v1/audio/voices",) * 4, "/v1/audio/speech", "/v1/audio/speech/batch", "/tts/bytes", "/tts/sse")
NAMES = ("name", "consent", "ref_text", "speaker_description", "speaker_embedding", "prompt", "audio_sample", "x", "")
VALUES = (
    *(b"", b"a", b"my voice", b"\xff", "\u00e9\U0001f600".encode(), b"--x", b"\r\n--x", b"\r\n--x--\r\n", b"\r\n" * 50),
    *(b"[]", b"[1.5, 2]", b"[[[[", b"{}", b"null", b"1e999", b"9" * 5000, b"[" + b"1," * 9000 + b"1]", b"%", b"+" * 99),
    *(b"[" + b"9" * 4300 + b"]", b"a" * 300_000, b"\r" * 70_000, b"RIFF\0\0\0\0WAVEfmt ", b'"', b"\\u0000" * 900),
)
MOST_BYTES = 13_000_000  # a little more than a body may have
TIMES = (1, 1, 1, 1, 2, 40, 5000)


def _body(kind: bytes, rng: random.Random) -> bytes:
    fields = [(rng.choice(NAMES), rng.choice(VALUES)) for _ in range(rng.randrange(9))]
    if kind == URL_ENCODED:
        quoted = (name.encode() + b"=" + rng.choice((quote_plus(value).encode(), value)) for name, value in fields)
        body = b"&".join(quoted)
        return body * min(rng.choice(TIMES), MOST_BYTES // (len(body) + 1))
    if kind == IN_PARTS:
        return b"".join(part(name, value) for name, value in fields) + PART * rng.choice((0, *TIMES)) + END
    pairs = (b'"%b": %b' % (name.encode(), value or b'""') for name, value in fields)
    return b"{" + b", ".join((b'"input": "a"', *pairs)) + b"}"


def _request(rng: random.Random) -> tuple[bytes, bool]:
    """A request, and whether it is packed."""
    kind, path = rng.choice((IN_PARTS, IN_PARTS, URL_ENCODED, JSON)), rng.choice(PATHS)
    body = _body(kind, rng)
    if rng.random() < 0.4:
        body = mutated(body, rng)
    if rng.random() < 0.15:
        packing, pack = rng.choice((("gzip", gzip.compress), ("deflate", zlib.compress), ("br", bytes), ("x", bytes)))
        return post(path, kind, pack(body), b"Content-Encoding: " + packing.encode()), True
    if rng.random() < 0.3:
        head = post(path, kind, b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
        size = rng.choice((1, 7, 1000, 100_000))
        body = body[: size * 20_000]
        chunks = (body[start : start + size] for start in range(0, len(body), size))
        return head + b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in chunks) + b"0\r\n\r\n", False
    return post(path, kind, body), False


async def send_form(door: Door, rng: random.Random) -> int:
    request, packed = _request(rng)
    port = int(door.url.rpartition(":")[2])
    answer, longest_s = await burst(port, b"", request, b"", PATIENCE_S)
    status = int(answer.split(maxsplit=2)[1])
    assert status < 500 and (status == 415) == packed, f"{status} of {request[:300]!r}"
    assert longest_s < LONGEST_S, f"{longest_s:.2f} s for {request[:300]!r}"
    return 1
