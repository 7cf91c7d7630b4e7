"""Runs a CUDA MPS daemon, so that several workers compute on one GPU at the same time instead of in turns.

A separate process, the keeper, starts the daemon. When this process is gone, for whatever reason, the keeper makes the
daemon quit and removes its directory. Workers find the daemon by the directory; see `EngineConfig.mps_pipe_directory`.
"""

import asyncio
import ctypes
import logging
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from multiprocessing.connection import Connection
from pathlib import Path

from sonorant.engine.card.driver import sees_gpu
from sonorant.engine.config import EngineConfig, MpsMode
from sonorant.engine.errors import EngineError
from sonorant.engine.ipc.child import Child
from sonorant.engine.workers.mps_plan import PROGRAM, Machine, Sharing, plan_mps
from sonorant.logs import start

log = logging.getLogger(__name__)

START_TIMEOUT_S = 20.0
ANSWER_TIMEOUT_S = 2.0
CLIENT_TIMEOUT_S = 30.0  # for the first client, for which the daemon starts its server
QUIT_TIMEOUT_S = 5.0
_PR_SET_PDEATHSIG = 1

# A client of the daemon: prints CUDA's error code, 0 for no error.
_CLIENT = "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"


@asynccontextmanager
async def mps_for(mode: MpsMode, configs: Sequence[EngineConfig], machine: Machine) -> AsyncIterator[Path | None]:
    """Start a daemon if `plan_mps` says so, and yield its pipe directory; else yield None.

    If no daemon can be started, raises EngineError with `mode` "true", and logs the reason with "auto".
    """
    plan = plan_mps(mode, configs, machine)
    async with AsyncExitStack() as stack:
        folder, obstacle = None, plan.obstacle
        if plan.sharing is Sharing.OWN_DAEMON:
            try:
                folder = await stack.enter_async_context(mps_daemon())
            except (EngineError, OSError) as error:
                obstacle = f"{error}; --mps false runs without MPS"
        elif plan.sharing is Sharing.THEIR_DAEMON:
            log.info("the workers use the MPS daemon that is running")
        if obstacle and mode == "true":
            raise EngineError(f"no MPS: {obstacle}")
        if obstacle:
            log.warning("no MPS, talker and codec take turns on their GPU: %s", obstacle)
        yield folder


def this_machine() -> Machine:
    """Look at this machine. Blocks shortly, while a running daemon is asked for an answer."""
    program = shutil.which(PROGRAM)
    directory = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))
    return Machine(
        has_gpu=sees_gpu(),
        program=program,
        has_daemon=program is not None and mps_answers(directory),
        visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
    )


@asynccontextmanager
async def mps_daemon() -> AsyncIterator[Path]:
    """Run a daemon and yield its pipe directory. Raises EngineError or OSError if it cannot be started."""
    with closing(Child.spawn("mps", keep, ())) as keeper:
        try:
            folder = await keeper.loaded()
            log.info("MPS daemon started in %s", folder)
            yield Path(folder)
        finally:
            keeper.ready.close()  # tells the keeper to stop
            leaving = asyncio.create_task(_until_dead(keeper))
            try:
                await asyncio.shield(leaving)
            except asyncio.CancelledError:  # wait anyway, or the daemon and its folder would be left behind
                await asyncio.wait([leaving])
                raise


async def _until_dead(keeper: Child) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(3 * QUIT_TIMEOUT_S):
            await keeper.dead()


def keep(ready: Connection) -> None:
    """Entry of the keeper. Sends ("ready", directory) or ("failed", message) on `ready`; runs until that is closed."""
    folder = Path(tempfile.mkdtemp(prefix="sonorant-mps-"))
    environment = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(folder), "CUDA_MPS_LOG_DIRECTORY": str(folder)}
    try:
        with (folder / "daemon.log").open("wb") as said:  # a dozen lines for each client, not worth our log
            daemon = subprocess.Popen(
                [PROGRAM, "-f"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # so that Ctrl-C does not reach it
                preexec_fn=_end_with_us,
            )
    except OSError as error:
        shutil.rmtree(folder)
        ready.send(("failed", f"cannot start {PROGRAM} ({error.strerror}); it comes with the NVIDIA driver"))
        return
    try:
        message = _wait_for_it(daemon, folder)
        start.phase("daemon")
        message = message or _refusal(environment)
        start.phase("first client")
        if message:
            ready.send(("failed", message))
            return
        ready.send(("ready", str(folder)))
        start.end()
        _stay(daemon, ready)
    except OSError:
        pass  # the process that wanted the daemon is gone already
    finally:
        _quit(daemon, environment)
        shutil.rmtree(folder, ignore_errors=True)


def _end_with_us() -> None:
    """Have the daemon get SIGTERM if its keeper is killed. Runs in the child before it becomes the daemon.

    The keeper ignores SIGTERM, which the daemon would inherit.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def mps_answers(pipe_directory: Path) -> bool:
    """Whether a daemon is running. Its own program asks it, since the files in its directory differ between drivers."""
    try:
        asked = subprocess.run(
            [PROGRAM],
            env={**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(pipe_directory)},
            input=b"get_server_list\n",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=ANSWER_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0


def _wait_for_it(daemon: "subprocess.Popen[bytes]", folder: Path) -> str:
    """Wait until the daemon answers and return ""; or return what went wrong."""
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while daemon.poll() is None:
        if mps_answers(folder):
            return ""
        if time.monotonic() > deadline_s:
            return f"{PROGRAM} did not answer within {START_TIMEOUT_S:g} s"
        time.sleep(0.05)
    words = [line for log_file in folder.glob("*.log") for line in log_file.read_text(errors="replace").splitlines()]
    return f"{PROGRAM} ended with status {daemon.returncode}: {' | '.join(words[-3:]) or 'it wrote no log'}"


def _refusal(environment: dict[str, str]) -> str:
    """Return why the daemon refuses a first client, or "": a daemon that answers may still be unable to serve a GPU."""
    try:
        client = subprocess.run(
            [sys.executable, "-c", _CLIENT],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=CLIENT_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"the MPS daemon did not serve a first client within {CLIENT_TIMEOUT_S:g} s"
    code = client.stdout.decode().strip() or "0"  # no output if there is no driver, which the workers will report
    return "" if code == "0" else f"the MPS daemon refused a first client, with CUDA error {code}"


def _stay(daemon: "subprocess.Popen[bytes]", ready: Connection) -> None:
    """Wait until `ready` is closed. If the daemon ends before, log it: the server continues, its workers take turns."""
    poll = select.poll()
    poll.register(ready.fileno(), 0)  # errors are reported without asking for them
    pidfd = os.pidfd_open(daemon.pid)
    try:
        poll.register(pidfd, select.POLLIN)
        if any(fd == pidfd for fd, _ in poll.poll()):
            log.error("the MPS daemon ended with status %d; restart the server to have one again", daemon.wait())
            poll.unregister(pidfd)
            poll.poll()
    finally:
        os.close(pidfd)


def _quit(daemon: "subprocess.Popen[bytes]", environment: dict[str, str]) -> None:
    """End the daemon: ask it to quit, and kill it if it does not. Its clients, the workers, are gone or about to go."""
    if daemon.poll() is None:
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                [PROGRAM],
                env=environment,
                input=f"quit -t {QUIT_TIMEOUT_S:.0f}\n".encode(),
                stdout=subprocess.DEVNULL,
                timeout=QUIT_TIMEOUT_S + 1,
                check=False,
            )
        with suppress(subprocess.TimeoutExpired):
            daemon.wait(QUIT_TIMEOUT_S)
            return
        daemon.kill()
    daemon.wait()
