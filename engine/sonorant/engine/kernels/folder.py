"""The folder where compiled kernels are kept, and whether somebody is compiling into it. Never imports Triton."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_LOCK = "sonorant.lock"


def cache_folder() -> Path:
    """Triton's."""
    named = os.environ.get("TRITON_CACHE_DIR")
    return Path(named) if named else Path(os.environ.get("TRITON_HOME", Path.home())) / ".triton" / "cache"


@contextmanager
def being_filled() -> Iterator[None]:
    """Inside the block, `wait_until_filled` waits, in any process. Where nothing can be written, nobody waits."""
    try:
        cache_folder().mkdir(parents=True, exist_ok=True)
        file = os.open(cache_folder() / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError:
        yield
        return
    try:
        with suppress(OSError):  # some network file systems have no locks
            fcntl.flock(file, fcntl.LOCK_SH)
        yield
    finally:
        os.close(file)


def wait_until_filled() -> None:
    """Wait while others fill the folder."""
    with suppress(OSError):
        file = os.open(cache_folder() / _LOCK, os.O_RDWR)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        finally:
            os.close(file)
