"""How workers begin and end, as their parent and their log see it."""

import logging
import os
from multiprocessing.connection import Connection

import pytest

from sonorant.engine.errors import CheckpointError, EngineError
from sonorant.engine.ipc.channel import PeerGone
from sonorant.engine.ipc.worker import report_loaded, serve


def raising(error: Exception) -> None:
    raise error


def test_what_was_loaded_is_told_and_the_connection_closed(
    pipe: tuple[Connection, Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("CUDA_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("CUDA_MPS_CLIENT_PRIORITY", "1")
    assert report_loaded("talker", pipe[1], lambda: ("model", {"num_pages": 3})) == "model"
    assert pipe[0].recv() == ("ready", {"num_pages": 3, "CUDA_MPS_CLIENT_PRIORITY": "1"})
    with pytest.raises(EOFError):
        pipe[0].recv()


@pytest.mark.parametrize(
    ("error", "kind", "num_logged"),
    [
        (EngineError("no such device"), "failed", 0),
        (CheckpointError("no such device"), "unusable", 0),
        (ValueError("no such device"), "failed", 1),
    ],
)
def test_what_failed_is_told_and_logged_if_it_was_not_foreseen(
    pipe: tuple[Connection, Connection], caplog: pytest.LogCaptureFixture, error: Exception, kind: str, num_logged: int
) -> None:
    with pytest.raises(SystemExit) as exit:
        report_loaded("talker", pipe[1], lambda: raising(error))  # type: ignore[arg-type, return-value]
    assert exit.value.code == 1
    assert pipe[0].recv() == (kind, "talker: no such device")
    assert len(caplog.records) == num_logged


def test_a_loop_ends_in_peace_with_its_neighbours_and_in_error_otherwise(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    serve("talker", lambda: None, lambda: 0)
    assert not caplog.records
    serve("talker", lambda: raising(PeerGone()), lambda: 0)
    assert "the other end of a ring is gone, talker stops" in caplog.text
    with pytest.raises(SystemExit) as exit:
        serve("talker", lambda: raising(ValueError("bug")), lambda: 3)
    assert exit.value.code == 1
    assert "talker stopped by an error with 3 streams open" in caplog.text
