"""A real gateway process on free ports."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

START_TIMEOUT_S = 60.0


class GatewayProcess:
    """`python -m sonorant.gateway`; it goes when the context is left. Its stdout is JSON lines."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self._log = log
        with log.open("wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "sonorant.gateway", "--listen", "127.0.0.1:0", *arguments],
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                start_new_session=True,
            )
        try:
            listening = self.wait_for("listening")
        except BaseException:
            self.stop()
            raise
        self.url = f"http://127.0.0.1:{listening['port']}"
        self.wyoming_port = int(str(listening.get("wyoming_port") or 0))

    @property
    def log(self) -> str:
        return self._log.read_text()

    def wait_for(self, event: str) -> dict[str, object]:
        stdout: IO[str] | None = self.process.stdout
        assert stdout is not None
        for line in stdout:
            told: dict[str, object] = json.loads(line)
            if told["event"] == event:
                return told
        raise AssertionError(f"the gateway ended before it was {event}:\n{self.log}")

    def __enter__(self) -> "GatewayProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> int:
        """SIGTERM, as an orchestrator does; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(START_TIMEOUT_S)
        finally:
            self.process.kill()
            assert self.process.stdout is not None
            self.process.stdout.close()
