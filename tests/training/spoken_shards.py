"""Shards of sentences with random or given codes, as training meets them, and the stores that hold them."""

from dataclasses import fields

import numpy as np
import torch

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.checkpoint.folders import BUILTIN_VOICE_DIR
from sonorant.engine.prompt.tokenizer import Tokenizer
from sonorant.engine.types import Int16Array
from sonorant.training.references import NUM_MELS, REFERENCE_FRAMES, references_of
from sonorant.training.shards import Shard
from sonorant.training.speakers import NUM_TRAITS
from sonorant.training.talker.losses import DeviceBatch
from sonorant.training.talker.packing import Batch
from sonorant.training.talker.rows import RowStore, StoreSizes

TEXT = "Good morning, this is a test."  # of every sentence


def shard_of(codes: list[Int16Array], voice: int = 0, each: int = 0) -> Shard:
    """`each`: sentences of one made speaker, of which the first is a reference."""
    rng = np.random.default_rng(1)
    speakers = np.arange(len(codes)) // each * each if each else np.full(len(codes), voice)
    references = references_of(speakers, 1) if each else np.zeros(0, np.int32)
    tokens = np.array(Tokenizer.load(BUILTIN_VOICE_DIR).encode(TEXT), np.int16)
    num_frames = np.array([len(c) for c in codes], np.int32)
    return Shard(
        rows=np.arange(len(codes), dtype=np.int32),
        languages=np.zeros(len(codes), np.int8),
        voices=speakers.astype(np.int32),
        traits=rng.uniform(-1, 1, (len(codes), NUM_TRAITS)).astype(np.float32),
        teachers=np.zeros(len(codes), np.int8),
        num_frames=num_frames,
        num_tokens=np.full(len(codes), len(tokens), np.int32),
        tokens=np.tile(tokens, len(codes)),
        guide=np.concatenate([np.minimum(np.arange(n) // 4, len(tokens) - 1) for n in num_frames]).astype(np.int16),
        phones=np.zeros(num_frames.sum() * 4, np.int8),
        audio=np.zeros(0, np.int16),
        codes=np.concatenate(codes),
        references=references,
        mels=rng.normal(-6, 3, (len(references), REFERENCE_FRAMES, NUM_MELS)).astype(np.float16),
    )


def store_of(checkpoint: Checkpoint, shard: Shard, held_out: frozenset[int] = frozenset()) -> RowStore:
    sizes = StoreSizes(max_rows=40_000, max_frames=8_000, max_references=16)
    store = RowStore(checkpoint, BUILTIN_VOICE_DIR, torch.device("cpu"), sizes)
    store.append(shard, held_out)
    return store


def on_device(batch: Batch) -> DeviceBatch:
    return DeviceBatch(**{f.name: torch.from_numpy(getattr(batch, f.name)) for f in fields(DeviceBatch)})


def random_codes(checkpoint: Checkpoint, *num_frames: int) -> list[Int16Array]:
    rng = np.random.default_rng(0)
    shape = checkpoint.talker.num_codebooks
    return [rng.integers(0, checkpoint.code_predictor.vocab_size, (n, shape), dtype=np.int16) for n in num_frames]
