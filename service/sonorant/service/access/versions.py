"""Files that may be replaced while the server runs."""

import os
from collections.abc import Iterable
from pathlib import Path


def version_of(paths: Iterable[Path]) -> object:
    """Something that differs once one of the files was replaced or written; None while one cannot be looked at."""
    try:
        statuses = [os.stat(path) for path in paths]
    except OSError:
        return None
    return [(status.st_mtime_ns, status.st_ino, status.st_size) for status in statuses]
