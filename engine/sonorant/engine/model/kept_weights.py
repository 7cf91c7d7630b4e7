"""Keeps converted weights in a folder, so that later starts map the file into memory in place of converting again.

A file is named after the fingerprint of checkpoint or codec, and has its checksum beside it. A file without its
checksum, or with another one, is not used. A note beside it has what takes long to find out about the weights. The
folder is `sonorant` in $XDG_CACHE_HOME, or in ~/.cache.

Files are of the format safetensors. They are written here, because the library copies all tensors first, and does not
have the first one begin at a cache line.
"""

import hashlib
import json
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

MOST_KEPT = 8  # files, two of a checkpoint; the one that was used longest ago goes first
ALIGNMENT = 64  # bytes
PAGE = 4096
NAMES = {
    torch.float32: "F32",  # the widest come first, so that each tensor lies at a multiple of its numbers' size
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int16: "I16",
    torch.int8: "I8",
}

log = logging.getLogger(__name__)


def kept_path(fingerprint: str, conversion: str) -> Path:
    """Return where weights are kept. `conversion` names how they were converted, with a version."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "sonorant" / f"{fingerprint}-{conversion}.safetensors"


def read_kept(path: Path) -> dict[str, Tensor] | None:
    """Map a file of weights; None if there is none, or if it is damaged, which the log says."""
    try:
        if _checksum_path(path).read_text().strip() != checksum(path):
            raise ValueError("its checksum is another one")
        with safe_open(path, framework="pt", device="cpu") as tensors:
            mapped = {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118
    except FileNotFoundError:
        return None
    except (OSError, ValueError, SafetensorError) as error:
        log.warning("%s is damaged (%s): the weights are converted again", path, error)
        return None
    with suppress(OSError):
        os.utime(path)
    return mapped


def keep(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a file of weights. If that fails, the log says why, and the next start converts again."""
    new = path.with_suffix(f".{os.getpid()}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(new, tensors)
        digest = checksum(new)
        new.replace(path)
        new.write_text(f"{digest}\n")
        new.replace(_checksum_path(path))
        _drop_old(path.parent)
    except OSError as error:
        log.warning("converted weights are not kept, so the next start converts them again: %s", error)
    finally:
        with suppress(OSError):
            new.unlink(missing_ok=True)


def checksum(path: Path) -> str:
    """The SHA-256 of the sums of a file's pages, which takes an eighth of the time that its own takes. It is for what
    storage and copies damage: numbers that changed places within a page would not show."""
    data = np.memmap(path, np.uint8, "r")
    end = len(data) // PAGE * PAGE
    sums = data[:end].view(np.uint64).reshape(-1, PAGE // 8).sum(1)
    return hashlib.sha256(sums.tobytes() + data[end:].tobytes()).hexdigest()


def read_note(path: Path) -> dict[str, Any]:
    """Return the note beside a file of weights; empty if there is none, or if it is damaged."""
    try:
        note = json.loads(_note_path(path).read_text())
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}


def keep_note(path: Path, note: Mapping[str, Any]) -> None:
    """Write the note beside a file of weights. If that fails, the next start has to find it out again."""
    new = path.with_suffix(f".{os.getpid()}.new")
    with suppress(OSError):
        new.write_text(json.dumps(note))
        new.replace(_note_path(path))
    with suppress(OSError):
        new.unlink(missing_ok=True)


def _write(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a file of tensors, those of the widest type first."""
    ordered = sorted(tensors.items(), key=lambda item: (list(NAMES).index(item[1].dtype), item[0]))
    header, end = {}, 0
    for name, tensor in ordered:
        begin, end = end, end + tensor.nbytes
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    parts: list[bytes | memoryview] = [len(text).to_bytes(8, "little"), text]
    parts += [tensor.detach().contiguous().flatten().view(torch.uint8).numpy().data for _, tensor in ordered]
    with path.open("wb") as file:
        for part in parts:
            file.write(part)
        file.flush()
        os.fsync(file.fileno())


def _checksum_path(path: Path) -> Path:
    return path.with_suffix(".sums")


def _note_path(path: Path) -> Path:
    return path.with_suffix(".json")


def _drop_old(folder: Path) -> None:
    by_age = sorted(folder.glob("*.safetensors"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in by_age[MOST_KEPT:]:
        for each in (path, _checksum_path(path), _note_path(path)):
            each.unlink(missing_ok=True)
