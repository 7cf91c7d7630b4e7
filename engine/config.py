"""One frozen object with every setting of a worker pair. Read nowhere else, and no environment variables anywhere."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

LoadFormat = Literal["safetensors", "dummy"]
DtypeName = Literal["auto", "float32", "bfloat16"]
CodecDtypeName = Literal["float32", "tf32", "float16"]  # bfloat16 costs audible noise
PriorityName = Literal["normal", "below-normal"]
StageName = Literal["talker", "code2wav", "encoder"]
MpsMode = Literal["auto", "true", "false"]


def device_with_gpus(name: str) -> str:
    """The device of this name on a machine with GPUs, of several names for it always the same."""
    return "cuda:0" if name in ("auto", "cuda") else name


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Settings of one talker and its Code2Wav; defaults suit the built-in checkpoint on a small CPU machine."""

    model: Path  # a checkpoint folder in the published layout
    load_format: LoadFormat = "safetensors"  # dummy: seeded random weights of the configured shape
    dtype: DtypeName = "auto"  # auto: float32 on CPU, the checkpoint's own on CUDA
    talker_device: str = "auto"  # auto: cuda:0 where there is one, else cpu
    code2wav_device: str = "auto"
    code2wav_dtype: CodecDtypeName = "float32"  # tf32: float32, multiplied with 10 bits of mantissa (CUDA only)
    num_slots: int = 32  # streams stepped together by the talker
    max_queued_streams: int = 32  # opened, waiting for a slot
    max_context: int = 4096  # positions (prompt rows + frames) one stream may need
    num_pages: int = 0  # KV pages of `page_size` positions; 0 = all that the slots can need, as far as memory allows
    page_size: int = 16
    kv_memory_share: float = 0.6  # of the GPU memory free beside the weights, for pages of all talkers on that GPU
    max_prefill_rows: int = 256  # prompt rows per step, over all streams; live streams wait for them
    credit_frames: int = 48  # frames a stream may be ahead of what its client has taken
    runaway_frames_per_token: int = 12  # a stream with more per text token, and 96, has lost its way; 0 = no limit
    runaway_repeated_frames: int = 64  # so many in a row, once it has half as many frames as that; 0 = no limit
    runaway_silent_frames: int = 75  # in a row; 0 = no limit
    chunk_ramp: tuple[int, ...] = (1, 2, 4, 8, 12)  # frames per Code2Wav chunk; the last one repeats
    max_decode_batch: int = 32  # streams per Code2Wav call
    enforce_eager: bool = False  # CUDA: launch kernels one by one instead of replaying graphs, for finding faults
    kept_references: int = 16  # codec states after references, so that a cloned voice decodes its own once
    encoder_device: str = "cpu"  # of recordings to clone, which then take nothing from the streams of a GPU
    encoder_threads: int = 0  # 0 = a quarter of the cores this process may use
    max_queued_recordings: int = 8  # the one being encoded included
    encode_timeout_s: float = 60.0  # for one recording; the encoder is replaced after that
    encoder_idle_s: float = 600.0  # without a recording, until the encoder process is stopped
    cpu_threads: int = 0  # per worker; 0 = half of the cores this process may use
    talker_cpu_threads: int = 0  # 0 = `cpu_threads`
    code2wav_cpu_threads: int = 0
    code2wav_sm_percent: int = 0  # share of the GPU's multiprocessors it may use under MPS; 0 = all
    code2wav_priority: PriorityName = "below-normal"  # of its kernels under MPS: steps of a talker there go first
    mps_pipe_directory: Path | None = None  # of the MPS daemon to use; None: that of the environment, if there is one
    hang_timeout_s: float = 60.0  # a worker busy with one step for longer is killed and restarted
    start_timeout_s: float = 600.0
    seed: int = 0  # of dummy weights

    @property
    def max_streams(self) -> int:
        return self.num_slots + self.max_queued_streams

    def threads(self, stage: StageName) -> int:
        num_cores = len(os.sched_getaffinity(0))
        if stage == "encoder":
            return self.encoder_threads or max(1, num_cores // 4)
        own = self.talker_cpu_threads if stage == "talker" else self.code2wav_cpu_threads
        return own or self.cpu_threads or max(1, num_cores // 2)

    def environment(self, stage: StageName) -> dict[str, str]:
        """What the worker's environment has beside ours; CUDA reads it when the worker first uses the GPU."""
        values = {}
        if self.mps_pipe_directory is not None:
            values["CUDA_MPS_PIPE_DIRECTORY"] = str(self.mps_pipe_directory)
        if stage == "code2wav" and self.code2wav_sm_percent:
            values["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(self.code2wav_sm_percent)
        if stage == "code2wav" and self.code2wav_priority == "below-normal":
            values["CUDA_MPS_CLIENT_PRIORITY"] = "1"  # 0 is normal, and there is nothing above
        return values
