"""A narrower decoder that is made of a trained one, and the stage that trains it further."""

import shutil
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from safetensors.torch import load_file
from torch import Tensor

from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.checkpoint.folders import resolve_model
from sonorant.engine.model.codec.code2wav import Code2Wav
from sonorant.engine.offline import synthesize
from sonorant.training.codec.decoder import decode_latents, layers_of
from sonorant.training.codec.export import write_codec_config
from sonorant.training.codec.narrow import narrowed
from sonorant.training.codec.reload import load_code2wav
from sonorant.training.codec.settings import SMALL_CODEC
from sonorant.training.codec.train import CodecTraining, train_codec, train_decoder
from tests.training.spoken_shards import shard_of

CPU = torch.device("cpu")
BASE = resolve_model("builtin_base")
WIDTH = 160
SETTINGS = replace(
    SMALL_CODEC,
    decoder_dim=WIDTH,
    stage2_crop=(4, 1),
    compared_frames=2,
    period_channels=(2, 4),
    spectral_channels=2,
    max_frames=2_000,
    stage1_crops=((2, 1),),
    max_steps=1,
)


def vectors_of(decoder: Code2Wav, num_crops: int, num_frames: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return 0.3 * torch.randn(num_crops, decoder.config.codebook_dim, num_frames, generator=generator)


@torch.no_grad()
@pytest.mark.parametrize(("width", "most"), [(176, 1e-4), (WIDTH, 0.5)])
def test_it_sounds_like_the_wide_one(width: int, most: float) -> None:
    wide = load_code2wav(BASE)
    vectors = vectors_of(wide, 4, 12)
    samples, latents = decode_latents(wide, vectors)
    narrow = narrowed(wide, width, latents)
    assert narrow.config.decoder_dim == width
    assert [len(layer.block[0].alpha) for layer in layers_of(narrow.decoder)[1:-2]] == [width >> i for i in range(4)]
    made, same = decode_latents(narrow, vectors)
    assert torch.equal(same, latents)
    assert (made - samples).square().mean() <= most * samples.square().mean()


def write_noise(folder: Path) -> None:
    noise = np.random.default_rng(0).normal(0, 1000, 600 * 1920).astype(np.int16)
    silent = shard_of([np.zeros((300, 6), np.int16)] * 2)
    replace(silent, audio=noise).save(folder / "audio" / "00000.npz")


def codec_training(folder: Path, weights_from: Path | None = None) -> CodecTraining:
    return CodecTraining(
        checkpoint=folder / "checkpoint",
        settings=SETTINGS,
        run_folder=folder,
        audio=folder / "audio",
        held_out=frozenset(),
        device=CPU,
        watch=lambda: None,
        ends_at_s=time.time() + 100,
        seed=1,
        weights_from=weights_from,
        rate=1.0,
        eager=False,
    )


def test_a_wider_decoder_is_made_as_narrow_as_wanted_and_trained(tmp_path: Path) -> None:
    shutil.copytree(BASE, tmp_path / "checkpoint")
    write_noise(tmp_path)
    before, config = load_checkpoint(BASE).codec, tmp_path / "checkpoint" / "speech_tokenizer" / "config.json"
    train_decoder(codec_training(tmp_path))
    after = load_checkpoint(tmp_path / "checkpoint").codec
    assert after == replace(before, decoder=replace(before.decoder, decoder_dim=WIDTH))
    old, new = (load_file(f / "speech_tokenizer" / "model.safetensors") for f in (BASE, tmp_path / "checkpoint"))
    assert old.keys() == new.keys()
    assert all(torch.equal(old[name], new[name]) for name in old if name.startswith("encoder.") or "codebook" in name)
    written = config.stat().st_mtime_ns
    train_decoder(codec_training(tmp_path))  # nothing is left to do
    assert config.stat().st_mtime_ns == written
    reference = tmp_path / "reference.wav"
    soundfile.write(reference, 0.1 * np.sin(np.arange(24000) / 30), 24000)
    spoken = synthesize("Hello.", model=tmp_path / "checkpoint", reference=reference, x_vector_only=True, max_frames=3)
    assert len(spoken.samples) == 1920 * len(spoken.codes) > 0


def test_a_codec_goes_on_from_one_with_a_wider_decoder(tmp_path: Path) -> None:
    shutil.copytree(BASE, tmp_path / "checkpoint")
    write_codec_config(tmp_path / "checkpoint" / "speech_tokenizer", SETTINGS)
    write_noise(tmp_path)
    widths: list[int] = []

    def remember_width() -> None:  # while others begin to encode with what is there
        widths.append(load_code2wav(tmp_path / "checkpoint").config.decoder_dim)

    train_codec(codec_training(tmp_path, BASE), remember_width)
    assert [*widths, load_code2wav(tmp_path / "checkpoint").config.decoder_dim] == [WIDTH, WIDTH]
