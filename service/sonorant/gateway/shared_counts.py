"""The files in which gateway processes count for each other's metrics.

prometheus_client maps them into memory. On a disk that has become full, a page that was never written would end the
process (SIGBUS), so each process takes the room for its files before it counts anything.
"""

import fcntl
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

SHARED_DIR_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"  # defined by prometheus_client, as the names of the files are
KINDS = ("counter", "histogram", "gauge_livemin", "gauge_livesum")  # of the metrics that there are
FOLDER_PREFIX = "sonorant-counts-"
ROOM_BYTES = 256 * 1024  # of each file; all rows of all metrics take a fraction of it
COUNTS_ALONE = "%s: so GET /metrics tells of one process at a time; free some space, and restart the gateway"

log = logging.getLogger("sonorant.gateway")


@contextmanager
def shared_folder() -> Iterator[str | None]:
    """Make the folder of the processes that this one will start; None if no disk has room. Only a gateway that lives
    has its folder locked, so the folder of one that was killed is removed by the next gateway of its user."""
    with ExitStack() as stack:
        try:
            for left in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*"):
                with suppress(OSError), _locked(left):
                    shutil.rmtree(left)
            folder = _own_folder(stack)
        except OSError as error:
            log.warning(COUNTS_ALONE, error.strerror or error)
            folder = None
        yield folder


def _own_folder(stack: ExitStack) -> str:
    while True:
        own = tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX, ignore_cleanup_errors=True)
        folder = stack.enter_context(own)
        with suppress(BlockingIOError, FileNotFoundError):  # a gateway that starts now takes it for one that was left
            stack.enter_context(_locked(Path(folder)))
            return folder


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Raises OSError: BlockingIOError if somebody has it locked, FileNotFoundError if it has been removed."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.stat(folder)  # whoever had it locked may have removed it
        yield
    finally:
        os.close(opened)


def take_room() -> None:
    """Take it before prometheus_client is imported. Where there is none, this process counts alone, and logs that."""
    if SHARED_DIR_VARIABLE not in os.environ:
        return
    folder = Path(os.environ[SHARED_DIR_VARIABLE])
    files = [folder / f"{kind}_{os.getpid()}.db" for kind in KINDS]
    try:
        for file in files:
            with file.open("wb") as opened:
                os.posix_fallocate(opened.fileno(), 0, ROOM_BYTES)
    except OSError as error:
        log.warning(COUNTS_ALONE, f"{folder}: {error.strerror}")
        del os.environ[SHARED_DIR_VARIABLE]
        for file in files:
            file.unlink(missing_ok=True)
