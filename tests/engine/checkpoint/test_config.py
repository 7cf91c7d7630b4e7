import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.checkpoint.folders import BUILTIN_VOICE_DIR, PRESETS_DIR, resolve_model
from sonorant.engine.checkpoint.json import MAX_BYTES
from sonorant.engine.errors import CheckpointError
from tests.e2e.server_process import refused
from tests.tiny_checkpoint import write_tiny_checkpoint

CONFIG, CODEC, GENERATION = "config.json", "speech_tokenizer/config.json", "generation_config.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_tiny_checkpoint(tmp_path / "tiny", "base")


def edit(folder: Path, file: str, change: Callable[[dict[str, Any]], object]) -> None:
    values = json.loads((folder / file).read_text())
    change(values)
    (folder / file).write_text(json.dumps(values))


def test_published_files() -> None:
    c = load_checkpoint(resolve_model("Qwen3-TTS-12Hz-1.7B-CustomVoice"))
    assert (c.task, c.size, c.dtype, c.takes_instruct) == ("custom_voice", "1b7", "bfloat16", True)
    assert (c.talker.stack.num_layers, c.talker.stack.hidden_size, c.talker.num_codebooks) == (28, 2048, 16)
    assert (c.code_predictor.stack.hidden_size, c.code_predictor.stack.rope_theta) == (1024, 1e6)
    assert (c.codec.decoder.stack.rms_norm_eps, c.codec.decoder.vector_dim, c.codec.frame_samples) == (1e-5, 256, 1920)
    assert c.frame_rate_hz == 12.5
    assert c.talker.suppressed_ids == range(2048, 3072)
    assert c.talker.speaker_dialects == {"dylan": "beijing_dialect", "eric": "sichuan_dialect"}
    assert len(c.languages) == 10
    assert c.speaker_encoder is None
    assert c.default_sampling.max_frames == 8191


@pytest.mark.parametrize(
    ("preset", "takes_instruct"),
    [
        ("qwen3-tts-12hz-0.6b-base", False),
        ("qwen3-tts-12hz-0.6b-customvoice", False),
        ("qwen3-tts-12hz-1.7b-base", False),
        ("qwen3-tts-12hz-1.7b-voicedesign", True),
        ("../builtin_voice", False),
    ],
)
def test_who_takes_instructions(preset: str, takes_instruct: bool) -> None:
    assert load_checkpoint(PRESETS_DIR / preset).takes_instruct is takes_instruct


def test_absent_keys_have_the_official_defaults(folder: Path) -> None:
    def keep(values: dict[str, Any], *keys: str) -> None:
        for key in [key for key in values if key not in keys]:
            del values[key]

    edit(folder, GENERATION, lambda c: keep(c))
    edit(folder, CODEC, lambda c: (keep(c, "decoder_config"), keep(c["decoder_config"], "codebook_dim")))

    def reduce(c: dict[str, Any]) -> None:
        keep(c, "tts_model_type", "talker_config")
        # The defaults of the control ids lie beyond the default vocab_size: no checkpoint can do without them.
        ids = [key for key in c["talker_config"] if key.startswith("codec_")]
        keep(c["talker_config"], "text_vocab_size", "num_code_groups", *ids)
        c["talker_config"].update(num_code_groups=16, text_vocab_size=151936)

    edit(folder, CONFIG, reduce)
    c = load_checkpoint(folder)
    stack = c.talker.stack
    assert (stack.num_layers, stack.num_kv_heads, stack.head_dim, stack.rope_theta) == (20, 2, 64, 10000.0)
    assert (stack.intermediate_size, c.talker.text_hidden_size, c.talker.vocab_size) == (2048, 2048, 3072)
    predictor = c.code_predictor
    assert (predictor.stack.num_layers, predictor.stack.head_dim, predictor.num_codebooks) == (5, 128, 32)
    decoder = c.codec.decoder
    assert (decoder.stack.num_layers, decoder.stack.intermediate_size, decoder.sliding_window) == (8, 3072, 72)
    assert (decoder.upsample_rates, decoder.num_quantizers, c.codec.frame_samples) == ((8, 5, 4, 3), 16, 1920)
    assert c.speaker_encoder is not None
    assert (c.speaker_encoder.enc_dim, c.speaker_encoder.channels[-1]) == (1024, 1536)
    assert (c.text_ids.tts_pad, c.text_ids.im_start) == (151671, 151644)
    p = c.default_sampling
    assert (p.do_sample, p.temperature, p.top_k, p.repetition_penalty, p.max_frames) == (True, 0.9, 50, 1.05, 2047)


