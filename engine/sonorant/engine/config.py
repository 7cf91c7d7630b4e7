"""Every setting of a worker pair, nested by stage. Each field is the one place where its setting is declared."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sonorant.engine.settings import (
    AUTO,
    DEVICE,
    as_auto,
    as_choice,
    as_count,
    as_device,
    as_percent,
    as_positive,
    as_ramp,
    as_seconds,
    as_share,
    as_switch,
    setting,
    settings_of,
    with_settings,
)

LoadFormat = Literal["safetensors", "dummy"]
DtypeName = Literal["auto", "float32", "bfloat16"]
CodecDtypeName = Literal["auto", "float32", "tf32", "float16"]  # bfloat16 costs audible noise
CODEC_FORMATS = ("float32", "tf32", "float16")
PriorityName = Literal["normal", "below-normal"]
StageName = Literal["talker", "code2wav", "encoder"]
MpsMode = Literal["auto", "true", "false"]


def device_with_gpus(name: str) -> str:
    """The device of this name on a machine with GPUs, of several names for it always the same."""
    return "cuda:0" if name in ("auto", "cuda") else name


@dataclass(frozen=True, slots=True)
class TalkerConfig:
    device: str = setting(
        "auto", as_device, DEVICE, "where the talker runs; auto: cuda:0, or cpu without a GPU", flag="talker_device"
    )
    cpu_threads: int = setting(
        0, as_count, "N", "CPU threads of the talker; 0 = as --cpu-threads says", flag="talker_cpu_threads"
    )
    # What may be AUTO is a number by the time that workers are started.
    num_slots: int = setting(
        32,
        as_auto(as_positive),
        "auto|N",
        "streams that are generated together, one frame each per step; auto: as the GPU's memory allows, 32 on the CPU",
        served=AUTO,
    )
    max_queued_streams: int = setting(
        32,
        as_auto(as_count),
        "auto|N",
        "opened streams that may wait for a slot; auto: half the number of slots, on the CPU the same number",
        served=AUTO,
    )
    max_context: int = setting(4096, as_positive, "N", "longest stream: rows of its prompt and frames together")
    num_pages: int = setting(
        0, as_count, "N", "pages of the KV cache; 0 = as many as fit into memory, and no more than the slots can need"
    )
    kv_memory_share: float = setting(
        0.6, as_share, "X", "part of a GPU's free memory that the KV caches of all talkers on it share"
    )
    page_size: int = setting(16, as_positive, "N", "positions per page of the KV cache")
    max_prefill_rows: int = setting(
        256,
        as_auto(as_positive),
        "auto|N",
        "rows of new prompts per step, which running streams wait for; auto: 256, on a large GPU 1024",
        served=AUTO,
    )
    credit_frames: int = setting(48, as_positive, "N", "frames a stream may be ahead of what its client has taken")
    runaway_frames_per_token: int = setting(
        12, as_count, "N", "end a stream after 96 + N frames per text token; 0 = never"
    )
    runaway_repeated_frames: int = setting(
        64, as_count, "N", "end an overlong stream once N frames in a row repeat; 0 = never"
    )


@dataclass(frozen=True, slots=True)
class Code2WavConfig:
    device: str = setting(
        "auto", as_device, DEVICE, "where Code2Wav runs; auto: cuda:0, or cpu without a GPU", flag="code2wav_device"
    )
    # tf32: float32, multiplied with 10 bits of mantissa
    dtype: CodecDtypeName = setting(
        "float32",
        as_choice("auto", "float32", "tf32", "float16"),
        "auto|float32|tf32|float16",
        "arithmetic of Code2Wav; tf32 needs CUDA; auto: on CUDA the fastest that sounds the same, else float32",
        flag="code2wav_dtype",
        served="auto",
    )
    cpu_threads: int = setting(
        0, as_count, "N", "CPU threads of Code2Wav; 0 = as --cpu-threads says", flag="code2wav_cpu_threads"
    )
    sm_percent: int = setting(
        0, as_percent, "N", "part of the GPU that Code2Wav may use under MPS; 0 = all of it", flag="code2wav_sm_percent"
    )
    priority: PriorityName = setting(
        "below-normal",
        as_choice("normal", "below-normal"),
        "normal|below-normal",
        "priority of Code2Wav on the GPU under MPS; below-normal lets the talker go first",
        flag="code2wav_priority",
    )
    chunk_ramp: tuple[int, ...] = setting(
        (1, 2, 4, 8, 12),
        as_ramp,
        "N,N,...",
        "frames per chunk of audio, first to last; the last size repeats",
    )
    runaway_silent_frames: int = setting(75, as_count, "N", "end a stream after N silent frames in a row; 0 = never")
    max_decode_batch: int = setting(
        32,
        as_auto(as_positive),
        "auto|N",
        "streams that Code2Wav decodes together; auto: up to 128 on a GPU, 32 on the CPU",
        served=AUTO,
    )
    kept_references: int = setting(
        16, as_count, "N", "references of cloned voices that stay decoded, so that the next utterance starts sooner"
    )
    stored_streams: int = setting(
        16, as_positive, "N", "stored codes that are decoded at the same time; each has a place in Code2Wav of its own"
    )


@dataclass(frozen=True, slots=True)
class EncoderConfig:
    # On the CPU recordings take nothing from the streams of a GPU.
    device: str = setting("cpu", as_device, DEVICE, "where recordings of voices are encoded", flag="encoder_device")
    threads: int = setting(
        0, as_count, "N", "CPU threads of the encoder; 0 = a quarter of the cores", flag="encoder_threads"
    )
    max_queued_recordings: int = setting(
        8, as_positive, "N", "recordings that may wait, the one being encoded included"
    )
    encode_timeout_s: float = setting(60.0, as_seconds, "S", "longest time to encode one recording")
    idle_s: float = setting(
        600.0, as_seconds, "S", "stop an encoder that was idle for this long", flag="encoder_idle_s"
    )


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Settings of one talker and its Code2Wav; the defaults suit the built-in checkpoint on a small CPU machine."""

    model: Path  # a checkpoint folder in the published layout
    load_format: LoadFormat = setting(
        "safetensors",
        as_choice("safetensors", "dummy"),
        "safetensors|dummy",
        "where weights come from: the folder, or (dummy) random numbers",
    )
    seed: int = setting(0, as_count, "N", "seed of dummy weights")
    dtype: DtypeName = setting(
        "auto",
        as_choice("auto", "float32", "bfloat16"),
        "auto|float32|bfloat16",
        "arithmetic of the talker; auto: float32 on the CPU, on a GPU what the checkpoint was trained in",
    )
    cpu_threads: int = setting(
        0, as_count, "N", "CPU threads per worker; 0 = half of the cores, or less where workers share them"
    )
    enforce_eager: bool = setting(
        False, as_switch, "true|false", "launch CUDA kernels one by one, without graphs: slower, for finding faults"
    )
    hang_timeout_s: float = setting(60.0, as_seconds, "S", "replace a worker that is busy with one step for longer")
    start_timeout_s: float = setting(600.0, as_seconds, "S", "longest time for the workers to load the model")
    talker: TalkerConfig = TalkerConfig()
    code2wav: Code2WavConfig = Code2WavConfig()
    encoder: EncoderConfig = EncoderConfig()
    is_standby: bool = False  # loaded and idle, until another pair of its model goes down
    mps_pipe_directory: Path | None = None  # of the MPS daemon to use; None: that of the environment, if there is one

    @classmethod
    def of(cls, model: Path, **settings: Any) -> "EngineConfig":
        """With settings of any stage, by the names of their flags: `of(folder, num_slots=8, talker_device="cpu")`."""
        return cls(model).but(**settings)

    def but(self, **settings: Any) -> "EngineConfig":
        """With other settings, by the names of their flags. Raises TypeError for what is no setting."""
        if unknown := settings.keys() - {each.name for each in settings_of(EngineConfig)}:
            raise TypeError(f"no settings of the engine: {', '.join(sorted(unknown))}")
        return with_settings(self, settings)

    @property
    def contradiction(self) -> str:
        """Settings that cannot work together, and what to do; "" = none."""
        credit, chunk = self.talker.credit_frames, self.code2wav.chunk_ramp[-1]
        if credit <= chunk:  # one frame more, since a change of rate or speed holds a part of a frame back
            return (
                f"credit_frames is {credit}, but the largest chunk (chunk_ramp) has {chunk} frames, which no stream "
                f"could make: set credit_frames to {chunk + 1} or more, or the last number of chunk_ramp to less"
            )
        return ""

    @property
    def max_streams(self) -> int:
        return self.talker.num_slots + self.talker.max_queued_streams

    @property
    def num_codec_states(self) -> int:
        """Of live streams, then of stored ones, then those that references leave, and one that is nobody's."""
        return self.talker.num_slots + self.code2wav.stored_streams + self.code2wav.kept_references + 1

    def threads(self, stage: StageName) -> int:
        num_cores = len(os.sched_getaffinity(0))
        if stage == "encoder":
            return self.encoder.threads or max(1, num_cores // 4)
        own = self.talker.cpu_threads if stage == "talker" else self.code2wav.cpu_threads
        return own or self.cpu_threads or max(1, num_cores // 2)

    def environment(self, stage: StageName) -> dict[str, str]:
        """What the worker's environment has beside ours; CUDA reads it when the worker first uses the GPU."""
        values = {}
        if self.mps_pipe_directory is not None:
            values["CUDA_MPS_PIPE_DIRECTORY"] = str(self.mps_pipe_directory)
        if stage == "code2wav" and self.code2wav.sm_percent:
            values["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(self.code2wav.sm_percent)
        if stage == "code2wav" and self.code2wav.priority == "below-normal":
            values["CUDA_MPS_CLIENT_PRIORITY"] = "1"  # 0 is normal, and there is nothing above
        return values
