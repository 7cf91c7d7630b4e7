"""Which C files the functions are compiled from; engine/build_cpu.py runs this file alone."""

import hashlib
from pathlib import Path


def digest(folder: Path) -> str:
    """Of all C files in a folder."""
    contents = hashlib.sha256()
    for path in sorted(folder.glob("*.[ch]")):
        contents.update(path.read_bytes())
    return contents.hexdigest()
