"""The two distributions as people get them: built as wheels and sdists, installed into environments of their own."""

import os
import platform
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
from uv import find_uv_bin

from sonorant.engine.cpu.library import library
from tests.e2e.server_process import ServerProcess

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
FOLDERS = {"sonorant": ROOT / "clients", "sonorant_server": ROOT}
MAX_CLIENT_BYTES = 30 * 1024 * 1024
MAX_IMPORT_S = 0.3
# Of the C functions: a wheel is for all CPUs, so none may fail to compile.
BUILDS = {"x86_64": {"any", "avx2", "avxvnni", "avx512", "vnni"}, "aarch64": {"any", "dotprod", "i8mm"}}
NOT_FOR_CLIENTS = {"numpy", "torch", "transformers", "safetensors", "tokenizers", "prometheus_client"}
TYPED = """
from sonorant.client import SpeechClient

async def f(client: SpeechClient) -> None:
    reveal_type(await client.health())
    await client.health(1, 2, 3, 4)
"""
# Nothing of the working tree is found but by these tests, which run its server.
NOT_CLEAN = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")
CLEAN = {name: value for name, value in os.environ.items() if name not in NOT_CLEAN}
# Compiles without optimizing, which would take half a minute. `make setup` does both.
QUICK_CC = """sh -c 'exec cc "$@" -O0' cc"""


def run(*command: str | Path, cwd: Path, **more: str) -> str:
    result = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=CLEAN | more, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result.stdout


class Environment:
    """A virtual environment with nothing in it, not even pip; uv, of the one that runs this test, installs into it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        venv.create(folder)
        self.python = folder / "bin" / "python"
        self.site = Path(self("-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())

    def __call__(self, *arguments: str | Path) -> str:
        return run(self.python, *arguments, cwd=self.folder)

    def command(self, name: str, *arguments: str | Path) -> str:
        return run(self.folder / "bin" / name, *arguments, cwd=self.folder)

    def pip(self, *arguments: str | Path) -> str:
        return run(find_uv_bin(), "pip", *arguments, "--python", self.python, cwd=self.folder)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each made of its sdist, which is made of the working tree."""
    return {name: _wheel(folder, tmp_path_factory.mktemp(name)) for name, folder in FOLDERS.items()}


def _wheel(source: Path, out: Path) -> Path:
    run(sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", out, cwd=source)
    (sdist,) = out.glob("*.tar.gz")
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")
    run(*pip, "--wheel-dir", out, sdist, cwd=out, CC=QUICK_CC)
    (wheel,) = out.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def client(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    environment = Environment(tmp_path_factory.mktemp("client"))
    environment.pip("install", "--quiet", "--constraint", ROOT / "constraints.txt", wheels["sonorant"])
    return environment


@pytest.mark.rare
def test_the_client_is_small_and_quick_to_import(client: Environment) -> None:
    assert not NOT_FOR_CLIENTS & {path.name for path in client.site.iterdir()}
    size = sum(file.stat().st_size for file in client.site.rglob("*") if file.is_file() and file.suffix != ".pyc")
    assert size <= MAX_CLIENT_BYTES, f"{size / 2**20:.1f} MiB"
    timed = "import time; t = time.process_time(); import sonorant.client; print(time.process_time() - t)"
    assert min(float(client("-c", timed)) for _ in range(3)) < MAX_IMPORT_S, "the first one compiles"


@pytest.mark.rare
def test_the_client_has_types(client: Environment, tmp_path: Path) -> None:
    (tmp_path / "caller.py").write_text(TYPED)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--python-executable", client.python, "--cache-dir", os.devnull, "caller.py"],
        cwd=tmp_path,
        env=CLEAN,
        capture_output=True,
        text=True,
        check=False,
    )
    assert 'Revealed type is "str"' in checked.stdout.replace("builtins.", ""), checked.stdout
    assert "Too many positional arguments" in checked.stdout or "Too many arguments" in checked.stdout


def test_the_server_serves_and_the_client_speaks_from_elsewhere(
    wheels: dict[str, Path], client: Environment, tmp_path: Path
) -> None:
    """The server's dependencies, of which torch is large, are those of the environment that runs this test."""
    environment = Environment(tmp_path / "server")
    environment.pip("install", "--quiet", "--no-deps", *wheels.values())
    # Behind its own packages; what is installed for editing there is not found in this way.
    (environment.site / "borrowed.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    shown = environment.pip("show", "--files", "sonorant-server").partition("Files:\n")[2]
    tops = {line.strip().split("/")[0] for line in shown.splitlines()}
    assert {top for top in tops if not top.endswith(".dist-info") and top != ".."} == {"sonorant"}
    found = environment("-c", "import sonorant.service as s, sonorant.engine as e; print(s.__file__, e.__file__)")
    assert all(path.startswith(str(environment.folder)) for path in found.split())
    with ServerProcess(tmp_path / "log", "--device", "cpu", python=environment.python, environment=CLEAN) as server:
        wav = tmp_path / "hello.wav"
        client.command("sonorant", "say", "Hello.", "--server", server.address, "--wav", wav)
        assert client.command("sonorant", "health", "--server", server.address) == "SERVING\n"
    assert wav.stat().st_size > 24_000  # half a second


def test_the_servers_wheel_has_every_file_but_the_training(wheels: dict[str, Path]) -> None:
    tracked = run("git", "ls-files", "service/sonorant", "engine/sonorant", cwd=ROOT).split()
    wanted = {path.partition("/")[2] for path in tracked if "/training/" not in path}
    with zipfile.ZipFile(wheels["sonorant_server"]) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
    compiled = {name for name in found if name.endswith(".so")}
    assert found - compiled == wanted
    expected = BUILDS.get(platform.machine(), {"any"}) if library() else set()
    assert compiled == {f"sonorant/engine/cpu/cpu-{build}.so" for build in expected}
