"""What strangers may send: everybody gets an answer with a status of its own, and nobody else notices."""

import asyncio
import base64
import io
import json
import logging
import socket
from pathlib import Path

import pytest
from aiohttp import FormData
from aiohttp.web_protocol import RequestHandler

from sonorant.gateway.log_filters import is_news
from sonorant.gateway.processes import serving
from sonorant.gateway.upstream.calls import call_of
from sonorant.gateway.web.hosts import Hosts
from tests.gateway.harness import Door, gateway
from tests.gateway.hostile_requests import JSON, post
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import spoken
from tests.service.harness import eventually
from tests.service.keys import ADA, BOB, table

SAID = "still here"


async def assert_well(door: Door) -> None:
    assert await door.speak(SAID) == (200, spoken(SAID, seed=1))


async def raw(door: Door, sent: bytes) -> bytes:
    """What a connection that sends these bytes gets back until it is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(door.url.rpartition(":")[2]))
    writer.write(sent)
    received = b""
    try:
        async with asyncio.timeout(60):
            received = await reader.read()
    except (ConnectionError, TimeoutError):
        pass
    writer.close()
    return received


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


BODIES = {
    "not json": b"hello",
    "not utf-8": b'{"input": "\xff"}',
    "half a surrogate pair": b'{"input": "\\ud800 hello"}',
    "deep": b"[" * 100_000,
    "a list": b"[1]",
    "a megabyte of text": json.dumps({"input": "word " * 200_000}).encode(),
    "nothing": b"",
    "numbers out of range": b'{"input": "a", "top_k": 99999999999999999999, "temperature": 1e999}',
    "not a number": b'{"input": "a", "temperature": NaN}',
    "wrong kinds": b'{"input": ["a"], "voice": 7}',
    "numbers for a recording": b'{"input": "a", "ref_audio": [' + b"1, " * 60_000 + b"1]}",
    "a voice of a megabyte": b'{"input": "a", "voice": "' + "a\u00f6".encode() * 300_000 + b'"}',
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
async def test_bodies_of_all_kinds_get_a_4xx(body: bytes) -> None:
    async with gateway(FakeEngine()) as door:
        async with door.http.post("/v1/audio/speech", data=body) as response:
            error = (await response.json())["error"]
            assert 400 <= response.status < 500 and error["message"] and response.headers["X-Request-Id"]
        await assert_well(door)


async def test_bodies_that_are_too_large_are_refused() -> None:
    async with gateway(FakeEngine()) as door:
        async with door.http.post("/v1/audio/speech", data=io.BytesIO(b" " * 13_000_000)) as response:
            assert response.status == 413
        audio = base64.b64encode(bytes(9_000_000)).decode()
        body = json.dumps({"input": "a", "ref_audio": f"data:audio/wav;base64,{audio}"}).encode()
        async with door.http.post("/v1/audio/speech", data=io.BytesIO(body)) as response:
            assert response.status == 413
        await assert_well(door)


async def test_the_answer_to_a_body_that_is_not_read_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was complete, but the connection stayed open for as long as the rest of the body might have come."""
    monkeypatch.setattr(serving, "LINGER_S", 1000.0)
    async with gateway(FakeEngine()) as door:
        refused = await raw(door, post("/v1/audio/voices", JSON, b" " * 300_000))
        assert status_of(refused) == 400
        await assert_well(door)


@pytest.mark.parametrize("value", [b"1", b"{}", b'"":0', b"\\n"])
async def test_bodies_of_millions_of_values_are_not_even_read(value: bytes) -> None:
    """Such a body once took the process seconds, in which nobody else was served."""
    begin, end = {b"1": (b"[", b"]"), b"{}": (b"[", b"]"), b'"":0': (b"{", b"}"), b"\\n": (b'"', b'"')}[value]
    between = b"" if begin == b'"' else b","
    async with gateway(FakeEngine()) as door:
        body = begin + between.join([value] * 2_000_000) + end
        async with door.http.post("/v1/audio/speech", data=io.BytesIO(body)) as response:
            assert response.status == 413 and "values" in (await response.json())["error"]["message"]
        async with door.http.post(
            "/v1/audio/speech", json={"input": SAID, "speaker_embedding": [0.5] * 2048}
        ) as response:
            assert response.status == 400, "it was looked at: this checkpoint takes none"


