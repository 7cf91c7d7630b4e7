"""Three servers in processes of their own, on ports that they keep when they are started again."""

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.free_port import free_port

ROOT = Path(__file__).parents[2]
# The delay is two checks of deploy/envoy.yaml, and one to spare: until then new calls come, and one that comes while
# gRPC itself stops is ended by it with CANCELLED, which no proxy tries again.
SETTINGS = ("--max-sessions", "1000", "--drain-delay-s", "3", "--drain-grace-s", "60")


class Replica:
    def __init__(self, folder: Path, name: str, *settings: str) -> None:
        self.port, self.metrics_port = free_port(), free_port()
        self._log = folder / f"{name}.log"
        self._settings = settings
        self.start()

    def start(self) -> None:
        listen = ("--listen", f"127.0.0.1:{self.port}", "--metrics-listen", f"127.0.0.1:{self.metrics_port}")
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.deploy.replica", *listen, *SETTINGS, *self._settings],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
            )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if json.loads(line)["event"] == "serving":
                return
        raise AssertionError(f"the server did not start:\n{self._log.read_text()}")

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        return self.process.wait(60)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/ready", timeout=60):
                return True
        except urllib.error.HTTPError:
            return False

    def sample(self, name: str) -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=60) as response:
            families = text_string_to_metric_families(response.read().decode())
        return next(sample.value for family in families for sample in family.samples if sample.name == name)

    @property
    def sessions(self) -> int:
        return int(self.sample("tts_sessions"))
