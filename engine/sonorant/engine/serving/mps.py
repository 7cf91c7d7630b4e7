"""A CUDA MPS daemon of our own, so that several workers compute on one GPU at the same time instead of in turns.

A process of its own keeps it: when whoever asked for it is gone, however that happened, the daemon is told to quit and
its directory is removed. Workers find it by the directory; see `EngineConfig.mps_pipe_directory`.
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

from sonorant.engine.config import EngineConfig, MpsMode
from sonorant.engine.errors import EngineError
from sonorant.engine.ipc.child import Child
from sonorant.engine.serving.mps_plan import PROGRAM, Machine, Sharing, plan_mps

log = logging.getLogger(__name__)

START_TIMEOUT_S = 20.0
ANSWER_TIMEOUT_S = 2.0
CLIENT_TIMEOUT_S = 30.0  # for the first client, with whom the daemon starts its server
QUIT_TIMEOUT_S = 5.0
_PR_SET_PDEATHSIG = 1

# A client of the daemon: prints the number of CUDA's error, 0 for none.
_CLIENT = "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"


@asynccontextmanager
async def mps_for(mode: MpsMode, configs: Sequence[EngineConfig], machine: Machine) -> AsyncIterator[Path | None]:
    """Yields the pipe directory of a daemon of our own, where the plan has one; None where it has none.

    Raises EngineError if `mode` is "true" and there cannot be one. With "auto" a line of the log tells why.
    """
    plan = plan_mps(mode, configs, machine)
    async with AsyncExitStack() as stack:
        folder, obstacle = None, plan.obstacle
        if plan.sharing is Sharing.OWN_DAEMON:
            try:
                folder = await stack.enter_async_context(mps_daemon())
            except (EngineError, OSError) as error:
                obstacle = f"{error}; --mps false does without"
        elif plan.sharing is Sharing.THEIR_DAEMON:
            log.info("the workers use the MPS daemon that is running")
        if obstacle and mode == "true":
            raise EngineError(f"no MPS: {obstacle}")
        if obstacle:
            log.warning("no MPS, talker and codec take turns on their GPU: %s", obstacle)
        yield folder


def this_machine() -> Machine:
    """Blocks while a daemon is asked, which answers at once."""
    visible_devices = os.environ.get("CUDA_VISIBLE_DEVICES")
    program = shutil.which(PROGRAM)
    directory = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))
    return Machine(
        has_gpu=visible_devices not in ("", "-1") and any(Path("/dev").glob("nvidia[0-9]*")),
        program=program,
        has_daemon=program is not None and mps_answers(directory),
        visible_devices=visible_devices,
    )


@asynccontextmanager
async def mps_daemon() -> AsyncIterator[Path]:
    """Yields the pipe directory. Raises EngineError if the daemon does not start, OSError if its keeper does not."""
    with closing(Child.spawn("mps", keep, ())) as keeper:
        try:
            folder = await keeper.loaded()
            log.info("MPS daemon started in %s", folder)
            yield Path(folder)
        finally:
            keeper.ready.close()  # which is how the keeper hears that it is over
            leaving = asyncio.create_task(_until_dead(keeper))
            try:
                await asyncio.shield(leaving)
            except asyncio.CancelledError:  # whoever is in a hurry would leave the daemon and its folder behind
                await asyncio.wait([leaving])
                raise


async def _until_dead(keeper: Child) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(3 * QUIT_TIMEOUT_S):
            await keeper.dead()


def keep(ready: Connection) -> None:
    """Entry of the keeper. Says on `ready` ("ready", directory) or ("failed", message); stays until it is closed."""
    folder = Path(tempfile.mkdtemp(prefix="sonorant-mps-"))
    environment = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(folder), "CUDA_MPS_LOG_DIRECTORY": str(folder)}
    try:
        with (folder / "daemon.log").open("wb") as said:  # of every client a dozen lines, which are not our log's
            daemon = subprocess.Popen(
                [PROGRAM, "-f"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is not for it
                preexec_fn=_end_with_us,
            )
    except OSError as error:
        shutil.rmtree(folder)
        ready.send(("failed", f"cannot start {PROGRAM} ({error.strerror}); it comes with the NVIDIA driver"))
        return
    try:
        if message := _wait_for_it(daemon, folder) or _refusal(environment):
            ready.send(("failed", message))
            return
        ready.send(("ready", str(folder)))
        _stay(daemon, ready)
    except OSError:
        pass  # nobody listened from the start
    finally:
        _quit(daemon, environment)
        shutil.rmtree(folder, ignore_errors=True)


def _end_with_us() -> None:
    """In the daemon before it is one: should we be killed. We ignore SIGTERM, which it would inherit."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def mps_answers(pipe_directory: Path) -> bool:
    """Whether a daemon is there: asked by its own program, since what lies in its directory differs between drivers."""
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
    """What is wrong, or nothing once the daemon answers."""
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
    """What a first client is told, or nothing: a daemon that answers may still be unable to serve a GPU."""
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
    code = client.stdout.decode().strip() or "0"  # nothing without a driver, which the workers will tell
    return "" if code == "0" else f"the MPS daemon refused a first client, with CUDA error {code}"


def _stay(daemon: "subprocess.Popen[bytes]", ready: Connection) -> None:
    """Until nobody listens any more. Without the daemon the server goes on, and its workers take turns."""
    poll = select.poll()
    poll.register(ready.fileno(), 0)  # an error is told unasked
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
    """The workers are gone or about to be: ask, and then do not ask."""
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
