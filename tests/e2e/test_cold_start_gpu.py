"""A first start compiles everything at once, before workers need it; nobody waits for the compiler later."""

import os
from pathlib import Path

import pytest

from sonorant.client.sync import SpeechClient
from tests.e2e.server_process import ServerProcess


@pytest.mark.gpu
def test_nothing_is_compiled_after_the_list_of_kernels_was(tmp_path: Path) -> None:
    """As every file of code is older than the note that all of the list is compiled."""
    folder = tmp_path / "kernels"
    settings = ("--load-format", "dummy", "--num-slots", "16")
    environment = {**os.environ, "TRITON_CACHE_DIR": str(folder), "CUDA_CACHE_PATH": str(tmp_path / "driver")}
    model = ("--model", "qwen3-tts-12hz-0.6b-customvoice")
    with (
        ServerProcess(tmp_path / "log", *model, *settings, environment=environment) as server,
        SpeechClient(server.address) as client,
    ):
        assert client.synthesize("It speaks.").audio
    (note,) = folder.glob("sonorant-*.json")
    code = [path for path in folder.rglob("*") if path.suffix in (".cubin", ".so")]
    assert code
    assert not [path for path in code if path.stat().st_mtime_ns > note.stat().st_mtime_ns]
