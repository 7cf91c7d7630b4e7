import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from torch import nn

from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.checkpoint.folders import PRESETS_DIR
from sonorant.engine.errors import CheckpointError
from sonorant.engine.model.codec.code2wav import Code2Wav
from sonorant.engine.model.codec.codec_encoder import CodecEncoder
from sonorant.engine.model.speaker_encoder import SpeakerEncoder
from sonorant.engine.model.talker import Talker
from sonorant.engine.model.verify import verify_checkpoint
from sonorant.engine.model.weights import TensorFile, check_tensors, init_random, load_module
from tests.tiny_checkpoint import write_tiny_checkpoint

CPU = torch.device("cpu")


def linear() -> nn.Linear:
    return nn.Linear(3, 2, device="meta")


def write(path: Path, **tensors: np.ndarray) -> TensorFile:
    save_file({name.replace("__", "."): tensor for name, tensor in tensors.items()}, path)
    return TensorFile(path)


def test_a_module_gets_its_tensors_in_the_wanted_type(tmp_path: Path) -> None:
    weight = np.arange(6, dtype=np.float16).reshape(2, 3)
    file = write(tmp_path / "w", a__weight=weight, a__bias=np.ones(2, np.float16), b__other=np.ones(1, np.float16))
    module = linear()
    load_module(module, file, "a.", CPU, torch.float32)
    assert module.weight.dtype == torch.float32
    assert torch.equal(module.weight, torch.from_numpy(weight).float())
    assert not module.training
    assert not module.weight.requires_grad
    (tmp_path / "w").write_bytes(b"gone")
    assert module(torch.ones(3)).tolist() == [4.0, 13.0]


def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    file = write(tmp_path / "w", a__weight=np.ones((3, 2), np.float32), a__extra=np.ones(1, np.float32))
    with pytest.raises(CheckpointError) as error:
        load_module(linear(), file, "a.", CPU, torch.float32)
    message = str(error.value)
    assert str(tmp_path / "w") in message
    assert "missing: a.bias" in message
    assert "left over: a.extra" in message
    assert "a.weight is [3, 2], config says [2, 3]" in message


def test_tensors_known_to_be_of_no_use_may_be_there_or_not(tmp_path: Path) -> None:
    tensors = {"a__weight": np.ones((2, 3), np.float32), "a__bias": np.ones(2, np.float32)}
    for more in ({}, {"a__extra": np.ones(1, np.float32)}):
        check_tensors(linear(), write(tmp_path / "w", **tensors, **more), "a.", optional_unused=["extra"])


@pytest.mark.parametrize("content", [None, b"", b"\xff" * 100, (10**9).to_bytes(8, "little") + b"{}"])
def test_a_file_that_is_no_safetensors_file(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "w").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"w is (missing|not a whole)"):
        TensorFile(tmp_path / "w")


def test_a_file_cut_short(tmp_path: Path) -> None:
    write(tmp_path / "w", a__weight=np.ones((200, 3), np.float32))
    (tmp_path / "w").write_bytes((tmp_path / "w").read_bytes()[:-100])
    with pytest.raises(CheckpointError, match="not a whole safetensors file"):
        TensorFile(tmp_path / "w")


def test_random_weights_are_seeded_and_finite() -> None:
    modules = [linear() for _ in range(3)]
    for module, seed in zip(modules, (1, 1, 2), strict=True):
        init_random(module, CPU, torch.bfloat16, seed)
    assert torch.equal(modules[0].weight, modules[1].weight)
    assert not torch.equal(modules[0].weight, modules[2].weight)
    assert modules[0].weight.dtype == torch.bfloat16
    assert modules[0](torch.ones(3, dtype=torch.bfloat16)).isfinite().all()


@pytest.mark.parametrize("task", ["custom_voice", "voice_design", "base"])
def test_whole_checkpoints_verify(tmp_path: Path, task: str) -> None:
    for sizes in ({}, {"predictor_hidden": 32, "codebooks": 6}):
        verify_checkpoint(load_checkpoint(write_tiny_checkpoint(tmp_path, task, **sizes)))


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("model.safetensors", "talker.model.norm.weight"),
        ("model.safetensors", "talker.code_predictor.lm_head.2.weight"),
        ("model.safetensors", "speaker_encoder.fc.bias"),
        ("speech_tokenizer/model.safetensors", "decoder.pre_conv.conv.weight"),
        ("speech_tokenizer/model.safetensors", "encoder.downsample.conv.weight"),
    ],
)
@pytest.mark.parametrize("harm", ["missing", "left over", "wrong shape"])
def test_harmed_checkpoints_do_not(tmp_path: Path, file: str, name: str, harm: str) -> None:
    checkpoint = load_checkpoint(write_tiny_checkpoint(tmp_path, "base"))
    tensors = load_file(tmp_path / file)
    if harm == "missing":
        del tensors[name]
    elif harm == "left over":
        name = name.partition(".")[0] + ".stranger"
        tensors[name] = np.ones(1, np.float32)
    else:
        tensors[name] = np.concatenate([tensors[name], tensors[name]])
    save_file(tensors, tmp_path / file)
    with pytest.raises(CheckpointError, match=f"{file} does not fit its config.json; {harm}: {name}"):
        verify_checkpoint(checkpoint)


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("num_filters", "many", "num_filters must be an integer, not 'many'"),
        ("upsampling_ratios", [8, 0], "upsampling_ratios must be a list of at most 16 integers, 1 to"),
        ("_frame_rate", 0, "_frame_rate must be more than 0 and at most 25, not 0"),
        ("num_semantic_quantizers", 4, "num_semantic_quantizers must be less than num_quantizers 4"),
        ("num_key_value_heads", 3, "attention heads cannot share 3 key-value heads"),
        ("use_causal_conv", False, "use_causal_conv is False; only True is supported"),
    ],
)
def test_an_encoder_config_that_makes_no_network(tmp_path: Path, key: str, value: object, complaint: str) -> None:
    checkpoint = load_checkpoint(write_tiny_checkpoint(tmp_path, "base"))
    encoder = {**checkpoint.codec.encoder, "num_quantizers": 4, key: value}
    codec = dataclasses.replace(checkpoint.codec, encoder=encoder)
    with pytest.raises(CheckpointError, match=re.escape(complaint)):
        verify_checkpoint(dataclasses.replace(checkpoint, codec=codec))


