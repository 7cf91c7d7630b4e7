"""Staged text-to-speech engine for Qwen3-TTS checkpoints. Callers import the names of `sonorant.engine.api` from here.

They are loaded when they are first asked for. So `WORKERS` can start the fork server, whose imports take longest,
before anything else is imported, and child processes with small tasks import only what they need.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sonorant.engine.ipc.fork_server import WORKERS as WORKERS

if TYPE_CHECKING:
    from sonorant.engine.api import *  # noqa: F403


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    return getattr(import_module("sonorant.engine.api"), name)
