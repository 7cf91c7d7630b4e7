"""Staged text-to-speech engine for Qwen3-TTS checkpoints. What is exported here is all that callers need.

Importing it loads no torch: the model runs in worker processes, which `Engine.start` starts.
"""

from engine.checkpoint import BUILTIN_VOICE_DIR, resolve_model
from engine.config import EngineConfig, MpsMode
from engine.embeddings import MAX_MIXED_VOICES, mix_embeddings
from engine.encoder.recording import MAX_RECORDING_S, MIN_RECORDING_S
from engine.engine import Engine, EngineStats, EngineStream
from engine.errors import (
    CheckpointError,
    EncodingFailed,
    EngineError,
    EngineOverloaded,
    EngineUnavailable,
    InvalidRecording,
    InvalidSynthesis,
    StreamFailed,
    UnknownSpeaker,
    UnsupportedTask,
)
from engine.info import EngineInfo
from engine.ipc.heartbeat import PROMPT_ROW_BUCKETS, ROW_BUCKETS, STEP_S_BUCKETS, Work
from engine.pool import EnginePool, PairStats
from engine.prompt.explain import Explanation
from engine.routing import Need
from engine.supervisor import EngineState
from engine.types import (
    EncodedReference,
    FinishReason,
    PassCounts,
    PcmChunk,
    RecordingInfo,
    SamplingParams,
    StreamBudget,
    StreamEnd,
    SynthesisParams,
)
from engine.warm_up import WarmUp

__all__ = [
    "BUILTIN_VOICE_DIR",
    "MAX_MIXED_VOICES",
    "MAX_RECORDING_S",
    "MIN_RECORDING_S",
    "PROMPT_ROW_BUCKETS",
    "ROW_BUCKETS",
    "STEP_S_BUCKETS",
    "CheckpointError",
    "EncodedReference",
    "EncodingFailed",
    "Engine",
    "EngineConfig",
    "EngineError",
    "EngineInfo",
    "EngineOverloaded",
    "EnginePool",
    "EngineState",
    "EngineStats",
    "EngineStream",
    "EngineUnavailable",
    "Explanation",
    "FinishReason",
    "InvalidRecording",
    "InvalidSynthesis",
    "MpsMode",
    "Need",
    "PairStats",
    "PassCounts",
    "PcmChunk",
    "RecordingInfo",
    "SamplingParams",
    "StreamBudget",
    "StreamEnd",
    "StreamFailed",
    "SynthesisParams",
    "UnknownSpeaker",
    "UnsupportedTask",
    "WarmUp",
    "Work",
    "mix_embeddings",
    "resolve_model",
]
