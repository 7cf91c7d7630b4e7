import contextlib
import os
import resource

import numpy as np
import pytest

from sonorant.engine.encoder.limits import memory_limit, silent_stderr
from sonorant.engine.encoder.recording import read_upload
from sonorant.engine.errors import InvalidRecording
from tests.engine.encoder.recordings import spoken
from tests.open_files import open_files


def test_memory_beyond_the_limit_is_refused_and_comes_back() -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with memory_limit(64 * 1024 * 1024):
        np.zeros(16 * 1024 * 1024, np.uint8)
        with pytest.raises(MemoryError):
            np.zeros(512 * 1024 * 1024, np.uint8)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    np.zeros(512 * 1024 * 1024, np.uint8)


def test_nothing_of_an_upload_reaches_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    damaged = bytearray(spoken(kind="MP3"))
    damaged[2000:4000] = b"\xff" * 2000

    def read() -> None:
        with contextlib.suppress(InvalidRecording):
            read_upload(bytes(damaged), 24000)

    read()
    assert capfd.readouterr().err != ""
    before = open_files()
    with silent_stderr():
        read()
    assert capfd.readouterr().err == ""
    os.write(2, b"heard again")
    assert capfd.readouterr().err == "heard again"
    assert not open_files() - before
