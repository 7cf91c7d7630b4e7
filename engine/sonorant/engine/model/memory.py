"""How much memory a worker will take, computed before it loads anything."""

from dataclasses import dataclass

import torch
from torch import nn

from sonorant.engine.card.card import GIB, gib
from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.config import EngineConfig
from sonorant.engine.cuda import compute_dtype, find_device
from sonorant.engine.errors import EngineError
from sonorant.engine.model.codec.code2wav import Code2Wav
from sonorant.engine.model.codec.codec_encoder import CodecEncoder
from sonorant.engine.model.rounded import Rounding, use_rounded
from sonorant.engine.model.speaker_encoder import SpeakerEncoder
from sonorant.engine.model.talker import Talker
from sonorant.engine.sizes import max_pass_frames
from sonorant.engine.types import MAX_RECORDING_S

CUDA_BYTES = int(0.8 * GIB)  # per worker on a GPU: context, libraries, graphs
# That graphs of the codec keep for a pass, of its widest layer's float16 output: measured with 128 to 1,024 frames.
PASS_ACTIVATIONS = 14
ENCODER_ACTIVATIONS = 4  # of its largest layer, at the same time
UNLIMITED = 2**63  # bytes
PROMPT_POSITIONS = 512  # room for a prompt beside the frames


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """What one worker needs, in bytes."""

    device: torch.device
    weights: int
    state: int  # the least that works: KV pages, or the codec's state of each slot
    wanted_state: int  # enough for an utterance of default length in every slot
    activations: int = 0  # on a GPU, beside those in CUDA_BYTES

    @property
    def total(self) -> int:
        on_gpu = CUDA_BYTES + self.activations if self.device.type == "cuda" else 0
        return self.weights + self.state + on_gpu


def talker_need(checkpoint: Checkpoint, config: EngineConfig, *, rounding: Rounding | None = None) -> MemoryNeed:
    """`rounding`: of its matrices, if it will run with rounded ones."""
    device = find_device(config.talker.device)
    dtype = compute_dtype(config.dtype, checkpoint.dtype, device)
    with torch.device("meta"):
        talker = Talker(checkpoint)
        if rounding is not None:
            talker.to(compute_dtype("auto", checkpoint.dtype, torch.device("cuda")))
            talker.join()
            use_rounded(talker, rounding)
    weights = _num_values(talker) * dtype.itemsize if rounding is None else _num_bytes(talker)
    page = kv_page_bytes(checkpoint, config, dtype)
    least, wanted = num_pages(checkpoint, config)
    return MemoryNeed(device, weights, least * page, wanted * page)


def code2wav_need(checkpoint: Checkpoint, config: EngineConfig) -> MemoryNeed:
    device, sizes = find_device(config.code2wav.device), checkpoint.codec.decoder
    # On a card "auto" ends in float16, unless the checkpoint does not agree with that, which none did so far.
    is_half = config.code2wav.dtype == "float16" or (config.code2wav.dtype == "auto" and device.type == "cuda")
    itemsize = 2 if is_half else 4
    with torch.device("meta"):
        decoder = Code2Wav(checkpoint.codec.decoder)
        state = decoder.new_state(config.num_codec_states)
    values = sum(array.numel() for array in (state.tails, state.keys, state.values))
    weights = _num_values(decoder) * itemsize
    frames = max_pass_frames(device.type, config.talker.num_slots, itemsize)
    widest = sizes.frame_samples * (sizes.decoder_dim >> len(sizes.upsample_rates))
    activations = PASS_ACTIVATIONS * frames * widest * itemsize
    return MemoryNeed(device, weights, values * itemsize, values * itemsize, activations)


def encoder_need(checkpoint: Checkpoint, config: EngineConfig) -> MemoryNeed | None:
    """None for a checkpoint that cannot clone."""
    if checkpoint.speaker_encoder is None:
        return None
    device = find_device(config.encoder_device)
    with torch.device("meta"):
        codec, speaker = CodecEncoder(checkpoint.codec), SpeakerEncoder(checkpoint.speaker_encoder)
    weights = (
        4 * _num_values(codec) + _num_values(speaker) * compute_dtype(config.dtype, checkpoint.dtype, device).itemsize
    )
    num_filters = codec.encoder.layers[0].get_parameter("conv.weight").shape[0]
    largest = 4 * round(MAX_RECORDING_S * checkpoint.codec.input_sample_rate) * num_filters
    return MemoryNeed(device, weights, ENCODER_ACTIVATIONS * largest, ENCODER_ACTIVATIONS * largest)


def allowed_beside_weights(checkpoint: Checkpoint, config: EngineConfig) -> int:
    """Return how much of a GPU's memory the pair may take beside what its workers need in any case, in bytes."""
    if not config.memory_bytes:
        return UNLIMITED
    talker = talker_need(checkpoint, config)
    others = [code2wav_need(checkpoint, config), encoder_need(checkpoint, config)]
    needed = sum(other.total for other in others if other is not None and other.device == talker.device)
    return max(0, config.memory_bytes - talker.weights - CUDA_BYTES - needed)


def kv_page_bytes(checkpoint: Checkpoint, config: EngineConfig, dtype: torch.dtype) -> int:
    return config.talker.page_size * checkpoint.talker.stack.kv_values * dtype.itemsize


def num_pages(checkpoint: Checkpoint, config: EngineConfig) -> tuple[int, int]:
    """Return how many KV pages the longest stream needs, and how many an utterance of default length in every slot."""
    if config.talker.num_pages:
        return config.talker.num_pages, config.talker.num_pages
    positions = min(config.talker.max_context, PROMPT_POSITIONS + checkpoint.default_sampling.max_frames)
    needed = config.talker.pages_for(config.talker.max_context)
    return needed, max(needed, config.talker.num_slots * config.talker.pages_for(positions))


def check_fit(worker: str, need: MemoryNeed, free: int) -> None:
    """Raise EngineError if the worker cannot be loaded into so much free memory."""
    if need.total > free:
        raise EngineError(
            f"{worker} needs {gib(need.total)} of memory ({gib(need.weights)} for weights, {gib(need.state)} for the "
            f"state of streams) and {need.device} has {gib(free)} free; free some, use another device, a smaller "
            "checkpoint, or less of num_pages, max_context and num_slots"
        )


def _num_values(module: nn.Module) -> int:
    return sum(tensor.numel() for tensor in (*module.parameters(), *module.buffers()))


def _num_bytes(module: nn.Module) -> int:
    return sum(tensor.nbytes for tensor in module.parameters())
