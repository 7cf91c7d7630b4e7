"""The client library and command against servers that are not open to everyone."""

import asyncio
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sonorant.client import Access, AccessDenied, AudioChunk, InvalidRequest, ServerUnavailable, SpeechClient
from sonorant.service.access.api_keys import new_key
from tests.service.certificates import Certificates
from tests.service.fake_engine import FakeEngine
from tests.service.harness import served


@pytest.fixture
def key(tmp_path: Path) -> str:
    key, table = new_key("agent")
    (tmp_path / "keys.toml").write_text(table)
    return key


async def test_every_kind_of_call_carries_the_key(key: str, tmp_path: Path) -> None:
    async with served(FakeEngine(), api_keys=tmp_path / "keys.toml", open_services=("health",)) as server:
        async with SpeechClient(server.address, Access(api_key=key)) as client:
            assert await client.health() == "SERVING"
            assert len(await client.voices()) == 2
            assert (await client.synthesize("Hello")).audio
            with pytest.raises(InvalidRequest, match="keeps no voices"):
                await client.create_voice(reference=b"RIFF")
            assert [part async for part in client.stream("Hello") if isinstance(part, AudioChunk)]
            async with client.speak() as session:
                await session.send_text("Hello")
                await session.finish()
                assert [event async for event in session if isinstance(event.payload, AudioChunk)]
        for access in (Access(), Access(api_key="another")):
            async with SpeechClient(server.address, access) as client:
                for attempt in (client.capabilities(), client.speak().__aenter__()):
                    with pytest.raises(AccessDenied, match="API key"):
                        await attempt


async def test_an_error_for_want_of_tls_says_how_to_turn_it_on(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)

    async def refused(address: str, access: Access) -> str:
        async with SpeechClient(address, access) as client:
            with pytest.raises(ServerUnavailable) as error:
                await client.voices()
        return str(error.value)

    async with served(FakeEngine(), certificates.of_client(), tls=certificates.files()) as server:
        assert "it was stopped, or it needs TLS" in await refused(server.address, Access())
        assert "no known authority has signed its certificate" in await refused(server.address, Access(tls=True))
        certificates.issue(not_after=datetime(2020, 1, 1, tzinfo=UTC))
        assert "the server needs a new certificate" in await refused(server.address, Access(ca=tmp_path / "ca.pem"))
        certificates.issue("other.example")
        assert "its certificate is for other names" in await refused(server.address, Access(ca=tmp_path / "ca.pem"))
    assert "there is no host of this name" in await refused("nowhere.invalid:50051", Access())
    async with served(FakeEngine()) as server:
        assert "it does not use TLS" in await refused(server.address, Access(ca=tmp_path / "ca.pem"))
        as_text = Access(ca=str(tmp_path / "ca.pem"))  # as most people write a path
        assert "it does not use TLS" in await refused(server.address, as_text)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "dns:///localhost", "ipv4:127.0.0.1"])
async def test_a_server_on_this_machine_is_not_looked_for_behind_a_proxy(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(FakeEngine()) as server:
        monkeypatch.delenv("no_proxy")
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # where nobody listens
        async with SpeechClient(f"{host}:{server.address.rpartition(':')[2]}") as client:
            assert await client.health() == "SERVING"


async def test_a_proxy_that_refuses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as proxy:
        monkeypatch.delenv("no_proxy")
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}")
        async with SpeechClient("speech.invalid:50051") as client:
            with pytest.raises(ServerUnavailable, match="the proxy in http_proxy refused this; if the server is in"):
                await client.voices()


def test_settings_that_grpc_would_crash_on_or_not_explain_are_refused(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    certificates.authority.issue_cert("client").cert_chain_pems[0].write_to_path(tmp_path / "client.pem")
    certificates.authority.issue_cert("other").private_key_pem.write_to_path(tmp_path / "other.key")
    (tmp_path / "text").write_text("no PEM, größtenteils", encoding="utf-8")
    ca, pem, key, text = (tmp_path / name for name in ("ca.pem", "client.pem", "other.key", "text"))
    for access, says in (
        (Access(certificate=pem), "belong together"),
        (Access(key=key), "belong together"),
        (Access(certificate=pem, key=key), "are not a certificate and its key"),
        (Access(certificate=text, key=text), "are not a certificate and its key"),
        (Access(ca=key), "has no certificate in PEM"),
        (Access(ca=text), "has no certificate in PEM"),
        (Access(ca=Path(os.devnull)), "has no certificate in PEM"),
        (Access(api_key="key\n"), "the API key has a line break"),
        (Access(api_key="schlüssel", ca=ca), "the API key has a line break"),
    ):
        with pytest.raises(ValueError, match=says):
            SpeechClient("127.0.0.1:1", access)


def test_tls_can_be_switched_off() -> None:
    assert [Access.from_environment({"SONORANT_CLIENT_TLS": each}).tls for each in ("1", "true", "0", "False", "")] == [
        *(True, True, False, False, False)
    ]


async def test_mutual_tls_and_the_command(key: str, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    theirs = certificates.authority.issue_cert("client")
    theirs.private_key_pem.write_to_path(tmp_path / "client.key")
    theirs.cert_chain_pems[0].write_to_path(tmp_path / "client.pem")
    files = {"CA": "ca.pem", "CERTIFICATE": "client.pem", "KEY": "client.key"}
    environment = {f"SONORANT_CLIENT_{name}": str(tmp_path / file) for name, file in files.items()}
    environment["SONORANT_CLIENT_API_KEY"] = key
    credentials = certificates.of_client(mutual=True)
    settings = {"tls": certificates.files(mutual=True), "api_keys": tmp_path / "keys.toml"}
    async with served(FakeEngine(), credentials, **settings) as server:
        async with SpeechClient(server.address, Access.from_environment(environment)) as client:
            assert (await client.synthesize("Hello")).audio
        async with SpeechClient(server.address, Access(api_key=key, ca=tmp_path / "ca.pem")) as client:
            with pytest.raises(ServerUnavailable):
                await client.voices()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sonorant.cli", "voices", "--server", server.address),
            env={**os.environ, **environment},
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()
        assert b"ada" in output
