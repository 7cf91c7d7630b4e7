"""Stage `encode`: the teacher's audio as codec frames, shard by shard, as the shards appear."""

import logging
import math
import time
from dataclasses import replace
from multiprocessing.synchronize import Event
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from engine.checkpoint import load_checkpoint
from engine.model.codec_encoder import CodecEncoder
from engine.model.weights import TensorFile, load_module
from engine.training.alignment import FRAME_SAMPLES
from engine.training.shards import Shard

logger = logging.getLogger(__name__)

PEAK = 0.9  # of full scale: the teacher's loudest, with room for what the decoder overshoots
MAX_BATCH_FRAMES = {"cuda": 8192, "cpu": 128}  # 8192 frames take 10 GB
_SINC_ZEROS = 24
_ROLL_OFF = 0.985


def encode_all(
    checkpoint_folder: Path, audio_folder: Path, codes_folder: Path, device: torch.device, spoken: Event, stop: Event
) -> None:
    """Until all is `spoken` and encoded, or `stop`. A shard's audio is removed when its codes are written."""
    encoder = load_encoder(checkpoint_folder, device)
    while not stop.is_set():
        ended = spoken.is_set()
        paths = sorted(p for p in audio_folder.glob("[0-9]*.npz") if p.suffixes == [".npz"])
        for path in paths[:8]:
            shard = Shard.load(path)
            encoded = replace(shard, audio=np.zeros(0, np.int16), codes=encode_shard(encoder, shard, device))
            encoded.save(codes_folder / path.name)
            path.unlink()
        if ended and not paths:
            return
        if not paths:
            time.sleep(0.2)


def load_encoder(checkpoint_folder: Path, device: torch.device) -> CodecEncoder:
    encoder = CodecEncoder(load_checkpoint(checkpoint_folder).codec)
    file = TensorFile(checkpoint_folder / "speech_tokenizer" / "model.safetensors")
    load_module(encoder, file, "encoder.", torch.device("cpu"), torch.float32)
    return encoder.to(device)


@torch.inference_mode()
def encode_shard(encoder: CodecEncoder, shard: Shard, device: torch.device) -> np.ndarray:
    """[frames of the shard, codebooks] int16. Sentences of like length share a batch; the encoder is causal, so what
    stands after a sentence does not matter."""
    ends = np.cumsum(shard.num_frames)
    audio = torch.from_numpy(shard.audio).to(device).float() * (PEAK / 32768)
    codes = np.zeros((int(ends[-1]), encoder.num_codebooks), np.int16)
    order = np.argsort(shard.num_frames, kind="stable")
    while len(order):
        longest = int(shard.num_frames[order[-1]])
        size = max(1, MAX_BATCH_FRAMES[device.type] // longest)
        batch, order = order[-size:], order[:-size]
        samples = torch.zeros(len(batch), longest * FRAME_SAMPLES, device=device)
        for row, i in enumerate(batch):
            first, last = (ends[i] - shard.num_frames[i]) * FRAME_SAMPLES, ends[i] * FRAME_SAMPLES
            samples[row, : last - first] = audio[first:last]
        made = encode(encoder, resample_16_to_24_khz(samples)).cpu().numpy()
        for row, i in enumerate(batch):
            codes[ends[i] - shard.num_frames[i] : ends[i]] = made[row, : shard.num_frames[i]]
    return codes


def encode(encoder: CodecEncoder, samples: Tensor) -> Tensor:
    """samples [sentences, whole frames] at 24 kHz -> codes [sentences, frames, codebooks]."""
    x = encoder.encoder(samples[:, None])
    x = encoder.encoder_transformer(x.transpose(1, 2))[0].transpose(1, 2)
    codes: Tensor = encoder.quantizer.encode(encoder.downsample(x), encoder.num_codebooks)
    return codes.permute(1, 2, 0)


def resample_16_to_24_khz(samples: Tensor) -> Tensor:
    """Windowed sinc, [sentences, n] -> [sentences, n * 3 / 2]."""
    up, down = 3, 2
    width = math.ceil(_SINC_ZEROS * down / (down * _ROLL_OFF))
    phases = -torch.arange(up, dtype=torch.float64)[:, None] / up
    times = (phases + torch.arange(-width, width + down, dtype=torch.float64) / down) * (down * _ROLL_OFF)
    times = times.clamp(-_SINC_ZEROS, _SINC_ZEROS)
    window = torch.cos(times * math.pi / _SINC_ZEROS / 2) ** 2
    kernel = (torch.sinc(times) * window * _ROLL_OFF).float().to(samples.device)
    padded = F.pad(samples[:, None], (width, width + down))
    return F.conv1d(padded, kernel[:, None], stride=down).transpose(1, 2).flatten(1)[:, : samples.shape[1] * up // down]
