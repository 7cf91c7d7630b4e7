"""What the doctor says where Triton could not compile."""

import os
from pathlib import Path

import pytest

from sonorant.engine import BUILTIN_VOICE_DIR, EngineConfig
from sonorant.engine.tools.compiler import CannotCompile, check_compiler
from sonorant.engine.tools.doctor import Examined, Verdict, examine


def stand_in(folder: Path, script: str) -> str:
    """A compiler that does what the script says."""
    compiler = folder / "cc"
    compiler.write_text(f"#!/bin/sh\n{script}\n")
    compiler.chmod(0o755)
    return str(compiler)


@pytest.fixture
def headers(tmp_path: Path) -> Path:
    (tmp_path / "Python.h").touch()
    return tmp_path


def test_it_compiles_against_pythons_headers(headers: Path) -> None:
    compiler = stand_in(headers, 'grep -q Python.h "$1"')
    assert check_compiler({"CC": compiler, "PATH": os.environ["PATH"]}, headers) == compiler


def test_no_compiler(headers: Path) -> None:
    with pytest.raises(CannotCompile, match=r"no C compiler.*install gcc"):
        check_compiler({"PATH": str(headers)}, headers)


def test_no_headers(tmp_path: Path) -> None:
    with pytest.raises(CannotCompile, match=r"no .*Python\.h.*python3-dev"):
        check_compiler({"CC": "cc"}, tmp_path)


def test_a_compiler_that_fails_or_is_not_there(headers: Path) -> None:
    broken = stand_in(headers, "echo 'fatal error: limits.h: No such file' >&2; exit 1")
    with pytest.raises(CannotCompile, match=r"limits\.h.*libc6-dev"):
        check_compiler({"CC": broken}, headers)
    with pytest.raises(CannotCompile, match="does not run"):
        check_compiler({"CC": str(headers / "gone")}, headers)


def test_the_doctor_asks_for_it_on_cuda_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    found = {}
    for device in ("cpu", "cuda:0"):
        config = EngineConfig.of(BUILTIN_VOICE_DIR, talker_device=device, code2wav_device=device)
        found[device] = next(each for each in examine(Examined([config])) if each.subject == "compiler")
    assert found["cpu"].verdict == Verdict.PASS
    assert found["cuda:0"].verdict == Verdict.FAIL and "no C compiler" in found["cuda:0"].text
