"""Staged text-to-speech engine for Qwen3-TTS checkpoints. What is exported here is all that callers need.

Importing it loads no torch: the model runs in worker processes, which `Engine.start` starts.
"""

from engine.checkpoint import BUILTIN_VOICE_DIR, resolve_model
from engine.config import EngineConfig
from engine.engine import Engine, EngineInfo, EngineStats, EngineStream
from engine.errors import (
    CheckpointError,
    EngineError,
    EngineOverloaded,
    EngineUnavailable,
    InvalidSynthesis,
    StreamFailed,
    UnknownSpeaker,
    UnsupportedTask,
)
from engine.ipc.heartbeat import PROMPT_ROW_BUCKETS, ROW_BUCKETS, STEP_S_BUCKETS, Work
from engine.prompt.explain import Explanation
from engine.supervisor import EngineState
from engine.types import FinishReason, PassCounts, PcmChunk, SamplingParams, StreamBudget, StreamEnd, SynthesisParams

__all__ = [
    "BUILTIN_VOICE_DIR",
    "PROMPT_ROW_BUCKETS",
    "ROW_BUCKETS",
    "STEP_S_BUCKETS",
    "CheckpointError",
    "Engine",
    "EngineConfig",
    "EngineError",
    "EngineInfo",
    "EngineOverloaded",
    "EngineState",
    "EngineStats",
    "EngineStream",
    "EngineUnavailable",
    "Explanation",
    "FinishReason",
    "InvalidSynthesis",
    "PassCounts",
    "PcmChunk",
    "SamplingParams",
    "StreamEnd",
    "StreamFailed",
    "SynthesisParams",
    "UnknownSpeaker",
    "UnsupportedTask",
    "StreamBudget",
    "Work",
    "resolve_model",
]
