"""Covers: what the gateway's log says of a server that cannot be reached."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from sonorant.client import Access
from sonorant.gateway.upstream import servers
from tests.service.certificates import Certificates
from tests.service.fake_engine import FakeEngine
from tests.service.harness import eventually, served

PAST = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "SILENT_S", 0.1)


async def warned(address: str, access: Access, caplog: pytest.LogCaptureFixture) -> str:
    caplog.clear()
    told = f"the gateway keeps trying {address}: "
    async with servers.Servers([address], access):
        await eventually(lambda: [each for each in caplog.messages if each.startswith(told)] != [], True)
    return caplog.text


async def test_a_certificate_that_does_not_hold_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    certificates, known = Certificates(tmp_path), Access(ca=tmp_path / "ca.pem")
    async with served(FakeEngine(), certificates.of_client(), tls=certificates.files()) as server:
        assert "no known authority has signed" in await warned(server.address, Access(tls=True), caplog)
        assert "SONORANT_CLIENT_TLS=1" in await warned(server.address, Access(), caplog)
        certificates.issue(not_after=PAST)
        assert "the server needs a new certificate" in await warned(server.address, known, caplog)
        certificates.issue("other.example")
        assert "its certificate is for other names" in await warned(server.address, known, caplog)


async def test_a_server_without_tls_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async with served(FakeEngine()) as server:
        assert "it does not use TLS" in await warned(server.address, Access(tls=True), caplog)
