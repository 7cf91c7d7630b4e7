"""Reads safetensors files without torch: single rows, and samples for a fingerprint, without reading the whole file.

Format: u64 length of the header (little-endian), the header in JSON, the data; offsets count from the data's start.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
import numpy.typing as npt

from sonorant.engine.checkpoint.files import open_file
from sonorant.engine.errors import CheckpointError
from sonorant.engine.types import Float32Array

SAMPLES = 16  # per file, evenly spread from the first bytes of the data to the last
SAMPLE_BYTES = 64 * 1024
MAX_HEADER_BYTES = 100_000_000  # as in the safetensors library

_DTYPES: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}


class Digest(Protocol):
    def update(self, data: bytes, /) -> None: ...


def read_row(path: Path, name: str, row: int) -> Float32Array:
    """Return row `row` of the matrix `name`: [columns]. Raises CheckpointError, also if there is no such row."""
    with _opened(path) as file:
        header = json.loads(_header(file))
        if not isinstance(header, dict):
            raise ValueError("its header is not a JSON object")
        entry = header.get(name)
        if entry is None or entry["dtype"] not in _DTYPES or len(entry["shape"]) != 2:
            raise CheckpointError(f"{path} has no matrix {name} of type F32, F16 or BF16")
        (num_rows, columns), dtype = entry["shape"], _DTYPES[entry["dtype"]]
        if not 0 <= row < num_rows:
            raise CheckpointError(f"{path}: {name} has {num_rows} rows, so there is no row {row}")
        file.seek(entry["data_offsets"][0] + row * columns * dtype.itemsize, os.SEEK_CUR)
        values: npt.NDArray[Any] = np.frombuffer(file.read(columns * dtype.itemsize), dtype, columns)
    if entry["dtype"] == "BF16":  # the upper half of a float32
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32)


def add_samples(path: Path, digest: Digest) -> None:
    """Feed a file's size, header and samples of its data to `digest`; small files entirely. Raises CheckpointError."""
    with _opened(path) as file:
        num_bytes = os.fstat(file.fileno()).st_size
        digest.update(b"%d:" % num_bytes + _header(file))
        start = file.tell()
        last = max(start, num_bytes - SAMPLE_BYTES)
        for offset in np.linspace(start, last, SAMPLES).astype(np.int64).tolist():
            file.seek(offset)
            digest.update(file.read(SAMPLE_BYTES))


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Raises CheckpointError for a file that is missing, and for what reading a damaged one raises inside."""
    try:
        with open_file(path) as file:
            yield file
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{path} is missing; a checkpoint folder has it (load_format dummy needs none)"
        ) from error
    except (OSError, ValueError, RecursionError, LookupError, TypeError) as error:  # malformed headers, too
        raise CheckpointError(f"{path} is not a whole safetensors file: {error}") from error


def _header(file: BinaryIO) -> bytes:
    num_bytes = int.from_bytes(file.read(8), "little")
    if num_bytes > min(MAX_HEADER_BYTES, os.fstat(file.fileno()).st_size):
        raise ValueError(f"its header says it is {num_bytes} bytes long")
    return file.read(num_bytes)
