"""Forms are read as they were sent, however their bytes are cut, and no further than their limits."""

import asyncio
import io
import json
import random
from pathlib import Path
from urllib.parse import urlencode

import pytest
from aiohttp import FormData

from tests.gateway.harness import Door, gateway
from tests.gateway.hostile_requests import END, IN_PARTS, URL_ENCODED, VOICES, part, post
from tests.service.fake_engine import FakeEngine

# With nearly the boundary, which is "x": whoever makes a form chooses one that does not occur in it.
TEXTS = (
    "warm",
    "\u4f60\u597d\r\n--y",
    "\r\n--\r\n",
    "\r\n--",
    "\r\n-",
    "a\r",
    "\r\n",
    "=&+%41;",
    '"\\',
    " ",
    "w" * 300,
)


async def sent(door: Door, request: bytes, rng: random.Random) -> tuple[int, dict[str, object]]:
    """Cut somewhere; the status and the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(door.url.rpartition(":")[2]))
    cuts = sorted(rng.randrange(len(request)) for _ in range(rng.randrange(12)))
    for begin, end in zip([0, *cuts], [*cuts, len(request)], strict=True):
        writer.write(request[begin:end])
        await asyncio.sleep(0.001)
    async with asyncio.timeout(60):
        answer = await reader.read()
    writer.close()
    return int(answer.split()[1]), json.loads(answer.partition(b"\r\n\r\n")[2])


@pytest.mark.parametrize("kind", [IN_PARTS, URL_ENCODED], ids=["parts", "url-encoded"])
async def test_texts_arrive_as_they_were_sent(kind: bytes, tmp_path: Path) -> None:
    async with gateway(FakeEngine(task="base"), server={"voices_dir": tmp_path}) as door:
        for seed in range(30):
            rng = random.Random(seed)
            fields = {
                "name": f"voice {seed}",
                "consent": rng.choice(TEXTS) + "yes",
                "speaker_description": "".join(rng.choices(TEXTS, k=3)),
                "speaker_embedding": "[0.5, 1, 2, 3, 4, 5, 6, 7]",
                "model": "of no meaning here",
            }
            in_parts = b"".join(part(name, text.encode()) for name, text in fields.items()) + END
            body = urlencode(fields).encode() if kind == URL_ENCODED else in_parts
            status, voice = await sent(door, post(VOICES, kind, body), rng)
            assert status == 200, voice
            assert voice["description"] == fields["speaker_description"]
            kept = voice["voice"]
            assert isinstance(kept, dict) and kept["consent"] == fields["consent"], seed


LIMITS = {
    "a field": post(VOICES, IN_PARTS, part("consent", b"a" * 300_000) + END),
    "a recording": post(VOICES, IN_PARTS, part("audio_sample", b"a" * 9_000_000) + END),
    "parts": post(VOICES, IN_PARTS, part("x", b"") * 33 + END),
    "a url-encoded form": post(VOICES, URL_ENCODED, b"consent=" + b"a" * 300_000),
    "escapes": post(VOICES, URL_ENCODED, b"consent=" + b"%41" * 70_000),
    "a part's head": post(VOICES, IN_PARTS, b"--x\r\nA: " + b"b" * 5000 + b"\r\n\r\n\r\n" + END),
}


@pytest.mark.parametrize("what", LIMITS)
async def test_what_is_too_large_is_told(what: str) -> None:
    async with gateway(FakeEngine(task="base")) as door:
        status, answer = await sent(door, LIMITS[what], random.Random(1))
    assert status == 413 and "error" in answer, answer


BROKEN = {
    "no end": post(VOICES, IN_PARTS, part("name", b"a")),
    "no boundary": post(VOICES, b"multipart/form-data", END),
    "a boundary of 71 characters": post(VOICES, b"multipart/form-data; boundary=" + b"x" * 71, END),
    "no form": post(VOICES, b"text/plain", b"name=a"),
    "a list that is no embedding": post(VOICES, URL_ENCODED, b'name=a&speaker_embedding=["a"]'),
    "an embedding that is no list": post(VOICES, URL_ENCODED, b"name=a&speaker_embedding={}"),
    "too long an embedding": post(VOICES, URL_ENCODED, b"name=a&speaker_embedding=[" + b"1," * 9000 + b"1]"),
}


@pytest.mark.parametrize("what", BROKEN)
async def test_what_is_no_form_is_told(what: str) -> None:
    async with gateway(FakeEngine(task="base")) as door:
        status, answer = await sent(door, BROKEN[what], random.Random(1))
    assert status == 400 and "error" in answer, answer


async def test_forms_of_all_kinds_get_a_4xx(tmp_path: Path) -> None:
    async with gateway(FakeEngine(task="base"), server={"voices_dir": tmp_path}) as door:
        for fields in ({}, {"name": "x"}, {"name": "???", "prompt": "low"}, {"name": "alloy", "prompt": "low"}):
            form = FormData(fields, default_to_multipart=True)
            async with door.http.post("/v1/audio/voices", data=form) as response:
                assert 400 <= response.status < 500, fields
        boundary = {"Content-Type": "multipart/form-data; boundary=x"}
        for body in (
            b"",
            b"--x\r\n",
            b"--x\r\nContent-Disposition: form-data; name=name\r\n\r\n\xff\r\n--x--\r\n",
            b"z" * 99,
            b"--x\r\nContent-Dispositio\0: form-data; name=name\r\n\r\nx\r\n--x--\r\n",
        ):
            async with door.http.post("/v1/audio/voices", data=body, headers=boundary) as response:
                assert 400 <= response.status < 500, body
        async with door.http.post("/v1/audio/voices", json={"name": "x"}) as response:
            assert response.status == 400
        for encoded in (b"name=%ff", b"\xff", b"name=x&" * 101, b"name=" + b"x" * 13_000_000):
            typed = {"Content-Type": "application/x-www-form-urlencoded; charset=punycode"}
            async with door.http.post("/v1/audio/voices", data=io.BytesIO(encoded), headers=typed) as response:
                assert 400 <= response.status < 500, encoded[:20]
        form = FormData({"name": "x", "consent": "yes"})
        form.add_field("audio_sample", io.BytesIO(bytes(9_000_000)), filename="a.wav")
        async with door.http.post("/v1/audio/voices", data=form) as response:
            assert response.status == 413