async def test_large_bodies_are_few_at_a_time() -> None:
    """One caller may hold as many places as are free, so that there is one for the next caller."""
    async with gateway(FakeEngine()) as door:
        port = int(door.url.rpartition(":")[2])
        head = b"POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        for _, writer in held:
            writer.write(head + b" " * 100_000)
        refused = [asyncio.create_task(reader.readline()) for reader, _ in held]
        await eventually(lambda: sum(task.done() for task in refused), 12)
        assert all(b" 429 " in task.result() for task in refused if task.done())
        for key, status in ((ADA, 400), ("", 429)):
            large = {"data": io.BytesIO(b" " * 1_000_000), "headers": {"X-API-Key": key}}
            async with door.http.post("/v1/audio/speech", **large) as response:
                assert response.status == status
        await assert_well(door)
        for _, writer in held:
            writer.close()
        await asyncio.gather(*refused, return_exceptions=True)
        async with door.http.post("/v1/audio/speech", data=io.BytesIO(b" " * 1_000_000)) as response:
            assert response.status == 400, "there is room again"


HEADS = {
    "a huge header": b"GET /health HTTP/1.1\r\nX: " + b"a" * 20_000 + b"\r\n\r\n",
    "many headers": b"GET /health HTTP/1.1\r\n" + b"".join(b"X-%d: a\r\n" % n for n in range(2000)) + b"\r\n",
    "a huge path": b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n",
    "no http": b"\x16\x03\x01 hello\r\n\r\n",
    "bad chunks": b"POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
    "two lengths": b"POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Length: 1\r\nContent-Length: 2\r\n\r\na",
    "length and chunks": b"POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
    b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n0\r\n\r\n",
    "a wrong method": b"BREW /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    "a bad key": b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nX-API-Key: \xc3\xa9\r\nConnection: close\r\n\r\n",
    "half a key": b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nX-API-Key: se\0cret\r\n\r\n",
    "no gzip": b"POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n"
    b"Connection: close\r\n\r\n{}",
}


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
async def test_heads_of_all_kinds_get_a_4xx_and_no_line_of_log(head: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with gateway(FakeEngine()) as door:
        assert 400 <= status_of(await raw(door, head)) < 500
        await assert_well(door)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING and is_news(record)]


PATHS = (
    "/../../etc/passwd",
    "/%2e%2e/%2e%2e/etc/passwd",
    "//etc/passwd",
    "/page/../settings.py",
    "/settings.py",
    "/v1/models/..%2f..%2fetc%2fpasswd",
    "/v1/audio/voices/..%2fx",
    "/%00",
    "/nothing",
)


