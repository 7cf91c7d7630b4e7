"""A real gateway process on free ports."""

import os
import sys
from pathlib import Path

from tests.told_process import ToldProcess, run


class GatewayProcess(ToldProcess):
    """`python -m sonorant.gateway`."""

    def __init__(self, log: Path, *arguments: str, before: str = "") -> None:
        # One process, whatever the machine; arguments may say otherwise.
        own = ["--listen", "127.0.0.1:0", "--processes", "1"]
        command = [sys.executable, "-m", "sonorant.gateway", *own, *arguments]
        super().__init__(log, run(log, command, before=before))

    def _wait_until_ready(self) -> None:
        listening = self.wait_for("listening")
        self.url = f"http://127.0.0.1:{listening['port']}"
        self.wyoming_port = int(str(listening.get("wyoming_port") or 0))

    @property
    def resident_mb(self) -> float:
        num_pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return num_pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    @property
    def processor_s(self) -> float:
        """What it has used so far, in steps of 10 ms."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
