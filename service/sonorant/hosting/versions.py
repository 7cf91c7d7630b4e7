"""Tells whether files were replaced while the server runs."""

import os
from collections.abc import Iterable
from pathlib import Path


def version_of(paths: Iterable[Path]) -> object:
    """Return a value that changes when one of the files is replaced or written; None if a file cannot be read."""
    try:
        statuses = [os.stat(path) for path in paths]
    except OSError:
        return None
    return [(status.st_mtime_ns, status.st_ino, status.st_size) for status in statuses]
