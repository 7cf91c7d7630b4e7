"""Checks that C can be compiled here: on CUDA, Triton compiles its driver module and launchers when a server starts."""

import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Mapping
from pathlib import Path

TIMEOUT_S = 60.0
# Python's headers include those of the C library.
_SOURCE = "#include <Python.h>\nint answer(void) { return 42; }\n"


class CannotCompile(Exception):
    """C cannot be compiled here. The message says what is missing and how to install it."""


def check_compiler(environment: Mapping[str, str], include: Path | None = None) -> str:
    """Compile a small file and return the compiler. Raises CannotCompile.

    `include`: the folder with Python's headers; None: where this Python has them.
    """
    path = environment.get("PATH", "")
    compiler = environment.get("CC") or shutil.which("gcc", path=path) or shutil.which("clang", path=path)
    if not compiler:
        raise CannotCompile(
            "there is no C compiler, which Triton needs for CUDA; install gcc (Debian: gcc libc6-dev), or set CC"
        )
    include = include or Path(sysconfig.get_path("include"))
    if not (include / "Python.h").is_file():
        raise CannotCompile(f"no {include}/Python.h, which Triton needs for CUDA; install it (Debian: python3-dev)")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "check.c"
        source.write_text(_SOURCE)
        command = [compiler, str(source), "-shared", "-fPIC", "-o", str(source.with_suffix(".so")), f"-I{include}"]
        try:
            result = subprocess.run(
                command, env=dict(environment), capture_output=True, check=False, text=True, timeout=TIMEOUT_S
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CannotCompile(f"{compiler} does not run: {error}; install gcc, or set CC to a C compiler") from error
    if result.returncode:
        said = next((line for line in result.stderr.splitlines() if "error" in line), result.stderr.strip()[-200:])
        raise CannotCompile(f"{compiler} cannot compile ({said}); on Debian, install gcc, libc6-dev and python3-dev")
    return compiler
