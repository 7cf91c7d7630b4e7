from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sonorant.engine.checkpoint.config import Checkpoint, load_checkpoint
from sonorant.engine.checkpoint.folders import resolve_model
from sonorant.engine.errors import InvalidSynthesis, UnknownSpeaker, UnsupportedTask
from sonorant.engine.prompt.validation import check_params, resolve_language
from sonorant.engine.types import SynthesisParams

CUSTOM_VOICE, VOICE_DESIGN, BASE = (
    load_checkpoint(resolve_model(f"qwen3-tts-12hz-1.7b-{task}")) for task in ("customvoice", "voicedesign", "base")
)
X_VECTOR = np.zeros(2048, np.float32)
CODES = np.zeros((3, 16), np.int16)
GOOD = {
    "custom_voice": {"speaker": "Vivian"},
    "voice_design": {"instruct": "A calm voice."},
    "base": {"x_vector": X_VECTOR, "reference_codes": CODES, "reference_text": "Okay."},
}


def checked(checkpoint: Checkpoint, **changes: Any) -> None:
    check_params(SynthesisParams(checkpoint.default_sampling, **{**GOOD[checkpoint.task], **changes}), checkpoint)


def test_good_params_pass() -> None:
    for checkpoint in (CUSTOM_VOICE, VOICE_DESIGN, BASE):
        checked(checkpoint)
    checked(CUSTOM_VOICE, instruct="Very happy.")
    checked(CUSTOM_VOICE, speaker=None, x_vector=X_VECTOR)
    checked(VOICE_DESIGN, instruct="")
    checked(BASE, reference_codes=None, reference_text="")


@pytest.mark.parametrize(
    ("checkpoint", "changes", "kind", "field", "message"),
    [
        (CUSTOM_VOICE, {"speaker": None}, InvalidSynthesis, "speaker", r"needs a speaker: aiden, .*, vivian$"),
        (CUSTOM_VOICE, {"speaker": "vivien"}, UnknownSpeaker, "speaker", r"did you mean 'vivian'\?\); use aiden, "),
        (CUSTOM_VOICE, {"speaker": "nobody"}, UnknownSpeaker, "speaker", r"no speaker 'nobody'; use aiden, "),
        (CUSTOM_VOICE, {"x_vector": X_VECTOR}, InvalidSynthesis, "x_vector", r"give only one of them"),
        (CUSTOM_VOICE, {"speaker": "", "x_vector": X_VECTOR[1:]}, InvalidSynthesis, "x_vector", r"needs \(2048,\)"),
        (CUSTOM_VOICE, {"reference_codes": CODES}, UnsupportedTask, "reference_codes", r"load a Base checkpoint"),
        (VOICE_DESIGN, {"x_vector": X_VECTOR}, UnsupportedTask, "x_vector", r"comes from instruct"),
        (VOICE_DESIGN, {"reference_codes": CODES}, UnsupportedTask, "reference_codes", r"load a Base checkpoint"),
        (VOICE_DESIGN, {"speaker": "vivian"}, UnsupportedTask, "speaker", r"load a CustomVoice checkpoint"),
        (BASE, {"speaker": "vivian"}, UnsupportedTask, "speaker", r"load a CustomVoice checkpoint"),
        (BASE, {"instruct": "Very happy."}, UnsupportedTask, "instruct", r"takes no instruct"),
        (BASE, {"x_vector": None}, InvalidSynthesis, "x_vector", r"give it a voice or reference audio"),
        (BASE, {"x_vector": X_VECTOR[:1024]}, InvalidSynthesis, "x_vector", r"shape \(1024,\).*needs \(2048,\)"),
        (BASE, {"x_vector": X_VECTOR + np.nan}, InvalidSynthesis, "x_vector", r"not finite"),
        (
            BASE,
            {"reference_codes": CODES[:, :8]},
            InvalidSynthesis,
            "reference_codes",
            r"shape \(3, 8\).*\(frames, 16\)",
        ),
        (BASE, {"reference_codes": CODES[:0]}, InvalidSynthesis, "reference_codes", r"have no frames"),
        (BASE, {"reference_codes": CODES + 2048}, InvalidSynthesis, "reference_codes", r"2048 to 2048.*0 to 2047"),
        (BASE, {"reference_codes": CODES - 1}, InvalidSynthesis, "reference_codes", r"-1 to -1"),
        (BASE, {"reference_text": " "}, InvalidSynthesis, "reference_text", r"is empty; give the words"),
        (BASE, {"reference_codes": None}, InvalidSynthesis, "reference_text", r"give both, or neither"),
        (BASE, {"language": "klingon"}, InvalidSynthesis, "language", r"use auto, chinese, english, .*such as en-US"),
        (BASE, {"language": "englsh"}, InvalidSynthesis, "language", r"did you mean 'english'\?"),
        (CUSTOM_VOICE, {"language": "sichuan_dialect"}, InvalidSynthesis, "language", r"does not speak"),
        (BASE, {"language": "nl-NL"}, InvalidSynthesis, "language", r"does not speak language 'nl-NL'"),
    ],
)
def test_what_a_checkpoint_cannot_do(
    checkpoint: Checkpoint, changes: dict[str, Any], kind: type[InvalidSynthesis], field: str, message: str
) -> None:
    with pytest.raises(kind, match=message) as error:
        checked(checkpoint, **changes)
    assert type(error.value) is kind
    assert error.value.field == field


