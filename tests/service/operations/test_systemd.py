"""Covers: what systemd (Type=notify) hears of the server. tests/e2e/test_processes.py has when."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from sonorant.service.operations.systemd import tell_ready


@pytest.fixture(params=["socket", "@abstract"])
def heard(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """What systemd listens at."""
    named = str(tmp_path / "socket") if request.param == "socket" else f"@{tmp_path}"
    monkeypatch.setenv("NOTIFY_SOCKET", named)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(named.replace("@", "\0"))
        sock.setblocking(False)
        yield sock


def test_it_hears_that_the_server_is_ready(heard: socket.socket) -> None:
    tell_ready()
    assert heard.recv(100) == b"READY=1"


def test_nobody_is_told_where_systemd_does_not_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    tell_ready()


def test_a_socket_where_nobody_listens_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    tell_ready()
    assert "cannot tell systemd that this server is ready" in caplog.text