@pytest.mark.parametrize("path", PATHS)
async def test_paths_lead_nowhere_else(path: str) -> None:
    async with gateway(FakeEngine()) as door:
        answer = await raw(door, f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        assert 400 <= status_of(answer) < 500 and b"root:" not in answer


async def test_no_door_follows_a_link() -> None:
    """To a server of ours, which nobody must come to."""
    visits = []

    def connected(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visits.append(writer)
        writer.close()

    target = await asyncio.start_server(connected, "127.0.0.1", 0)
    port = target.sockets[0].getsockname()[1]
    link = f"http://127.0.0.1:{port}/recording.wav"
    async with target, gateway(FakeEngine(task="base")) as door:
        for fields in ({"ref_audio": link}, {"ref_audio": [link]}, {"references": [{"audio_path": link}]}):
            assert (await door.refusal(SAID, **fields))[0] == 400
            body = {"items": [{"input": SAID, **fields}]}
            async with door.http.post("/v1/audio/speech/batch", json=body) as response:
                assert (await response.json())["failed"] == 1
            async with door.http.ws_connect("/v1/audio/speech/stream") as stream:
                await stream.send_json({"type": "session.config", **fields})
                assert (await stream.receive_json(timeout=60))["type"] == "error"
        form = FormData({"name": "anna", "consent": "yes", "audio_sample": link})
        async with door.http.post("/v1/audio/voices", data=form) as response:
            assert response.status == 400
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        writer.close()
        assert len(visits) == 1, "this one alone"


async def test_heads_that_never_end_are_given_up_and_hold_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sonorant.gateway.processes.serving.KEEPALIVE_S", 0.2)
    monkeypatch.setattr("sonorant.gateway.web.bodies.BODY_TIMEOUT_S", 0.2)
    async with gateway(FakeEngine()) as door:
        for sent in (b"", b"GET /health HT", b"GET /health HTTP/1.1\r\nX: "):
            assert await asyncio.wait_for(raw(door, sent), 30) == b""
        kinds = b"application/x-www-form-urlencoded", b"multipart/form-data; boundary=x"
        heads = [
            b"POST /v1/audio/%b HTTP/1.1\r\nHost: localhost\r\nContent-Type: %b\r\n" % (path, kind)
            for path, kind in ((b"speech", b"application/json"), *((b"voices", kind) for kind in kinds))
        ]
        slow = [raw(door, head + b"Content-Length: 100\r\nConnection: close\r\n\r\n{") for head in heads]
        assert [status_of(answer) for answer in await asyncio.gather(*slow)] == [408, 408, 408]
        await assert_well(door)


async def test_pages_of_others_may_not_call_unless_they_are_named() -> None:
    async with gateway(FakeEngine(), cors_origins=("https://good.example",)) as door:
        for origin, status in ((door.url, 200), ("https://good.example", 200), ("https://bad.example", 403)):
            async with door.http.get("/v1/models", headers={"Origin": origin}) as response:
                assert response.status == status
                allowed = response.headers.get("Access-Control-Allow-Origin")
                assert allowed == (origin if origin == "https://good.example" else None)
        preflight = {"Origin": "https://good.example", "Access-Control-Request-Method": "POST"}
        for wanted, taken in (
            ("authorization,x-stainless-os", "x-stainless-os"),
            ("", "X-API-Key"),
            ("\xff", "X-API-Key"),
        ):
            headers = {**preflight, "Access-Control-Request-Headers": wanted}
            async with door.http.options("/v1/audio/speech", headers=headers) as response:
                assert response.status == 204 and "POST" in response.headers["Access-Control-Allow-Methods"]
                assert taken in response.headers["Access-Control-Allow-Headers"]


REBOUND = "GET /v1/models", "POST /v1/audio/speech", "DELETE /v1/audio/voices/ada", "GET /tts/websocket", "GET /"


@pytest.mark.parametrize("request_line", REBOUND)
async def test_a_name_of_a_stranger_that_means_this_machine_leads_nowhere(request_line: str) -> None:
    """The page is then of the same origin; its name is all that tells it apart."""
    async with gateway(FakeEngine()) as door:
        port = door.url.rpartition(":")[2]
        host = f"evil.example:{port}"
        head = f"{request_line} HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nConnection: close\r\n\r\n"
        answer = await raw(door, head.encode())
        assert status_of(answer) == 421 and b"--allowed-host evil.example" in answer, answer


HOSTS = {
    "127.0.0.1:80": True,
    "LocalHost.:8000": True,
    "me.localhost": True,
    "[::1]:8000": True,
    "192.168.0.7": True,
    "tts.example.org:443": True,
    "": True,
    "evil.example": False,
    "127.0.0.1.evil.example:8000": False,
    "localhost.evil.example": False,
    "evillocalhost": False,
    "[evil.example]": False,
    "tts.example.org.evil.example": False,
    "xtts.example.org": False,
    "\xff": False,
}


@pytest.mark.parametrize("host", HOSTS)
async def test_a_gateway_answers_to_its_own_names(host: str) -> None:
    async with gateway(FakeEngine(), allowed_hosts=("TTS.example.org",)) as door:
        head = f"GET /health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        assert status_of(await raw(door, head.encode("latin-1"))) == (200 if HOSTS[host] else 421)


def test_a_name_to_listen_on_is_known_and_any_may_be() -> None:
    assert Hosts("tts.example.org:8000", ()).has("tts.example.org")
    assert Hosts("[::]:8000", ("*",)).has("whatever.example")


@pytest.mark.parametrize("origin", [b"http://[x", b"null", b"http://\xff", b"\xed\xa0\x80"])
@pytest.mark.parametrize("allowed", [(), ("*",)])
async def test_pages_without_a_name_are_pages_of_others(origin: bytes, allowed: tuple[str, ...]) -> None:
    async with gateway(FakeEngine(), cors_origins=allowed) as door:
        head = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nOrigin: %b\r\n\r\n" % origin
        answer = await raw(door, head)
        assert status_of(answer) == (200 if allowed and origin.isascii() else 403), answer


async def test_keys_and_request_ids_are_passed_on(tmp_path: Path) -> None:
    (tmp_path / "keys.toml").write_text(table("ada", ADA) + table("bob", BOB, 'voices = ["bob"]'))
    async with gateway(FakeEngine(), server={"api_keys": tmp_path / "keys.toml"}) as door:
        for headers, status in (
            ({"Authorization": f"Bearer {ADA}"}, 200),
            ({"X-API-Key": ADA}, 200),
            ({}, 401),
            ({"Authorization": f"Basic {ADA}"}, 401),
            ({"X-API-Key": BOB}, 403),
            ({"X-API-Key": "a" * 5000}, 401),
        ):
            body = {"input": "a", "voice": "ada", "response_format": "pcm"}
            sent = {**headers, "X-Request-Id": "mine-7"}
            async with door.http.post("/v1/audio/speech", json=body, headers=sent) as response:
                assert response.status == status, headers
                assert status == 401 or response.headers["X-Request-Id"] == "mine-7"


async def test_the_rest_of_a_refused_body_is_not_taken_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has no key may send megabytes in chunks of one byte."""
    num_parsed, parse = 0, RequestHandler.data_received

    def parsed(protocol: RequestHandler, data: bytes) -> None:
        nonlocal num_parsed
        num_parsed += len(data)
        parse(protocol, data)

    monkeypatch.setattr(RequestHandler, "data_received", parsed)
    (tmp_path / "keys.toml").write_text(table("ada", ADA))
    async with gateway(FakeEngine(), server={"api_keys": tmp_path / "keys.toml"}) as door:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(door.url.rpartition(":")[2]))
        writer.write(
            b"POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n"
        )
        head = await reader.readuntil(b"\r\n\r\n")
        assert status_of(head) == 401 and b"connection: close" in head.lower()
        length = int(head.lower().partition(b"content-length: ")[2].split()[0])
        assert len(await asyncio.wait_for(reader.read(), 60)) == length, "nothing follows"
        writer.write(b"1\r\na\r\n" * 20_000)
        assert (await door.http.get("/health")).status == 200  # the gateway has received that meanwhile
        assert 0 < num_parsed < 10_000
        writer.close()


def test_traces_are_passed_on_and_what_is_none_is_dropped() -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert ("traceparent", trace) in call_of({"traceparent": trace}).metadata
    for noise in ("00-xyz", trace * 2, f"{trace}\n", "\xff"):
        assert "traceparent" not in dict(call_of({"traceparent": noise}).metadata), noise


async def deaf(door: Door) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A listener with hardly any buffer who asks for 160 s of audio at 48 kHz, 15 MB, and reads the head only."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    listener.setblocking(False)
    await asyncio.get_running_loop().sock_connect(listener, ("127.0.0.1", int(door.url.rpartition(":")[2])))
    reader, writer = await asyncio.open_connection(sock=listener, limit=8192)
    body = json.dumps({"input": "word " * 800, "response_format": "pcm", "sample_rate": 48_000}).encode()
    writer.write(b"POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    assert status_of(await reader.readuntil(b"\r\n\r\n")) == 200
    return reader, writer


async def test_a_listener_who_does_not_read_stops_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine()
    async with gateway(engine) as door:
        _, writer = await deaf(door)
        before = -1
        async with asyncio.timeout(60):
            while before != engine.frames_made:  # until nothing moves any more
                before = engine.frames_made
                await asyncio.sleep(0.3)
        assert engine.live and engine.frames_made < 1500, "all is made and waits in memory"
        await assert_well(door)
        writer.close()
        await eventually(lambda: len(engine.live), 0)


async def test_a_listener_who_takes_nothing_any_more_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sonorant.gateway.web.http.WRITE_TIMEOUT_S", 0.2)
    engine = FakeEngine()
    async with gateway(engine) as door:
        _, writer = await deaf(door)
        await eventually(lambda: len(engine.live), 0)
        writer.close()


@pytest.mark.parametrize(
    "fields", [b'"response_format": "pcm"', b'"response_format": "mp3"', b'"stream_format": "sse"']
)
async def test_an_answer_to_http_1_0_ends_with_its_connection(fields: bytes) -> None:
    async with gateway(FakeEngine()) as door:
        host, port = door.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        body = b'{"input": "Hello", %s}' % fields
        writer.write(
            b"POST /v1/audio/speech HTTP/1.0\r\nConnection: keep-alive\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
        )
        async with asyncio.timeout(60):
            answer = await reader.read()  # to the end of the connection
        writer.close()
    head, _, audio = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 200") and b"chunked" not in head.lower() and b"keep-alive" not in head.lower()
    assert len(audio) > 100
