"""The training-time forms compute what the serving forms do."""

import time
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import torch
from safetensors.torch import load_file

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.checkpoint.folders import BUILTIN_VOICE_DIR, resolve_model
from sonorant.engine.model.codec.code2wav import UNUSED_TENSORS, Code2Wav
from sonorant.engine.model.weights import TensorFile, load_module
from sonorant.training.clock import Clock
from sonorant.training.codec.decoder import decode_latents
from sonorant.training.codec.encode import load_encoder
from sonorant.training.codec.export import write_codec_weights
from sonorant.training.codec.pool import SpeechPool
from sonorant.training.codec.quantizer import BookGroup
from sonorant.training.codec.reload import load_codec
from sonorant.training.codec.settings import FULL_CODEC, SMALL_CODEC
from sonorant.training.codec.spectra import SAMPLE_RATE_HZ, SpectralDistance
from sonorant.training.codec.stage1 import train_stage1
from sonorant.training.shards import shard_path
from tests.training.spoken_shards import random_codes, shard_of

CPU = torch.device("cpu")


def load_decoder(checkpoint: Checkpoint) -> Code2Wav:
    decoder = Code2Wav(checkpoint.codec.decoder)
    file = TensorFile(BUILTIN_VOICE_DIR / "speech_tokenizer" / "model.safetensors")
    load_module(decoder, file, "decoder.", CPU, torch.float32, optional_unused=UNUSED_TENSORS)
    return decoder


@torch.no_grad()
def test_whole_crops_decode_as_streams_do(checkpoint: Checkpoint) -> None:
    plain, serving = load_decoder(checkpoint), load_decoder(checkpoint)
    serving.prepare()
    c = checkpoint.codec.decoder
    codes = torch.randint(c.codebook_size, (2, 20, c.num_quantizers), generator=torch.Generator().manual_seed(0))
    streamed = serving.step(codes, serving.new_state(2), torch.arange(2))
    samples, latents = decode_latents(plain, serving.quantizer(codes).transpose(1, 2))
    assert latents.shape == (2, c.latent_dim, 80)
    assert torch.allclose(samples.clamp(-1, 1), streamed, atol=1e-4)


@torch.no_grad()
def test_batches_encode_as_single_recordings_do() -> None:
    encoder = load_encoder(BUILTIN_VOICE_DIR, CPU)
    noise = torch.randn(2, 10 * 1920, generator=torch.Generator().manual_seed(0)) * 0.1
    noise[1, 6 * 1920 :] = 0
    batch = encoder.encode(noise)
    assert torch.equal(batch[0], encoder(noise[0]))
    assert torch.equal(batch[1, :6], encoder(noise[1, : 6 * 1920]))


def test_books_learn_to_keep_what_they_are_shown() -> None:
    torch.manual_seed(0)
    vectors = torch.randn(1, 400, 4)
    started, moved = (BookGroup(num_books=2, num_codes=8, vector_dim=4, in_dim=4, out_dim=4) for _ in range(2))
    started.start(vectors[0])
    for step in range(100):
        moved.quantize(vectors, decay=0.9, revive=step % 10 == 0)
    for group in (started, moved):
        kept, commitment = group.quantize(vectors, decay=None, revive=False)
        assert (kept - vectors).square().mean() < 0.35 * vectors.square().mean()
        assert 0 < commitment < 0.7


def test_a_codec_comes_back_as_it_was_written(tmp_path: Path) -> None:
    write_codec_weights(tmp_path, *load_codec(BUILTIN_VOICE_DIR, replace(FULL_CODEC, num_codebooks=6)), decoder=None)
    before = load_file(BUILTIN_VOICE_DIR / "speech_tokenizer" / "model.safetensors")
    after = load_file(tmp_path / "model.safetensors")
    assert after.keys() == before.keys()
    assert [name for name in before if not torch.equal(before[name], after[name])] == []


class Noise:
    device, num_frames = CPU, 8

    def crops(self, num_frames: int, number: int, at_starts: float) -> tuple[torch.Tensor, ...]:
        samples = 0.05 * torch.randn(number, num_frames * 1920)
        return samples, torch.zeros(number, 4 * num_frames, dtype=torch.long), torch.ones(number)


def test_a_trained_codec_stays_as_it_is_until_its_heads_read_it(tmp_path: Path) -> None:
    settings = replace(SMALL_CODEC, steps_without_books=1, stage1_crops=((2, 1),))
    _, books, _ = load_codec(resolve_model("builtin_base"), settings)
    before = {name: tensor.clone() for name, tensor in books.state_dict().items()}

    def changed_after(steps: int) -> set[str]:
        clock = Clock(tmp_path / f"{steps}.pt", steps)
        pool = cast(SpeechPool, Noise())
        train_stage1(books, pool, settings, lambda: None, clock, ends_at_s=time.time() + 60, trained=True)
        after = books.state_dict()
        return {name.partition(".")[0] for name in before if not torch.equal(before[name], after[name])}

    assert changed_after(1) == {"head", "first_phones"}
    assert changed_after(2) == {name.partition(".")[0] for name in before}


def test_another_pitch_is_far_in_the_low_spectrum_and_near_in_mels() -> None:
    times = torch.arange(SAMPLE_RATE_HZ) / SAMPLE_RATE_HZ
    harmonics = torch.arange(1, 30)[:, None]

    def voice(f0_hz: float) -> torch.Tensor:
        return 0.3 * (torch.sin(2 * torch.pi * f0_hz * harmonics * times) / harmonics).sum(0, keepdim=True)

    distance = SpectralDistance()
    mel, low = distance(voice(110), voice(130))
    assert low > 2 * mel / 6  # mels are a sum over six windows
    assert sum(distance(voice(110), voice(110))) == 0


def test_a_shard_of_which_all_is_held_out_gives_no_speech(checkpoint: Checkpoint, tmp_path: Path) -> None:
    shard = shard_of(random_codes(checkpoint, 5, 7))
    for number, kept in enumerate((shard, replace(shard, rows=shard.rows + 2))):
        replace(kept, audio=np.zeros(12 * 1920, np.int16)).save(shard_path(tmp_path, number))
    pool = SpeechPool(CPU, max_frames=40, held_out=frozenset({0, 1}))
    assert pool.poll(tmp_path, 1) == 1 and pool.num_frames == 0
    assert pool.poll(tmp_path, 1) == 1 and pool.num_frames == 12
