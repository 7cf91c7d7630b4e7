"""A cache folder that cannot be written to costs time, and nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton comes with the CUDA builds of torch, and with the extra `dev`")
pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC comes with the CUDA builds of torch, and with `dev`")

from sonorant.engine.checkpoint.folders import BUILTIN_VOICE_DIR
from sonorant.engine.config import EngineConfig

COMPILES = """
import logging; logging.basicConfig()
from sonorant.engine.kernels.cuda_code import compiled
from sonorant.engine.kernels.talker.frame_attention import macros_of
code = [compiled("talker/frame_attention.cu", macros_of(8, 16, False, False), "sm_90a") for _ in range(2)]
assert code[0] == code[1] and code[0][:4] == b"\\x7fELF"
"""


@pytest.mark.slow
@pytest.mark.parametrize("is_there", [True, False])
def test_kernels_are_compiled_without_a_folder_for_them(tmp_path: Path, is_there: bool) -> None:
    """A folder below a file is one that nobody, root included, can make or write to."""
    (tmp_path / "file").touch()
    folder = tmp_path / "folder" if is_there else tmp_path / "file" / "folder"
    of_workers = EngineConfig(BUILTIN_VOICE_DIR).environment()
    environment = {**os.environ, **of_workers, "TRITON_CACHE_DIR": str(folder), "TMPDIR": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-c", COMPILES], env=environment, capture_output=True, text=True, check=True
    )
    assert ended.stderr.count("compiled kernels cannot be kept in") == (0 if is_there else 1), ended.stderr
    assert len(list(tmp_path.rglob("*.cubin"))) == is_there, "what is kept for the process alone goes with it"
