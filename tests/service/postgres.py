"""A PostgreSQL of one's own: a cluster in a folder, reached by a socket in it, run by a user who is not root."""

import os
import shutil
import subprocess
from pathlib import Path

import psycopg
import pytest

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))
NOBODY = "nobody"
# Not subprocess.run(user=...): it forks where it otherwise uses vfork, so gRPC's fork handlers run in the child, which
# ends it by SIGSEGV now and then if other threads are in gRPC.
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", "--clear-groups") if os.geteuid() == 0 else ()
SETTINGS = "-c listen_addresses= -c fsync=off -c max_connections=60 -c shared_buffers=16MB"


def require() -> Path:
    if not PROGRAMS:
        pytest.skip("PostgreSQL's server is not installed (Debian: postgresql)")
    return PROGRAMS[-1]


class Cluster:
    def __init__(self, folder: Path) -> None:
        self._programs = require()
        self._folder = folder
        # Its programs refuse to be run by root.
        if os.geteuid() == 0:
            shutil.chown(folder, NOBODY)
        self._run("initdb", "--pgdata", folder / "data", "--auth", "trust", "--username", "sonorant", "--no-sync")
        self.start()

    def start(self) -> None:
        options = f"{SETTINGS} -k {self._folder}"
        self._run("pg_ctl", "start", "--wait", "--pgdata", self._folder / "data", "--options", options)

    def stop(self) -> None:
        """As an operator does who is in a hurry: connections end at once."""
        self._run("pg_ctl", "stop", "--wait", "--mode", "immediate", "--pgdata", self._folder / "data")

    def database(self, name: str) -> str:
        """URL of a new one."""
        with psycopg.connect(self._url("postgres"), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}" TEMPLATE template0')  # type: ignore[call-overload]
        return self._url(name)

    def _url(self, name: str) -> str:
        return f"postgresql://sonorant@/{name}?host={self._folder}"

    def _run(self, program: str, *arguments: str | Path) -> None:
        log = self._folder / "log"
        with log.open("ab") as output:
            done = subprocess.run(
                [*AS_NOBODY, self._programs / program, *arguments],
                cwd=self._folder,
                stdout=output,
                stderr=output,
                env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
            )
        assert done.returncode == 0, f"{program} {arguments[0]} ended with {done.returncode}:\n{log.read_text()}"
