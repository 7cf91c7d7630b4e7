"""Which build of the C functions a machine uses."""

import os
import shlex
import shutil
from pathlib import Path

import pytest
import torch
from numpy.linalg import _umath_linalg

from sonorant.engine.cpu import library as module
from sonorant.engine.cpu.library import BUILDS, builds, chosen, load
from sonorant.engine.errors import EngineError


@pytest.mark.parametrize(
    ("level", "flags", "names"),
    [
        ("AVX512", {"avx512_vnni", "avx_vnni"}, ["vnni", "avx512", "avxvnni", "avx2", "any"]),
        ("AVX512", set(), ["avx512", "avx2", "any"]),
        ("AVX2", {"avx_vnni"}, ["avxvnni", "avx2", "any"]),
        ("AVX2", {"avx512_vnni"}, ["avx2", "any"]),
        ("DEFAULT", set(), ["any"]),
        ("DEFAULT", {"fp", "asimd"}, ["any"]),
        ("DEFAULT", {"asimd", "asimddp"}, ["dotprod", "any"]),
        ("SVE256", {"asimddp", "i8mm"}, ["i8mm", "dotprod", "any"]),
    ],
)
def test_the_best_build_that_the_machine_can_run_comes_first(
    level: str, flags: set[str], names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*(each[0] for each in BUILDS), "any"):
        (tmp_path / f"cpu-{name}.so").touch()
    monkeypatch.setattr(module, "__file__", str(tmp_path / "library.py"))
    monkeypatch.setattr(module, "_flags", lambda: flags)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: level)
    assert list(builds()) == names


@pytest.mark.skipif(shutil.which(shlex.split(os.environ.get("CC", "cc"))[0]) is None, reason="no C compiler is here")
def test_a_machine_with_a_compiler_has_a_build() -> None:
    """Without one, all other tests of the C functions are skipped, even if a mistake in them is the reason."""
    assert builds(), "engine/build_cpu.py could not compile the C functions"


@pytest.mark.skipif(not builds(), reason="installed without a C compiler")
def test_a_variable_names_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SONORANT_CPU", "any")
    assert chosen() == builds()["any"]
    monkeypatch.setenv("SONORANT_CPU", "avx")
    with pytest.raises(EngineError, match=r"SONORANT_CPU is avx; .* any$"):
        chosen()


def test_a_build_of_another_version_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "cpu-any.so").touch()
    for path, why in ((tmp_path / "cpu-any.so", "too short"), (Path(_umath_linalg.__file__), "undefined symbol")):
        with pytest.raises(EngineError, match=rf"{why}.*; install sonorant-server again \(.*make setup\)$"):
            load(path)


@pytest.mark.skipif(not builds(), reason="installed without a C compiler")
def test_a_build_of_other_c_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SOURCES", Path(shutil.copytree(module.SOURCES, tmp_path / "c")))
    assert load(builds()["any"]).use_threads(1)
    with (tmp_path / "c" / "frame.c").open("a") as file:
        file.write("// as after an update\n")
    with pytest.raises(EngineError, match=r"compiled from other C files.*make setup"):
        load(builds()["any"])
