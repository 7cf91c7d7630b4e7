"""Runs a `sonorant-server` as a child process on a free port: for the demo, the benchmark and tests."""

import asyncio
import importlib.util
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import IO

from sonorant.client.errors import SpeechError

STOP_TIMEOUT_S = 20.0

# Code for `python -c`: the same as `python -m sonorant.service`, but Linux sends it a SIGTERM when its parent dies,
# even by kill -9.
SERVICE = (
    "import ctypes, runpy, signal; ctypes.CDLL(None).prctl(1, signal.SIGTERM); "  # 1: PR_SET_PDEATHSIG
    "runpy.run_module('sonorant.service', run_name='__main__', alter_sys=True)"
)


class ServerFailed(Exception):
    """The server is not installed here, or it ended before it was ready; the message then has the end of its log."""


@asynccontextmanager
async def local_server(arguments: Sequence[str] = (), *, start_timeout_s: float = 600.0) -> AsyncIterator[str]:
    """Start a server and yield its HOST:PORT once it is SERVING; it is stopped when the context is left, in any way.
    Raises ServerFailed."""
    _check_installed()
    command = [sys.executable, "-c", SERVICE, "--listen", "127.0.0.1:0", *arguments]
    with tempfile.TemporaryFile() as log:
        # In a session of its own, so that Ctrl-C reaches this process alone and the server is stopped in order.
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
        try:
            yield f"127.0.0.1:{await _wait_until_serving(process, start_timeout_s, log)}"
        except SpeechError:
            print(*_log_tail(log), sep="\n", file=sys.stderr)  # the log is not kept anywhere else
            raise
        finally:
            await _stop(process)


async def run_server_command(*arguments: str) -> int:
    """Run `sonorant-server` with these arguments to its end, on our own stdout and stderr; return its exit status.
    Raises ServerFailed if the server is not installed."""
    _check_installed()
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "sonorant.service", *arguments)
    return await process.wait()


def _check_installed() -> None:
    """Raise ServerFailed if the server is not installed, because the client is often installed without it."""
    if importlib.util.find_spec("sonorant.service") is None:
        raise ServerFailed("the server is not installed here, only the client: pip install sonorant-server")


async def _wait_until_serving(process: asyncio.subprocess.Process, timeout_s: float, log: IO[bytes]) -> int:
    """Return the port that the server has picked, once it is SERVING. The server prints both on stdout."""
    assert process.stdout is not None
    try:
        async with asyncio.timeout(timeout_s):
            async for line in process.stdout:
                message = json.loads(line)
                if message["event"] == "serving":
                    port: int = message["port"]
                    return port
            status = await process.wait()
    except TimeoutError:
        raise ServerFailed(f"the server is not serving after {timeout_s:g} s") from None
    raise ServerFailed("\n".join([f"the server ended with status {status}:", *_log_tail(log)]))


def _log_tail(log: IO[bytes]) -> list[str]:
    log.seek(0)
    return log.read().decode(errors="replace").strip().splitlines()[-20:]


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)
    except TimeoutError:
        process.kill()
        await process.wait()
