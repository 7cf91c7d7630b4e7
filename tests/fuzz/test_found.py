"""What the noise has found, as it was found: each once ended the server, or filled its log."""

import random
from pathlib import Path

from hpack import Encoder

from tests.fuzz.http2 import END_HEADERS, HEADERS, PREFACE, SETTINGS, frame, send
from tests.fuzz.messages import stored_codes
from tests.fuzz.rounds import target


async def test_a_method_that_is_no_text_ends_nothing(tmp_path: Path) -> None:
    """With grpcio 1.84 and 1.85 it ended the server, without a key: the loop that takes calls decodes the path."""
    fields = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/\xff/x"), (b":authority", b"x")]
    call = bytes(Encoder().encode([*fields, (b"content-type", b"application/grpc"), (b"te", b"trailers")]))
    async with target(tmp_path) as under_fire:
        await send(under_fire.server.address, PREFACE + frame(SETTINGS, 0, 0) + frame(HEADERS, END_HEADERS, 1, call))
        await under_fire.check()


def test_noise_can_be_made_of_codes_of_few_bits() -> None:
    """It once ended the hostile client instead, in one of 300 messages."""
    assert all(isinstance(stored_codes(random.Random(seed)), bytes) for seed in range(1000))
