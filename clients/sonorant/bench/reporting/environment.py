"""Describes the machine and the software of a measurement."""

import hashlib
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

COMMIT_VARIABLE = "SONORANT_CLIENT_COMMIT"
_PACKAGES = ("sonorant", "grpcio", "protobuf", "uvloop", "numpy", "torch", "triton", "aiohttp")


def environment() -> dict[str, Any]:
    """The client's commit (from COMMIT_VARIABLE if there is no work tree), machine and versions."""
    return {
        "commit": os.environ.get(COMMIT_VARIABLE) or _first_line("git", "describe", "--always", "--dirty"),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "gpus": _lines("nvidia-smi", "--query-gpu=name,driver_version,power.limit", "--format=csv,noheader"),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: version for name in _PACKAGES if (version := _version(name))},
    }


def config_hash(config: Mapping[str, Any]) -> str:
    """A hash of the settings: results with equal hashes come from the same load."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:12]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _first_line(*command: str) -> str | None:
    lines = _lines(*command)
    return lines[0] if lines else None


def _lines(*command: str) -> list[str]:
    """The lines that the command prints; none if there is no such command or it fails."""
    if shutil.which(command[0]) is None:
        return []
    result = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return result.stdout.splitlines() if result.returncode == 0 else []


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
