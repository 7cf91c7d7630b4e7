"""The files in which gateway processes count for each other's metrics.

prometheus_client maps them into memory. On a disk that has become full, a page that was never written would end the
process (SIGBUS), so each process takes the room for its files before it counts anything.
"""

import logging
import os
from pathlib import Path

SHARED_DIR_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"  # defined by prometheus_client, as the names of the files are
KINDS = ("counter", "histogram", "gauge_livemin", "gauge_livesum")  # of the metrics that there are
ROOM_BYTES = 256 * 1024  # of each file; all rows of all metrics take a fraction of it
COUNTS_ALONE = "%s: so GET /metrics tells of one process at a time; free some space, and restart the gateway"

log = logging.getLogger("sonorant.gateway")


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
