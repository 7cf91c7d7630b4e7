"""Opens files of a checkpoint folder that somebody else has written."""

import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_file(path: Path) -> BinaryIO:
    """Raises OSError, also for what is no regular file: a pipe would be waited for, and some devices never end."""
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError("it is not a regular file")
    return file


def read_text(path: Path, max_bytes: int) -> str:
    """Raises OSError, and ValueError for a file that is longer or is not UTF-8."""
    with open_file(path) as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise ValueError(f"it has more than {max_bytes} bytes")
    return data.decode()
