"""Values that pass through the engine: an utterance's parameters, its prompt, and its results. No torch, no I/O."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

Int16Array = npt.NDArray[np.int16]
Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]
Float32Array = npt.NDArray[np.float32]

MAX_RECORDING_S = 30.0  # of a voice to be cloned
LARGEST_VALUE = 65504.0  # largest value in a speaker embedding: finite in every dtype that a talker computes in

# Codec column of a prompt row: an id of the talker's codec embedding table (>= 0), or one of these.
NO_ID = -1  # the part is absent (also used in the text column)
X_VECTOR = -2  # the speaker embedding given with the stream
REFERENCE_FRAME = -3  # row k of the reference codes is REFERENCE_FRAME - k


class FinishReason(IntEnum):
    """Why a stream ended. Each stream ends exactly once."""

    COMPLETED = 1  # the model sampled its end token
    MAX_FRAMES = 2  # `SamplingParams.max_frames` were made
    CANCELLED = 3
    FAILED = 4  # this stream failed; `StreamEnd.detail` says why
    UNAVAILABLE = 5  # the workers went down with all streams, or the engine was closed; the caller may try again
    RUNAWAY = 6  # it no longer spoke its text; `StreamEnd.detail` says which sign showed it
    NO_SCORES = 8  # the model computed scores that are not finite; `StreamEnd.detail` says what to do
    YIELDED = 7  # between workers and engine only: the starved stream's slot was given to another one


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """All sampling settings of one stream, complete: defaults come from the checkpoint's generation_config.json.

    The `subtalker_` set belongs to the code predictor, the rest to the talker (first codebook).
    """

    do_sample: bool
    temperature: float
    top_k: int  # 0 = off
    top_p: float
    repetition_penalty: float
    subtalker_do_sample: bool
    subtalker_temperature: float
    subtalker_top_k: int
    subtalker_top_p: float
    seed: int  # 0 .. 2**32 - 1
    min_frames: int  # the end token is banned in this many first samples
    max_frames: int  # most frames to make
    ignore_eos: bool = False


@dataclass(frozen=True, slots=True)
class SynthesisParams:
    """What the caller wants of one utterance, except its text, which comes separately."""

    sampling: SamplingParams
    speaker: str | None = None  # a name of the checkpoint's speaker table
    language: str = "auto"
    instruct: str = ""
    non_streaming_mode: bool = False  # all text in the prompt, instead of one text token per codec frame
    x_vector: Float32Array | None = None  # [talker hidden size]; instead of `speaker`
    reference_codes: Int16Array | None = None  # [frames, codebooks]; needs reference_text and x_vector
    reference_text: str = ""
    checkpoint: str = ""  # fingerprint of the checkpoint that has to speak; "": the first that has what is needed
    # If not None, `EngineStream.text_times` says when which text is spoken. Its values are the
    # `EngineStream.text_positions` of the known frames.
    times_text: tuple[float, ...] | None = None
    # In place of positions that are not known: some characters, and when each is reached in the known frames, in ms.
    times_told: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class RecordingInfo:
    """The properties of an uploaded recording, before it is resampled."""

    duration_ms: int
    level_dbfs: float  # root mean square of the mono samples; 0 dBFS is a full-scale square wave
    sample_rate_hz: int
    channels: int
    speech_ms: int = 0  # without its pauses; 0 = they cannot be told


@dataclass(frozen=True, slots=True)
class Spent:
    """Where the time of a recording went, in seconds; all 0 for one that was known."""

    waited_s: float = 0.0
    decoded_s: float = 0.0
    encoded_s: float = 0.0


NOTHING_SPENT = Spent()


@dataclass(frozen=True, slots=True)
class EncodedReference:
    """What a Base checkpoint makes of a recording: everything that cloning needs, except the words spoken in it."""

    x_vector: Float32Array  # [hidden]
    codes: Int16Array | None  # [frames, codebooks]
    recording: RecordingInfo
    spent: Spent = NOTHING_SPENT


@dataclass(frozen=True, slots=True)
class PromptPlan:
    """The prompt as ints: two columns with one entry per row; a row's embedding = text part + codec part.

    `trailing` has the text ids known so far that follow the prompt, one per codec frame: trailing[t] is added after
    frame t. More arrive with PushText until EndText; after the last one the talker adds tts_pad.
    """

    text_ids: tuple[int, ...]
    codec_items: tuple[int, ...]
    trailing: tuple[int, ...]
    text_ended: bool
    num_text_tokens: int  # of the utterance's own text, trailing ones included
    text_row: int = 0  # row of the first of these tokens; the others follow, one per row, also after the prompt
    began_open: bool = False  # whether text could still come when the prompt was made

    @property
    def num_rows(self) -> int:
        return len(self.text_ids)


@dataclass(frozen=True, slots=True)
class StreamBudget:
    """How the time from a complete prompt to the first chunk was spent, in seconds. The parts follow without gaps."""

    opened_s: float  # when it began, by time.monotonic(); all other fields are durations
    queue_s: float  # on the ring to the talker, and waiting for a slot and pages
    prefill_s: float  # until the step that made frame 0 began: earlier parts of a long prompt
    step_s: float  # that step
    frames_ring_s: float  # until Code2Wav took the frame
    codec_wait_s: float  # until the call that decoded it began; the reference of a cloned voice is decoded before
    codec_s: float  # that call
    pcm_ring_s: float  # until the engine's caller could take the chunk

    @property
    def total_s(self) -> float:
        before_codec_s = self.queue_s + self.prefill_s + self.step_s + self.frames_ring_s
        return before_codec_s + self.codec_wait_s + self.codec_s + self.pcm_ring_s


@dataclass(frozen=True, slots=True)
class PcmChunk:
    """Decoded audio of `num_frames` codec frames in a row, beginning with frame `first_frame` of the stream."""

    first_frame: int
    num_frames: int
    samples: Int16Array  # [num_frames * frame_samples]
    codes: Int16Array  # [num_frames, codebooks]; with the codes of all earlier chunks, another stream can continue it
    budget: StreamBudget | None = None  # only in the first chunk of a stream


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """The last event of a stream."""

    reason: FinishReason
    num_frames: int  # made by the talker
    queue_s: float  # from a complete prompt to prefill
    generation_s: float  # prefill to the last frame
    detail: str = ""


@dataclass(slots=True)
class PassCounts:
    """Counts passes of a worker's network. A step has one or more; most are padded with rows to a prepared size."""

    num_rows: int = 0  # without padding
    num_padding_rows: int = 0
    num_graphs: int = 0  # passes replayed as a CUDA graph
    num_eager: int = 0  # passes launched operation by operation: on the CPU, or with `enforce_eager`

    def add(self, num_rows: int, size: int, *, is_graph: bool = False) -> None:
        """Count a pass of `size` rows, of which `num_rows` are no padding."""
        self.num_rows += num_rows
        self.num_padding_rows += size - num_rows
        self.num_graphs += is_graph
        self.num_eager += not is_graph
