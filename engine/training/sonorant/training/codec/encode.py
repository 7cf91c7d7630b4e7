"""Encodes the teacher's audio to codec frames, shard by shard, as the shards appear."""

import logging
import time
from dataclasses import replace
from multiprocessing.synchronize import Event
from pathlib import Path

import numpy as np
import torch

from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.model.codec.codec_encoder import CodecEncoder
from sonorant.engine.model.weights import TensorFile, load_module
from sonorant.training.alignment import FRAME_SAMPLES
from sonorant.training.audio import PEAK
from sonorant.training.references import ReferenceMels, references_of
from sonorant.training.shards import Shard

logger = logging.getLogger(__name__)

KEPT_SHARDS = 160  # whose audio stays: 40,000 sentences in a full-sized run, 5 GB
MAX_BATCH_FRAMES = {"cuda": 8192, "cpu": 128}  # 8192 frames take 10 GB


def encode_all(
    checkpoint_folder: Path,
    audio_folder: Path,
    codes_folder: Path,
    references_each: int,
    device: torch.device,
    spoken: Event,
    stop: Event,
) -> None:
    """Encode until `spoken` is set and all shards are encoded, or until `stop` is set.

    When a shard's codes are written its audio is removed, except for the first KEPT_SHARDS, which the codec trains on.
    `references_each`: how many sentences of each speaker have their mels kept.
    """
    encoder = load_encoder(checkpoint_folder, device)
    listen = ReferenceMels(device)
    while not stop.is_set():
        ended = spoken.is_set()
        paths = [p for p in sorted(audio_folder.glob("?????.npz")) if not (codes_folder / p.name).exists()]
        for path in paths[:8]:
            if stop.is_set():
                return
            shard = Shard.load(path)
            references = references_of(shard.voices, references_each)
            replace(
                shard,
                audio=np.zeros(0, np.int16),
                codes=encode_shard(encoder, shard, device),
                references=references,
                mels=listen(shard, references),
            ).save(codes_folder / path.name)
            if int(path.stem) >= KEPT_SHARDS:
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
    """Return the codes [frames of the shard, codebooks] int16. Sentences of similar length share a batch; the encoder
    is causal, so the padding after a sentence does not matter."""
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
        made = encoder.encode(samples).cpu().numpy()
        for row, i in enumerate(batch):
            codes[ends[i] - shard.num_frames[i] : ends[i]] = made[row, : shard.num_frames[i]]
    return codes
