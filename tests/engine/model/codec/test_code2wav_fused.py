"""The fused decoder says what the plain one says. Without a GPU the kernels are interpreted, slowly: few frames."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.model.codec.code2wav import UNUSED_TENSORS, Code2Wav
from sonorant.engine.model.weights import TensorFile, load_module
from tests.tiny_checkpoint import write_tiny_checkpoint

pytest.importorskip("triton", reason="Triton comes with the CUDA builds of torch, and with the extra `dev`")

from sonorant.engine.model.codec.code2wav_fused import FusedCode2Wav

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SMALL = {"upsample_rates": (2, 3, 2, 2)}
OTHER = SMALL | {"codec_window": 3, "heads": 2, "codebooks": 6, "decoder_dim": 48}
IS_CUDA = DEVICE.type == "cuda"


@pytest.fixture(scope="module", params=[SMALL, OTHER])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("checkpoint"), **request.param)


def load_decoder(folder: Path, dtype: torch.dtype) -> Code2Wav:
    with torch.device("meta"):
        decoder = Code2Wav(load_checkpoint(folder).codec.decoder)
    file = TensorFile(folder / "speech_tokenizer" / "model.safetensors")
    load_module(decoder, file, "decoder.", DEVICE, dtype, optional_unused=UNUSED_TENSORS)
    decoder.prepare()
    return decoder


@pytest.mark.slow
@pytest.mark.rare
@torch.inference_mode()
@pytest.mark.parametrize("chunks", [[3], [2, 1], [1, 9, 2]])
def test_chunks_of_any_size_give_the_audio_of_the_plain_decoder(folder: Path, chunks: Sequence[int]) -> None:
    plain = load_decoder(folder, torch.float32)
    torch.manual_seed(sum(chunks))
    codes = torch.randint(0, plain.config.codebook_size, (2, sum(chunks), plain.config.num_quantizers), device=DEVICE)
    slots = torch.tensor([2, 0], device=DEVICE)
    expected = plain.step(codes, plain.new_state(3), slots)
    fused = FusedCode2Wav(load_decoder(folder, torch.float16) if IS_CUDA else plain)
    state = fused.new_state(3)
    before = [array[1].clone() for array in fields(state)]
    parts = [fused.step(part, state, slots) for part in codes.split(list(chunks), 1)]
    noise = torch.hstack(parts) - expected
    if IS_CUDA:
        assert expected.square().mean() > 4000 * noise.square().mean()  # 36 dB
    else:
        assert noise.abs().max() < 1e-5
    assert state.num_frames.tolist() == [sum(chunks), 0, sum(chunks)]
    for array, was in zip(fields(state), before, strict=True):
        assert torch.equal(array[1], was)


@pytest.mark.slow
@torch.inference_mode()
def test_frames_are_attended_to_as_by_the_plain_decoder(folder: Path) -> None:
    plain = load_decoder(folder, torch.float32)
    torch.manual_seed(1)
    codes = torch.randint(0, plain.config.codebook_size, (2, 7, plain.config.num_quantizers), device=DEVICE)
    slots = torch.tensor([2, 0], device=DEVICE)
    fused = FusedCode2Wav(load_decoder(folder, torch.float16) if IS_CUDA else plain)
    samples = []
    for decoder in (plain, fused):
        state = decoder.new_state(3)
        decoder.attend(codes[:, :2], state, slots)
        decoder.attend(codes[:, 2:6], state, slots)
        assert state.num_frames.tolist() == [6, 0, 6]
        samples.append(decoder.step(codes[:, 6:], state, slots))
    noise = samples[1] - samples[0]
    if IS_CUDA:
        assert samples[0].square().mean() > 4000 * noise.square().mean()  # 36 dB
    else:
        assert noise.abs().max() < 1e-5


def fields(state: object) -> list[torch.Tensor]:
    return [getattr(state, field.name) for field in dataclasses.fields(state)]  # type: ignore[arg-type]
