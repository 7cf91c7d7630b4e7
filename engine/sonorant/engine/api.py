"""What the engine offers: the root package has these names, and callers need no others.

Importing this does not load torch: the model runs in worker processes, which `shared_pairs` starts.
"""

from sonorant.engine.card.driver import find_card
from sonorant.engine.checkpoint.embeddings import MAX_MIXED_VOICES, mix_embeddings
from sonorant.engine.checkpoint.folders import BUILTIN_VOICE_DIR, resolve_model
from sonorant.engine.config import EngineConfig, MpsMode
from sonorant.engine.errors import (
    CheckpointError,
    CodecDiffers,
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
from sonorant.engine.fair_queue import FairQueue
from sonorant.engine.ipc.heartbeat import PROMPT_ROW_BUCKETS, ROW_BUCKETS, STEP_S_BUCKETS, Work
from sonorant.engine.ipc.shared_record import SharedRecord
from sonorant.engine.lru_cache import LruCache
from sonorant.engine.owner.shared_pairs import SharedPairs, shared_pairs
from sonorant.engine.prompt.explain import Explanation
from sonorant.engine.prompt.layout import PromptLayout
from sonorant.engine.serving.engine import Engine, EngineStats
from sonorant.engine.serving.here import EngineHere, start_here
from sonorant.engine.serving.info import EngineInfo
from sonorant.engine.serving.pool import EnginePool, PairStats
from sonorant.engine.serving.routing import Need
from sonorant.engine.serving.stored import StoredStream
from sonorant.engine.serving.stream import EngineStream
from sonorant.engine.serving.warm_up import WarmUp
from sonorant.engine.shares import Shares
from sonorant.engine.types import (
    NOTHING_SPENT,
    EncodedReference,
    FinishReason,
    Int16Array,
    PassCounts,
    PcmChunk,
    RecordingInfo,
    SamplingParams,
    Spent,
    StreamBudget,
    StreamEnd,
    SynthesisParams,
)
from sonorant.engine.workers.auto import is_large_on_the_cpu, sized
from sonorant.engine.workers.endpoint import EngineState
from sonorant.settings import AUTO

__all__ = [
    "AUTO",
    "BUILTIN_VOICE_DIR",
    "MAX_MIXED_VOICES",
    "NOTHING_SPENT",
    "PROMPT_ROW_BUCKETS",
    "ROW_BUCKETS",
    "STEP_S_BUCKETS",
    "CheckpointError",
    "CodecDiffers",
    "EncodedReference",
    "EncodingFailed",
    "Engine",
    "EngineConfig",
    "EngineError",
    "EngineHere",
    "EngineInfo",
    "EngineOverloaded",
    "EnginePool",
    "EngineState",
    "EngineStats",
    "EngineStream",
    "EngineUnavailable",
    "Explanation",
    "FairQueue",
    "FinishReason",
    "Int16Array",
    "InvalidRecording",
    "InvalidSynthesis",
    "LruCache",
    "MpsMode",
    "Need",
    "PairStats",
    "PassCounts",
    "PcmChunk",
    "PromptLayout",
    "RecordingInfo",
    "SamplingParams",
    "SharedPairs",
    "SharedRecord",
    "Shares",
    "Spent",
    "StoredStream",
    "StreamBudget",
    "StreamEnd",
    "StreamFailed",
    "SynthesisParams",
    "UnknownSpeaker",
    "UnsupportedTask",
    "WarmUp",
    "Work",
    "find_card",
    "is_large_on_the_cpu",
    "mix_embeddings",
    "resolve_model",
    "shared_pairs",
    "sized",
    "start_here",
]
