"""The decoder on its device: weights, the state of every slot, and calls that take some slots a few frames further.

Knows slots, not streams, and decides nothing about when to decode what.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from engine.checkpoint import Checkpoint
from engine.config import EngineConfig
from engine.cuda import compute_dtype, find_device
from engine.model.code2wav import UNUSED_TENSORS, Code2Wav
from engine.model.weights import TensorFile, init_random, load_module
from engine.types import Float32Array, Int16Array

PCM_SCALE = 32767.0

# Frames of all rows together in one pass of the network, which bounds the memory of its activations (about 5 MB per
# frame in the published size). More are done in several passes, as streaming is exact.
MAX_PASS_FRAMES = {"cpu": 96, "cuda": 1024}


class Code2WavRunner:
    def __init__(self, checkpoint: Checkpoint, config: EngineConfig, *, float_output: bool = False) -> None:
        self.frame_samples = checkpoint.codec.frame_samples
        self.num_slots = config.num_slots
        self._float_output = float_output
        self._device = find_device(config.code2wav_device)
        self._max_pass_frames = MAX_PASS_FRAMES[self._device.type]
        dtype = compute_dtype(config.dtype, "float32", self._device)  # the published codec is float32 on disk
        with torch.device("meta"):
            self._decoder = Code2Wav(checkpoint.codec.decoder)
        if config.load_format == "dummy":
            init_random(self._decoder, self._device, dtype, config.seed)
        else:
            file = TensorFile(checkpoint.folder / "speech_tokenizer" / "model.safetensors")
            load_module(self._decoder, file, "decoder.", self._device, dtype, optional_unused=UNUSED_TENSORS)
        with torch.inference_mode():
            self._decoder.prepare()
            self._state = self._decoder.new_state(self.num_slots)
        self._warm_up(config.chunk_ramp, checkpoint.codec.decoder.num_quantizers)

    def reset(self, slot: int) -> None:
        """Forget the stream that the slot had before."""
        with torch.inference_mode():
            self._state.reset(slot)

    @torch.inference_mode()
    def decode(self, slots: Sequence[int], codes: Int16Array) -> Int16Array | Float32Array:
        """The next frames of some slots: [rows, frames, codebooks] -> samples [rows, frames * frame_samples]."""
        slot_rows = torch.tensor(slots).to(self._device, non_blocking=True)
        code_rows = torch.from_numpy(codes).to(self._device, torch.int64, non_blocking=True)
        rows_per_pass = max(1, self._max_pass_frames // codes.shape[1])
        passes = [
            self._decode_rows(row_slots, row_codes)
            for row_slots, row_codes in zip(
                torch.split(slot_rows, rows_per_pass), torch.split(code_rows, rows_per_pass), strict=True
            )
        ]
        samples = torch.cat(passes).float()
        if not self._float_output:
            samples = samples.mul_(PCM_SCALE).round_().to(torch.int16)
        array: Int16Array | Float32Array = samples.cpu().numpy()
        return array

    def _decode_rows(self, slots: Tensor, codes: Tensor) -> Tensor:
        pieces = torch.split(codes, self._max_pass_frames, dim=1)
        return torch.cat([self._decoder.step(piece, self._state, slots) for piece in pieces], dim=1)

    def _warm_up(self, chunk_sizes: Sequence[int], num_codebooks: int) -> None:
        """The first call of each shape is slow; let it be here and not in somebody's first audio."""
        for num_frames in sorted(set(chunk_sizes)):
            self.decode([0], np.zeros((1, num_frames, num_codebooks), np.int16))
        self.reset(0)
