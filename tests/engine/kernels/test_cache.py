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
import logging, os, sys; logging.basicConfig()
from sonorant.engine.kernels.cuda_code import compiled
from sonorant.engine.kernels.talker.frame_attention import macros_of
for folder in sys.argv[1:]:
    os.environ["TRITON_CACHE_DIR"] = folder
    code = [compiled("talker/frame_attention.cu", macros_of(8, 16, False, False), "sm_90a") for _ in range(2)]
    assert code[0] == code[1] and code[0][:4] == b"\\x7fELF"
"""


@pytest.mark.rare
@pytest.mark.slow
def test_kernels_are_compiled_without_a_folder_for_them(tmp_path: Path) -> None:
    """A folder below a file is one that nobody, root included, can make or write to."""
    (tmp_path / "file").touch()
    folder, impossible = tmp_path / "folder", tmp_path / "file" / "folder"
    of_workers = EngineConfig(BUILTIN_VOICE_DIR).environment()
    environment = {**os.environ, **of_workers, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", COMPILES, str(folder), str(impossible)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert ended.stderr.count(f"compiled kernels cannot be kept in {impossible}") == 1, ended.stderr
    assert ended.stderr.count("compiled kernels cannot be kept in") == 1, ended.stderr
    (kept,) = tmp_path.rglob("*.cubin")  # what is kept for the process alone goes with it
    assert kept.is_relative_to(folder)
