"""Let stock clients judge a gateway: `python -m tests.gateway.stock.run [ENVIRONMENT...]`, or `make test-doors`.

Each folder here with a requirements.txt becomes an environment of its own, made anew only when its requirements change.
"""

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from uv import find_uv_bin

from tests.e2e.server_process import ServerProcess
from tests.gateway.gateway_process import GatewayProcess
from tests.service.keys import ADA, BOB, table

HERE = Path(__file__).parent
ENVIRONMENTS = Path(sys.prefix) / "stock"


def python_of(folder: Path) -> Path:
    """The interpreter of the folder's environment."""
    requirements = folder / "requirements.txt"
    made_with = hashlib.sha256(requirements.read_bytes()).hexdigest()
    environment = ENVIRONMENTS / folder.name
    stamp = environment / "made-with"
    ENVIRONMENTS.mkdir(exist_ok=True)
    with (ENVIRONMENTS / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # CI has two processes with the same environment
        if not stamp.exists() or stamp.read_text() != made_with:
            print(f"making the environment {folder.name}", flush=True)
            uv = find_uv_bin()
            subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, environment], check=True)
            into = ("--python", environment / "bin" / "python")
            subprocess.run([uv, "pip", "install", "--quiet", *into, "--requirement", requirements], check=True)
            stamp.write_text(made_with)
    return environment / "bin" / "python"


def wait_until_ready(url: str) -> None:
    for _ in range(600):
        try:
            urllib.request.urlopen(f"{url}/ready").close()
            return
        except urllib.error.HTTPError:
            time.sleep(0.1)
    raise AssertionError("the gateway is not ready")


def main(names: list[str]) -> int:
    folders = [
        path.parent for path in sorted(HERE.glob("*/requirements.txt")) if path.parent.name in names or not names
    ]
    interpreters = {folder: python_of(folder) for folder in folders}
    with tempfile.TemporaryDirectory() as temporary:
        scratch = Path(temporary)
        (scratch / "keys.toml").write_text(table("ada", ADA) + table("bob", BOB, "max_sessions = 1"))
        models = ("--model", "builtin_voice", "--model", "builtin_base", "--voices-dir", str(scratch / "voices"))
        wyoming = ("--wyoming-listen", "127.0.0.1:0", "--wyoming-key", ADA)
        with (
            ServerProcess(scratch / "server", "--api-keys", str(scratch / "keys.toml"), *models) as server,
            GatewayProcess(scratch / "gateway", "--server", server.address, *wyoming) as gateway,
        ):
            wait_until_ready(gateway.url)
            environment = {
                **os.environ,
                "SONORANT_GATEWAY_URL": gateway.url,
                "SONORANT_GATEWAY_KEY": ADA,
                "SONORANT_GATEWAY_NARROW_KEY": BOB,
                "SONORANT_GATEWAY_WYOMING_PORT": str(gateway.wyoming_port),
            }
            environment.pop("PYTHONPATH", None)  # they know nothing of us
            failed = 0
            for folder, python in interpreters.items():
                command = [python, "-m", "pytest", "-q", "-c", HERE / "pytest.ini", "--rootdir", HERE, folder]
                failed |= subprocess.run(command, env=environment).returncode
            if failed:
                for process in (server, gateway):
                    lines = [line for line in process.log.splitlines() if '"level": "info"' not in line]
                    print(*lines, sep="\n", file=sys.stderr)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
