"""Runs a `sonorant-server` as a child process on a free port: for the demo, the benchmark and tests."""

import asyncio
import importlib.util
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import IO

from sonorant.client.client import SpeechClient
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
    target = f"127.0.0.1:{_free_port()}"
    command = [sys.executable, "-c", SERVICE, "--listen", target, *arguments]
    with tempfile.TemporaryFile() as log:
        # In a session of its own, so that Ctrl-C reaches this process alone and the server is stopped in order.
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        try:
            await _wait_until_serving(process, target, start_timeout_s, log)
            yield target
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
    """The client is a distribution of its own and is often installed without the server. Raises ServerFailed then."""
    if importlib.util.find_spec("sonorant.service") is None:
        raise ServerFailed("the server is not installed here, only the client: pip install sonorant-server")


async def _wait_until_serving(
    process: asyncio.subprocess.Process, target: str, timeout_s: float, log: IO[bytes]
) -> None:
    async with SpeechClient(target) as client:
        serving = asyncio.create_task(client.wait_until_serving(timeout_s))
        gone = asyncio.create_task(process.wait())
        try:
            await asyncio.wait((serving, gone), return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                raise ServerFailed("\n".join([f"the server ended with status {process.returncode}:", *_log_tail(log)]))
            await serving
        finally:
            serving.cancel()
            gone.cancel()
            await asyncio.wait((serving, gone))


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


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def run_until_signal(main: Coroutine[None, None, int]) -> int:
    """asyncio.run() for programs that own a server: after SIGTERM, too, their `finally` blocks run."""

    async def cancelled_by_sigterm() -> int:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await main

    try:
        return asyncio.run(cancelled_by_sigterm())
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130
