"""The gateway as a process and among servers: readiness, drain, TLS, several on one port, a server that goes."""

import asyncio
import os
import re
import signal
import socket
import ssl
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest

from sonorant.client import Access
from sonorant.gateway.app import make_app
from sonorant.gateway.metrics import GatewayMetrics
from sonorant.gateway.processes import serving
from sonorant.gateway.processes.serving import Gateway
from sonorant.gateway.settings import GatewayConfig
from sonorant.gateway.upstream.servers import Servers
from tests.cutting_proxy import CuttingProxy
from tests.gateway.gateway_process import GatewayProcess
from tests.gateway.harness import gateway, gateway_to
from tests.service.certificates import Certificates
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import spoken
from tests.service.harness import eventually, served

SAID = "word by word"


async def test_it_is_ready_when_a_server_serves_and_not_before() -> None:
    async with gateway(FakeEngine()) as door:
        async with door.http.get("/ready") as response:
            assert (await response.json())["servers"] == [{"target": door.server.address, "serving": True}]
        async with door.http.get("/health") as response:
            assert response.status == 200
        door.server.drain.set()
        await eventually(door.ready, 503)
        status, error = await door.refusal(SAID)
        assert status == 503 and error["code"] == "server_unavailable"


async def test_calls_go_to_the_server_with_the_fewest_and_past_one_that_is_gone() -> None:
    engines = [FakeEngine(), FakeEngine()]
    async with AsyncExitStack() as stack:
        first, second = [await stack.enter_async_context(served(engine)) for engine in engines]
        door = await stack.enter_async_context(gateway(FakeEngine(), servers=(first.address, second.address)))

        async def all_serve() -> bool:
            async with door.http.get("/ready") as response:
                return all(server["serving"] for server in (await response.json())["servers"])

        await eventually(all_serve, True)
        for engine in engines:
            engine.hold()
        speaking = [asyncio.create_task(door.speak(SAID)) for _ in range(4)]
        await eventually(lambda: [len(engine.live) for engine in engines], [2, 2])
        for engine in engines:
            engine.release()
        assert {status for status, _ in await asyncio.gather(*speaking)} == {200}
        first.drain.set()  # its health may not have been heard of yet: the call goes on to the second one
        assert await door.speak(SAID) == (200, spoken(SAID, seed=1))


async def test_a_drain_lets_what_is_spoken_end() -> None:
    engine = FakeEngine(frame_s=0.005)
    async with gateway(engine) as door:
        speaking = asyncio.create_task(door.speak(SAID))
        await eventually(lambda: len(engine.live), 1)
        door.drain.set()
        assert await speaking == (200, spoken(SAID, seed=1))
        await asyncio.wait_for(door.running, 25)
        with pytest.raises(aiohttp.ClientConnectorError):
            await door.ready()


async def test_metrics_count_what_was_done() -> None:
    async with gateway(FakeEngine()) as door:
        _, audio = await door.speak(SAID)
        await door.refusal(SAID, voice="nobody")
        async with door.http.get("/metrics") as response:
            text = await response.text()
    assert 'gateway_requests_total{door="openai",status="200"} 1.0' in text
    assert 'gateway_requests_total{door="openai",status="404"} 1.0' in text
    assert 'gateway_first_audio_seconds_count{door="openai"} 1.0' in text
    assert f'gateway_audio_bytes_total{{door="openai"}} {float(len(audio))}' in text
    assert 'gateway_streams{door="openai"} 0.0' in text


