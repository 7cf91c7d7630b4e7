"""systemd (Type=notify) hears that a server serves: once it does, and not before."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from sonorant.engine import EngineState
from tests.service.fake_engine import FakeEngine
from tests.service.harness import served


@pytest.fixture(params=["socket", "@abstract"])
def heard(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """What systemd listens at."""
    named = str(tmp_path / "socket") if request.param == "socket" else f"@{tmp_path}"
    monkeypatch.setenv("NOTIFY_SOCKET", named)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(named.replace("@", "\0"))
        sock.setblocking(False)
        yield sock


async def test_it_hears_once_the_server_serves(heard: socket.socket) -> None:
    engine = FakeEngine()
    engine.state = EngineState.STARTING
    async with served(engine) as server:
        with pytest.raises(BlockingIOError):
            heard.recv(100)
        engine.state = EngineState.READY
        engine.on_state(EngineState.READY)
        await server.wait_for_health(1)
        assert await asyncio.get_running_loop().sock_recv(heard, 100) == b"READY=1"


async def test_a_server_that_it_does_not_listen_to_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    async with served(FakeEngine()) as server:
        await server.wait_for_health(1)
    assert "cannot tell systemd that this server is ready" in caplog.text