def test_null_is_absent(folder: Path) -> None:
    before = load_checkpoint(folder)
    edit(folder, CONFIG, lambda c: c["talker_config"].update(rope_scaling=None, use_sliding_window=None))
    assert load_checkpoint(folder) == before


def test_a_predictor_with_more_codebooks_than_the_talker_uses(folder: Path) -> None:
    edit(folder, CONFIG, lambda c: c["talker_config"]["code_predictor_config"].pop("num_code_groups"))
    assert load_checkpoint(folder).code_predictor.num_codebooks == 32


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        (CONFIG, lambda c: c.pop("tts_model_type"), "tts_model_type is missing"),
        (CONFIG, lambda c: c.update(tts_model_type="singer"), "tts_model_type is 'singer'; supported are custom_voice"),
        (CONFIG, lambda c: c.update(tokenizer_type="qwen3_tts_tokenizer_25hz"), "only qwen3_tts_tokenizer_12hz"),
        (
            CONFIG,
            lambda c: c["talker_config"].update(hidden_act="gelu"),
            "talker_config: hidden_act is 'gelu'; only silu",
        ),
        (CONFIG, lambda c: c["talker_config"].pop("text_vocab_size"), "talker_config: text_vocab_size is missing"),
        (CONFIG, lambda c: c["talker_config"].update(hidden_size="big"), "hidden_size must be an integer, not 'big'"),
        (CONFIG, lambda c: c["talker_config"].update(rms_norm_eps=[]), "rms_norm_eps must be a number"),
        (CONFIG, lambda c: c["talker_config"].update(spk_id=[]), "spk_id must be an object"),
        (CONFIG, lambda c: c["talker_config"].update(use_sliding_window=True), "only full attention"),
        (CONFIG, lambda c: c["talker_config"].update(rope_scaling={"type": "yarn"}), "rope_type 'yarn'; only default"),
        (CONFIG, lambda c: c["talker_config"].update(num_key_value_heads=3), "4 attention heads cannot share 3"),
        (CONFIG, lambda c: c["talker_config"].update(num_code_groups=5), "the talker has 5"),
        (CONFIG, lambda c: c["speaker_encoder_config"].update(enc_dim=5), "enc_dim is 5"),
        (CONFIG, lambda c: c["talker_config"].update(num_key_value_heads=0), "num_key_value_heads must be 1 to"),
        (CONFIG, lambda c: c["talker_config"].update(num_hidden_layers=10**9), "num_hidden_layers must be 1 to 1024"),
        (CODEC, lambda c: c["decoder_config"].update(upsample_rates=[1] * 10**6), "a list of at most 16 integers"),
        (CONFIG, lambda c: c["talker_config"].update(rope_theta=10**400), "rope_theta must be a number"),
        (CONFIG, lambda c: c["talker_config"].update(hidden_size=2**40), "hidden_size must be 1 to"),
        (CONFIG, lambda c: c["talker_config"].update(codec_bos_id=5000), "codec_bos_id is 5000; it must be 0 to"),
        (
            CONFIG,
            lambda c: c["talker_config"]["codec_language_id"].update(german=-1),
            "codec_language_id: german is -1",
        ),
        (CONFIG, lambda c: c["talker_config"]["spk_is_dialect"].update(ann="doric"), "ann speaks 'doric'"),
        (CONFIG, lambda c: c.update(tts_eos_token_id=99999), "tts_eos_token_id is 99999; it must be 0 to"),
        (CODEC, lambda c: c["decoder_config"].update(codebook_size=32), "but the codec has only 32"),
        (CODEC, lambda c: c.update(encoder_valid_num_quantizers=3), "encoder_valid_num_quantizers is 3; it must be"),
        (
            CODEC,
            lambda c: c["decoder_config"].update(upsample_rates="8543"),
            "upsample_rates must be a list of at most",
        ),
        (
            CODEC,
            lambda c: c.update(decode_upsample_rate=960),
            "decode_upsample_rate is 960; it must be at least the 1920 samples",
        ),
        (GENERATION, lambda c: c.update(top_k=0.5), "top_k must be an integer"),
        (GENERATION, lambda c: c.update(max_new_tokens=0), "max_new_tokens must be 1 to"),
        (GENERATION, lambda c: c.update(temperature=0), "temperature is 0.0; it must be 0.001 to 100"),
        (GENERATION, lambda c: c.update(temperature=math.nan), "temperature is nan; it must be 0.001 to 100"),
        (
            GENERATION,
            lambda c: c.update(subtalker_temperature=-1),
            "subtalker_temperature is -1.0; it must be 0.001 to 100",
        ),
        (GENERATION, lambda c: c.update(top_k=-1), "top_k is -1; it must be 0 (no limit) or more"),
        (GENERATION, lambda c: c.update(subtalker_top_p=1.5), "subtalker_top_p is 1.5; it must be above 0 and at most"),
        (GENERATION, lambda c: c.update(repetition_penalty=0), "repetition_penalty is 0.0; it must be 0.001 to 100"),
        (GENERATION, lambda c: c.update(text_in_words=True), "text_in_words is true, but text_characters is unicode"),
    ],
)
def test_what_cannot_be_used_is_named(
    folder: Path, file: str, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    edit(folder, file, change)
    with pytest.raises(CheckpointError) as error:
        load_checkpoint(folder)
    assert message in str(error.value)
    assert str(folder) in str(error.value)


@pytest.mark.parametrize("file", [CONFIG, CODEC, GENERATION])
def test_files_that_are_missing_or_broken(folder: Path, file: str) -> None:
    for content in ("{", "[]", '{"a":' * 100_000 + "1" + "}" * 100_000, " " * (MAX_BYTES + 1)):
        (folder / file).write_text(content)
        with pytest.raises(CheckpointError, match=file):
            load_checkpoint(folder)
    (folder / file).unlink()
    os.mkfifo(folder / file)
    with pytest.raises(CheckpointError, match="it is not a regular file"):
        load_checkpoint(folder)
    (folder / file).unlink()
    with pytest.raises(CheckpointError, match=f"{file} is missing"):
        load_checkpoint(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: (f / CONFIG).write_text("[" * 10_000), "maximum recursion depth"),
        (lambda f: edit(f, CONFIG, lambda c: c["talker_config"].update(num_hidden_layers=10**9)), "1 to 1024"),
        (lambda f: ((f / "model.safetensors").unlink(), os.mkfifo(f / "model.safetensors")), "not a regular file"),
    ],
)
def test_a_server_says_in_a_sentence_and_at_once_what_is_wrong(
    folder: Path, change: Callable[[Path], object], message: str, tmp_path: Path
) -> None:
    change(folder)
    code, log = refused(tmp_path / "log", "--model", str(folder), "--device", "cpu")
    assert code and message in log, log
    assert "Traceback" not in log, log


def test_resolving_names(folder: Path) -> None:
    assert resolve_model("qwen3-tts-12hz-0.6b-base") == PRESETS_DIR / "qwen3-tts-12hz-0.6b-base"
    assert resolve_model("builtin_voice") == BUILTIN_VOICE_DIR
    assert resolve_model(str(folder)) == folder
    with pytest.raises(CheckpointError, match=r"no checkpoint folder at .*nowhere.*presets: builtin_.*qwen3-tts"):
        resolve_model("nowhere")


def test_the_builtin_voice_loads() -> None:
    c = load_checkpoint(BUILTIN_VOICE_DIR)
    assert c.talker.speaker_ids