async def test_tls_with_certificates_that_are_replaced(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    files = certificates.files()
    trust = ssl.create_default_context(cadata=certificates.authority.cert_pem.bytes().decode())
    async with served(FakeEngine()) as behind:
        config = GatewayConfig(
            listen="127.0.0.1:0", servers=(behind.address,), tls_certificate=files.certificate, tls_key=files.key
        )
        own, drain = Gateway(config), asyncio.Event()
        running = asyncio.create_task(own.run(drain))

        async def serial() -> int:
            _, writer = await asyncio.open_connection("127.0.0.1", own.port, ssl=trust, server_hostname="localhost")
            seen = writer.get_extra_info("ssl_object").getpeercert()["serialNumber"]
            writer.close()
            return int(seen, 16)

        connector = aiohttp.TCPConnector(ssl=trust)
        async with aiohttp.ClientSession(f"https://localhost:{own.port}", connector=connector) as http:

            async def ready() -> int:
                async with http.get("/ready") as response:
                    return response.status

            await eventually(ready, 200)
            body = {"input": SAID, "response_format": "pcm", "seed": 1}
            async with http.post("/v1/audio/speech", json=body) as response:
                assert (response.status, await response.read()) == (200, spoken(SAID, seed=1))
            async with http.ws_connect("/tts/websocket") as socket:
                await socket.send_json({"context_id": "a", "transcript": " ", "continue": False})
                assert (await socket.receive_json(timeout=60))["done"] is True

        before = await serial()
        certificates.issue()

        async def replaced() -> bool:
            return await serial() != before

        await eventually(replaced, True)
        drain.set()
        await running


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.parametrize(("variable", "says"), [("CERTIFICATE", "belong together"), ("CA", "No such file")])
def test_a_way_to_the_servers_that_cannot_be_is_told(variable: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"SONORANT_CLIENT_{variable}", "/none.pem")
    with pytest.raises((OSError, ValueError), match=says):
        Gateway(GatewayConfig(listen="127.0.0.1:0"))


async def test_several_processes_share_a_port_and_one_that_dies_is_replaced(tmp_path: Path) -> None:
    async with served(FakeEngine()) as behind:
        # All addresses of IPv6 are those of IPv4, too: nearly all requests here come by IPv4.
        arguments = ("--server", behind.address, "--processes", "2", "--listen", "[::]:0")
        process = await asyncio.to_thread(GatewayProcess, tmp_path / "log", *arguments)
        try:
            await asyncio.to_thread(process.wait_for, "listening")  # the second one

            async def answers() -> bool:
                try:
                    async with aiohttp.ClientSession(process.url) as http, http.get("/ready") as response:
                        return response.status == 200
                except aiohttp.ClientError:
                    return False

            await eventually(answers, True)

            async def requests() -> float:
                async with aiohttp.ClientSession(process.url) as http:
                    for _ in range(5):  # each by a connection of its own, to whichever process
                        async with aiohttp.ClientSession(process.url) as fresh, fresh.get("/health") as response:
                            assert response.status == 200
                    async with http.get("/metrics") as response:
                        return float(
                            re.findall(r'requests_total{door="other",status="200"} (\S+)', await response.text())[0]
                        )

            assert await requests() >= 5, "each answers for all"
            by_ipv6 = process.url.replace("127.0.0.1", "[::1]")
            async with aiohttp.ClientSession(by_ipv6) as http, http.get("/ready") as response:
                assert response.status == 200
            workers = await asyncio.to_thread(children, process.process.pid)
            os.kill(workers[-1], signal.SIGKILL)
            await asyncio.to_thread(process.wait_for, "listening")
            await eventually(answers, True)
        finally:
            assert await asyncio.to_thread(process.stop) == 0


async def test_several_processes_end_with_the_one_that_started_them(tmp_path: Path) -> None:
    process = await asyncio.to_thread(GatewayProcess, tmp_path / "log", "--processes", "2")
    try:
        await asyncio.to_thread(process.wait_for, "listening")  # the second one
        workers = await asyncio.to_thread(children, process.process.pid)
        assert len(workers) == 2
        process.process.kill()
        await eventually(lambda: [worker for worker in workers if Path(f"/proc/{worker}").exists()], [])
    finally:
        await asyncio.to_thread(process.stop)
    assert "the process that started this one is gone" in process.log


@pytest.mark.rare
@pytest.mark.slow
async def test_several_processes_that_cannot_listen_end_with_a_message(tmp_path: Path) -> None:
    none = tmp_path / "none.pem"
    arguments = ("--processes", "2", "--tls-certificate", str(none), "--tls-key", str(none))
    with pytest.raises(AssertionError, match=r"(?s)none\.pem: No such file.*gateway process \d ended with status 1"):
        await asyncio.to_thread(GatewayProcess, tmp_path / "log", *arguments)


@pytest.mark.slow
async def test_a_thousand_idle_sockets_are_small(tmp_path: Path) -> None:
    async with served(FakeEngine()) as behind, AsyncExitStack() as stack:
        process = await asyncio.to_thread(GatewayProcess, tmp_path / "log", "--server", behind.address)
        stack.enter_context(process)
        connector = aiohttp.TCPConnector(limit=0)
        http = await stack.enter_async_context(aiohttp.ClientSession(process.url, connector=connector))

        async def answers(path: str) -> int:
            async with http.get(path) as response:
                return response.status

        async def open_one() -> None:
            sockets.append(await http.ws_connect("/v1/audio/speech/stream"))
            await sockets[-1].send_json({"type": "session.config", "response_format": "pcm"})

        sockets: list[aiohttp.ClientWebSocketResponse] = []
        await eventually(lambda: answers("/ready"), 200)
        for _ in range(20):
            await asyncio.gather(*(open_one() for _ in range(50)))
        async with http.get("/metrics") as response:
            assert 'gateway_sockets{door="stream"} 1000.0' in await response.text()
        assert process.resident_mb < 200


async def test_the_page_and_its_files_are_served_and_load_nothing_of_others() -> None:
    async with gateway(FakeEngine()) as door:
        for path, kind in (("/", "html"), ("/page.js", "javascript"), ("/page.css", "css"), ("/docs", "html")):
            async with door.http.get(path) as response:
                assert response.status == 200 and response.content_type.endswith(kind)
                policy = response.headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'self'") and "script-src" not in policy, "no script in a page"
            assert "frame-ancestors 'none'" in policy, "no page of others shows this one, to have it clicked"


async def test_the_document_names_every_path_and_every_field() -> None:
    async with gateway(FakeEngine()) as door:
        async with door.http.get("/openapi.json") as response:
            api = await response.json()
        async with door.http.get("/docs") as response:
            page = await response.text()
    assert api["openapi"].startswith("3.1")
    served_paths = set()
    for route in make_app(GatewayConfig(), Servers((), Access.from_environment()), GatewayMetrics()).router.routes():
        if route.method != "HEAD":
            path = re.sub(r":[^}]+", "", str(route.resource.canonical if route.resource else ""))
            served_paths.add((route.method.lower(), path))
    pages = {("get", path) for path in ("/", "/{file}", "/docs", "/openapi.json", "/v1/")}
    assert served_paths - pages == {(method, path) for path, methods in api["paths"].items() for method in methods}
    fields = api["components"]["schemas"]["SpeechRequest"]["properties"]
    assert {"input", "voice", "ref_audio", "stream_format", "max_new_tokens"} <= set(fields)
    assert "/openapi.json" in page and "http" not in page.replace("HTTP", ""), "nothing comes from elsewhere"
    refs = set(re.findall(r'"#/components/schemas/(\w+)"', str(api).replace("'", '"')))
    assert refs <= set(api["components"]["schemas"])


async def test_a_server_of_several_processes_gets_several_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "processes_of_cores", lambda: 8)
    assert [serving.connections_of(number) for number in (1, 8, 100)] == [32, 4, 1]
    async with served(FakeEngine()) as server, CuttingProxy(int(server.address.rpartition(":")[2])) as proxy:
        target = f"127.0.0.1:{proxy.port}"
        async with Servers([target], Access(), 3) as servers:
            await eventually(lambda: [each.serving for each in servers.all], [True] * 3)
            assert proxy.num_connections == 3
        async with gateway_to(server, servers=(target,), processes=8) as door:
            async with door.http.get("/ready") as response:
                assert (await response.json())["servers"] == [{"target": target, "serving": True}]
            assert await door.speak(SAID) == (200, spoken(SAID, seed=1))


async def test_a_caller_who_comes_back_resumes_its_tls_session(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    files = certificates.files()
    trust = ssl.create_default_context(cafile=tmp_path / "ca.pem")
    tls = {"tls_certificate": files.certificate, "tls_key": files.key, "trust": trust}
    async with served(FakeEngine()) as server, gateway_to(server, **tls) as door:
        port = int(door.url.rpartition(":")[2])

        def visit(session: ssl.SSLSession | None) -> tuple[ssl.SSLSession | None, bool | None]:
            with (
                socket.create_connection(("127.0.0.1", port), timeout=60) as plain,
                trust.wrap_socket(plain, server_hostname="localhost", session=session) as secured,
            ):
                secured.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert secured.recv(100).startswith(b"HTTP/1.1 200")  # and the session before it
                return secured.session, secured.session_reused

        session, is_resumed = await asyncio.to_thread(visit, None)
        assert not is_resumed
        assert (await asyncio.to_thread(visit, session))[1]
