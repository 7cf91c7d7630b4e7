"""A process under test which tells what happens in JSON lines on its stdout."""

import json
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Self

from tests.warm_start import Started

STOP_TIMEOUT_S = 90.0


def run(
    log: Path, command: Sequence[str | Path], environment: Mapping[str, str] | None = None, before: str = ""
) -> "subprocess.Popen[str]":
    """Start a process whose stderr goes to a file, with the variables of this process, if there are no others.
    `before`: what a shell does first, such as `ulimit -n 256`."""
    if before:
        command = ["sh", "-c", f'{before} && exec "$@"', "sh", *command]
    with log.open("wb") as stderr:
        return subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True, start_new_session=True
        )


class ToldProcess:
    """Leaving the context stops it. Its log is its stderr."""

    def __init__(self, log: Path, process: "subprocess.Popen[str] | Started") -> None:
        self._log = log
        self.process = process
        try:
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def _wait_until_ready(self) -> None:
        raise NotImplementedError

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
        raise AssertionError(f"the process ended before it was {event}:\n{self.log}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> int:
        """SIGTERM, as an orchestrator does; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_TIMEOUT_S)
        finally:
            self.process.kill()
            assert self.process.stdout is not None
            self.process.stdout.close()
