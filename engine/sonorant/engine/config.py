"""All settings of a worker pair, nested by stage. Each setting is declared here, as one field, and nowhere else."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sonorant.machine import num_cores
from sonorant.settings import (
    AUTO,
    DEVICE,
    as_auto,
    as_choice,
    as_count,
    as_device,
    as_gib,
    as_positive,
    as_seconds,
    as_switch,
    defaults_of,
    internal,
    setting,
    with_settings,
)

LoadFormat = Literal["safetensors", "dummy"]
DtypeName = Literal["auto", "float32", "bfloat16"]
CodecDtypeName = Literal["auto", "float32", "tf32", "float16"]  # bfloat16 costs audible noise
WeightsName = Literal["auto", "int8", "int4"]
StageName = Literal["talker", "code2wav", "encoder"]
MpsMode = Literal["auto", "true", "false"]

CACHE_MANAGER = "sonorant.engine.kernels.cache:KernelCache"  # for Triton


def device_with_gpus(name: str) -> str:
    """Return the device that a name means on a machine with GPUs: one result for all names of a device."""
    return "cuda:0" if name in ("auto", "cuda") else name


@dataclass(frozen=True, slots=True)
class TalkerConfig:
    device: str = setting(
        "auto", as_device, DEVICE, "where the talker runs; auto: cuda:0, or cpu without a GPU", flag="talker_device"
    )
    # The embeddings, heads and projections of the codes stay as they are: a frame reads few of them.
    weights: WeightsName = setting(
        "auto",
        as_choice("auto", "int8", "int4"),
        "auto|int8|int4",
        "weights of the talker; auto: as the checkpoint has them, but int8 for large ones on the CPU; int8, int4: "
        "rounded to eight or four bits, on the CPU only; int4 takes less memory, and changes the speech",
        flag="talker_weights",
    )
    # Settings that are AUTO have become numbers before workers are started.
    num_slots: int = setting(
        32,
        as_auto(as_positive),
        "auto|N",
        "streams generated together, one frame each per step; auto: as the GPU's memory allows, 32 on the CPU",
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
        0, as_count, "N", "pages of the KV cache; 0 = as many as fit into memory, but no more than the slots can need"
    )
    page_size: int = internal(16)  # positions per page of the KV cache
    max_prefill_rows: int = internal(256, served=AUTO)  # of new prompts, per step; running streams wait for them
    credit_frames: int = internal(48)  # a stream may be ahead of what its client has taken
    runaway_frames_per_token: int = internal(12)  # a stream ends after 96 frames and these per token; 0: never
    runaway_repeated_frames: int = internal(64)  # an overlong stream ends once so many repeat; 0: never

    def pages_for(self, num_positions: int) -> int:
        """Return how many pages of the KV cache have room for so many positions of one stream."""
        return -(-num_positions // self.page_size)


@dataclass(frozen=True, slots=True)
class Code2WavConfig:
    device: str = setting(
        "auto", as_device, DEVICE, "where Code2Wav runs; auto: cuda:0, or cpu without a GPU", flag="code2wav_device"
    )
    # tf32: values are float32, but products use 10 bits of their mantissa
    dtype: CodecDtypeName = setting(
        "float32",
        as_choice("auto", "float32", "tf32", "float16"),
        "auto|float32|tf32|float16",
        "arithmetic of Code2Wav; tf32 needs CUDA; auto: on CUDA the fastest that sounds the same, else float32",
        flag="code2wav_dtype",
        served="auto",
    )
    chunk_ramp: tuple[int, ...] = internal((1, 2, 4, 8, 12))  # frames of the first chunk, then sizes of later ones
    runaway_silent_frames: int = internal(75)  # a stream ends after so many in a row; 0: never
    max_decode_batch: int = internal(32, served=AUTO)  # streams that are decoded together
    kept_references: int = internal(16, served=AUTO)  # of cloned voices, which stay decoded
    stored_streams: int = setting(
        16, as_positive, "N", "streams of stored codes decoded at the same time; each has its own slot in Code2Wav"
    )


@dataclass(frozen=True, slots=True)
class EncoderConfig:
    device: str = internal("auto", name="encoder_device")  # auto: where the talker runs
    threads: int = internal(0, name="encoder_threads")  # of the CPU; 0: a quarter of the cores, or two
    max_recording_wait_s: float = setting(
        10.0, as_seconds, "S", "refuse a recording that would probably wait for longer until it is encoded"
    )
    encode_timeout_s: float = internal(60.0)  # for decoding, and for encoding, one recording


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Settings of one talker and its Code2Wav; the defaults suit the built-in checkpoint on a small CPU machine."""

    model: Path  # a checkpoint folder in the published layout
    load_format: LoadFormat = setting(
        "safetensors",
        as_choice("safetensors", "dummy"),
        "safetensors|dummy",
        "where weights come from: safetensors: the folder; dummy: random numbers",
    )
    seed: int = internal(0)  # of dummy weights
    dtype: DtypeName = setting(
        "auto",
        as_choice("auto", "float32", "bfloat16"),
        "auto|float32|bfloat16",
        "arithmetic of the talker; auto: float32 on the CPU, the checkpoint's own dtype on a GPU",
    )
    cpu_threads: int = setting(
        0, as_count, "N", "CPU threads per worker; 0 = half of the cores, or less where workers share them"
    )
    enforce_eager: bool = setting(
        False, as_switch, "true|false", "launch CUDA kernels one by one, without graphs: slower, for debugging"
    )
    gpu_memory_gib: float = setting(
        0.0,
        as_gib,
        "N",
        "GiB of each GPU's memory that the server may take, of what is free when it starts; 0 = all that is free",
    )
    hang_timeout_s: float = setting(60.0, as_seconds, "S", "replace a worker that is busy with one step for longer")
    start_timeout_s: float = internal(600.0)  # for the workers to load the model
    talker: TalkerConfig = TalkerConfig()
    code2wav: Code2WavConfig = Code2WavConfig()
    encoder: EncoderConfig = EncoderConfig()
    memory_bytes: int = 0  # of the GPU, that this pair may take; 0: not known, or on the CPU
    is_standby: bool = False  # loaded, but idle until another pair of its model goes down
    wants_standby: bool = False  # whether it is to have one where the GPU has room for one
    standby_delay_s: float = internal(0.0, served=10.0)  # until a standby is loaded, beside the first listeners
    mps_pipe_directory: Path | None = None  # of the MPS daemon to use; None: the environment's daemon, if any

    @classmethod
    def of(cls, model: Path, **settings: Any) -> "EngineConfig":
        """Make a config. Fields of all stages go by unique names: `of(folder, num_slots=8, talker_device="cpu")`."""
        return cls(model).but(**settings)

    def but(self, **settings: Any) -> "EngineConfig":
        """Return a copy with some settings changed, by the names of their flags. Raises TypeError for unknown names."""
        if unknown := settings.keys() - defaults_of(EngineConfig).keys():
            raise TypeError(f"the engine has no such settings: {', '.join(sorted(unknown))}")
        return with_settings(self, settings)

    @property
    def encoder_device(self) -> str:
        """Where recordings are encoded: on the talker's device unless it is set."""
        return self.talker.device if self.encoder.device == "auto" else self.encoder.device

    @property
    def max_streams(self) -> int:
        """How many streams a pair may have at most: in slots and in the queue before them."""
        return self.talker.num_slots + self.talker.max_queued_streams

    @property
    def num_codec_states(self) -> int:
        """Code2Wav's slots: for live streams, for stored codes, for decoded references, and one unused for padding."""
        return self.talker.num_slots + self.code2wav.stored_streams + self.code2wav.kept_references + 1

    def threads(self, stage: StageName) -> int:
        """Return how many CPU threads a worker of this stage has."""
        cores = num_cores()
        if stage == "encoder":
            return self.encoder.threads or max(min(2, cores), cores // 4)
        return self.cpu_threads or max(1, cores // 2)

    @property
    def takes_turns(self) -> bool:
        """Whether talker and Code2Wav, both on the CPU, have more threads together than there are cores."""
        return self.threads("talker") + self.threads("code2wav") > num_cores() > 1

    def environment(self) -> dict[str, str]:
        """Environment variables to add for a worker; CUDA reads them when the worker first uses the GPU."""
        directory = self.mps_pipe_directory
        mps = {} if directory is None else {"CUDA_MPS_PIPE_DIRECTORY": str(directory)}
        return {"TRITON_CACHE_MANAGER": CACHE_MANAGER, **mps}
