"""Where compiled kernels are kept: in Triton's cache folder, or if nothing can be written there, only for this process.

Workers use it by Triton's variable TRITON_CACHE_MANAGER.
"""

import logging
import os
import shutil
import tempfile
from atexit import register
from functools import cache

from triton.runtime.cache import FileCacheManager

log = logging.getLogger(__name__)


class KernelCache(FileCacheManager):  # type: ignore[misc]  # Triton has no types
    """What is in a folder that cannot be written to, or is full, is still read from there."""

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
        try:
            super().__init__(key, override, dump)
        except OSError as error:
            _tell(self.cache_dir, error)

    def put(self, data: bytes | str, filename: str, binary: bool = True) -> str:
        try:
            return str(super().put(data, filename, binary))
        except OSError as error:
            _tell(self.cache_dir, error)
            self.cache_dir: str = os.path.join(_own_folder(), self.key)
            os.makedirs(self.cache_dir, exist_ok=True)
            return str(super().put(data, filename, binary))


@cache
def _own_folder() -> str:
    folder = tempfile.mkdtemp(prefix="sonorant-kernels-")
    register(shutil.rmtree, folder, ignore_errors=True)
    return folder


_told: set[int | None] = set()


def _tell(folder: str, error: OSError) -> None:
    if error.errno not in _told:
        _told.add(error.errno)
        log.warning(
            "compiled kernels cannot be kept in %s (%s), so every start compiles them again: make room there, or set "
            "TRITON_CACHE_DIR to another folder",
            os.path.dirname(folder),
            error.strerror,
        )