def test_weights_that_are_whole_numbers(tmp_path: Path) -> None:
    file = write(tmp_path / "w", a__weight=np.ones((2, 3), np.int32), a__bias=np.ones(2, np.float32))
    with pytest.raises(CheckpointError, match=r"w: a\.weight is torch\.int32"):
        load_module(linear(), file, "a.", CPU, torch.float32)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite_are_named(tmp_path: Path, value: float) -> None:
    weight = np.ones((2, 3), np.float32)
    weight[1, 2] = value
    file = write(tmp_path / "w", weight=weight, bias=np.ones(2, np.float32))
    with pytest.raises(CheckpointError, match=r"as torch.float32, these have values that are not finite: weight$"):
        load_module(linear(), file, "", CPU, torch.float32)


def test_weights_that_a_number_format_cannot_hold_are_named(tmp_path: Path) -> None:
    file = write(tmp_path / "w", weight=np.full((2, 3), 6e4, np.float32), bias=np.full(2, 7e4, np.float32))
    load_module(linear(), file, "", CPU, torch.float32)
    with pytest.raises(CheckpointError, match=r"as torch.float16, these have values that are not finite: bias$"):
        load_module(linear(), file, "", CPU, torch.float16)


@pytest.mark.slow
def test_building_on_meta_does_not_load_the_compiler() -> None:
    """It takes seconds of each worker's start; transformers brings it too, and only encoding needs that."""
    code = (
        "import sys, torch\nfrom sonorant.engine.checkpoint.config import load_checkpoint\n"
        "from sonorant.engine.checkpoint.folders import BUILTIN_VOICE_DIR\n"
        "from sonorant.engine.model.verify import verify_checkpoint\n"
        "verify_checkpoint(load_checkpoint(BUILTIN_VOICE_DIR))\n"
        "assert not {'torch._dynamo', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_tensors_of_no_component_are_refused(tmp_path: Path) -> None:
    checkpoint = load_checkpoint(write_tiny_checkpoint(tmp_path, "custom_voice"))
    tensors = load_file(tmp_path / "model.safetensors")
    save_file(tensors | {"speaker_encoder.fc.bias": np.ones(1, np.float32)}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"left over: speaker_encoder\.fc\.bias"):
        verify_checkpoint(checkpoint)


@pytest.mark.parametrize(
    ("preset", "num_tensors", "num_parameters"),
    [
        ("qwen3-tts-12hz-0.6b-base", 478, 914_643_008),
        ("qwen3-tts-12hz-0.6b-customvoice", 402, 905_788_672),
        ("qwen3-tts-12hz-1.7b-base", 480, 1_928_677_440),
        ("qwen3-tts-12hz-1.7b-customvoice", 404, 1_916_676_352),
        ("qwen3-tts-12hz-1.7b-voicedesign", 404, 1_916_676_352),
    ],
)
def test_the_published_checkpoints_have_as_many_tensors_and_parameters(
    preset: str, num_tensors: int, num_parameters: int
) -> None:
    checkpoint = load_checkpoint(PRESETS_DIR / preset)
    with torch.device("meta"):
        main = list(Talker(checkpoint).state_dict().values())
        if checkpoint.speaker_encoder is not None:
            main += SpeakerEncoder(checkpoint.speaker_encoder).state_dict().values()
        codec = [*Code2Wav(checkpoint.codec.decoder).state_dict().values()]
        codec += CodecEncoder(checkpoint.codec).state_dict().values()
    assert (len(main), sum(t.numel() for t in main)) == (num_tensors, num_parameters)
    unused = 2 * 256 * 512  # UNUSED_TENSORS
    assert (len(codec) + 2, sum(t.numel() for t in codec) + unused) == (496, 170_557_441)