@pytest.mark.parametrize(
    ("name", "language"),
    [
        ("auto", None),
        ("Auto", None),
        ("", None),
        ("English", "english"),
        ("en", "english"),
        ("en-US", "english"),
        ("EN_gb", "english"),
        ("zh-Hans-CN", "chinese"),
        ("cmn-TW", "chinese"),
        ("pt-BR", "portuguese"),
    ],
)
def test_names_of_languages(name: str, language: str | None) -> None:
    assert resolve_language(name, BASE) == language


def test_every_language_has_a_tag() -> None:
    tags = {"de", "en", "es", "fr", "it", "ja", "ko", "pt", "ru", "zh"}
    assert {resolve_language(tag, BASE) for tag in tags} == set(BASE.languages)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"temperature": 0.0}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": float("inf")}, "temperature"),
        ({"temperature": 1e-38}, "temperature"),  # scores divided by it overflow
        ({"subtalker_temperature": -1.0}, "subtalker_temperature"),
        ({"subtalker_temperature": 1e30}, "subtalker_temperature"),
        ({"do_sample": False, "temperature": 101.0}, "temperature"),
        ({"subtalker_do_sample": False, "subtalker_temperature": float("nan")}, "subtalker_temperature"),
        ({"repetition_penalty": 1e-38}, "repetition_penalty"),
        ({"top_k": -1}, "top_k"),
        ({"subtalker_top_k": -1}, "subtalker_top_k"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"subtalker_top_p": float("nan")}, "subtalker_top_p"),
        ({"repetition_penalty": 0.0}, "repetition_penalty"),
        ({"repetition_penalty": float("inf")}, "repetition_penalty"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**32}, "seed"),
        ({"min_frames": -1}, "min_frames"),
        ({"max_frames": 0}, "max_frames"),
    ],
)
def test_sampling_ranges(changes: dict[str, Any], field: str) -> None:
    default = CUSTOM_VOICE.default_sampling
    with pytest.raises(InvalidSynthesis, match=rf"^{field} is .*; it must be ") as error:
        check_params(SynthesisParams(replace(default, **changes), speaker="ryan"), CUSTOM_VOICE)
    assert error.value.field == field


def test_greedy_needs_no_temperature() -> None:
    default = CUSTOM_VOICE.default_sampling
    greedy = replace(default, do_sample=False, temperature=0.0, subtalker_do_sample=False, subtalker_temperature=0.0)
    check_params(SynthesisParams(greedy, speaker="ryan"), CUSTOM_VOICE)
