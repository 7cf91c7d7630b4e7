"""An explanation says what an utterance would really be given."""

from dataclasses import replace

import numpy as np
import pytest

from sonorant.engine.checkpoint.config import Checkpoint, load_checkpoint
from sonorant.engine.checkpoint.folders import BUILTIN_VOICE_DIR, resolve_model
from sonorant.engine.errors import InvalidSynthesis, UnknownSpeaker
from sonorant.engine.prompt.explain import PromptRow, explain_prompt, speech_s
from sonorant.engine.prompt.tokenizer import Tokenizer
from sonorant.engine.types import SynthesisParams

CUSTOM_VOICE = load_checkpoint(resolve_model("qwen3-tts-12hz-1.7b-customvoice"))
BASE = load_checkpoint(resolve_model("qwen3-tts-12hz-1.7b-base"))
BUILTIN = load_checkpoint(BUILTIN_VOICE_DIR)
HEAD = [
    PromptRow("<|im_start|>", ""),
    PromptRow("assistant", ""),
    PromptRow("\n", ""),
    PromptRow("tts_pad", "think"),
    PromptRow("tts_pad", "think_bos"),
    PromptRow("tts_pad", "english"),
    PromptRow("tts_pad", "think_eos"),
    PromptRow("tts_pad", "ryan"),
    PromptRow("tts_bos", "codec_pad"),
]


def params(checkpoint: Checkpoint = CUSTOM_VOICE, **given: object) -> SynthesisParams:
    if checkpoint is CUSTOM_VOICE:
        given = {"speaker": "Ryan", "language": "en-GB", **given}
    return SynthesisParams(checkpoint.default_sampling, **given)  # type: ignore[arg-type]


def test_streaming_layout(tokenizer: Tokenizer) -> None:
    told = explain_prompt(params(), "  Hello wo\u0308rld\n", CUSTOM_VOICE, tokenizer, 4096)
    assert told.text == "Hello w\u00f6rld"
    assert "".join(told.tokens) == told.text and len(told.tokens) == len(told.token_ids)
    assert list(told.token_ids) == tokenizer.encode("Hello wörld")
    assert told.language == "english"
    assert list(told.rows) == [*HEAD, PromptRow("Hello", "codec_bos")]
    assert told.trailing == (*told.tokens[1:], "tts_eos")
    assert told.max_frames == min(CUSTOM_VOICE.default_sampling.max_frames, 4096 - len(told.rows))


def test_whole_text_layout(tokenizer: Tokenizer) -> None:
    told = explain_prompt(params(non_streaming_mode=True), "Hello", CUSTOM_VOICE, tokenizer, 4096)
    tail = [PromptRow("Hello", "codec_pad"), PromptRow("tts_eos", "codec_pad"), PromptRow("tts_pad", "codec_bos")]
    assert list(told.rows) == HEAD + tail and told.trailing == ()


def test_cloned_voice(tokenizer: Tokenizer) -> None:
    reference = {"reference_codes": np.zeros((2, 16), np.int16), "reference_text": "Okay."}
    cloning = params(BASE, x_vector=np.zeros(2048, np.float32), **reference)
    told = explain_prompt(cloning, "Hello", BASE, tokenizer, 4096)
    assert [row.codec for row in told.rows[3:7]] == ["nothink", "think_bos", "think_eos", "x-vector"]
    assert list(told.rows[8:]) == [
        PromptRow("Okay", "codec_bos"),
        PromptRow(".", "frame 0"),
        PromptRow("Hello", "frame 1"),
    ]
    assert told.language == "auto"


def test_a_token_that_is_part_of_a_character(small_tokenizer: Tokenizer) -> None:
    ids = small_tokenizer.encode("好")
    assert len(ids) == 3 and {small_tokenizer.text_of(each) for each in ids} == {"\ufffd"}


def test_a_text_without_a_token_has_no_prompt(tokenizer: Tokenizer) -> None:
    told = explain_prompt(params(), " \n", CUSTOM_VOICE, tokenizer, 4096)
    assert (told.text, told.tokens, told.rows, told.trailing, told.estimated_frames) == ("", (), (), (), 0)


def test_what_an_utterance_would_be_refused_for(tokenizer: Tokenizer) -> None:
    with pytest.raises(UnknownSpeaker):
        explain_prompt(params(speaker="nobody"), "Hello", CUSTOM_VOICE, tokenizer, 4096)
    with pytest.raises(InvalidSynthesis, match="more than 64 tokens"):
        explain_prompt(params(), "word " * 65, CUSTOM_VOICE, tokenizer, 64)
    with pytest.raises(InvalidSynthesis, match="leaves none for speech"):
        explain_prompt(params(non_streaming_mode=True), "word " * 65, CUSTOM_VOICE, tokenizer, 64)
    asked = replace(params(), sampling=replace(CUSTOM_VOICE.default_sampling, max_frames=63))
    with pytest.raises(InvalidSynthesis, match="ask for 54 frames"):
        explain_prompt(asked, "Hello", CUSTOM_VOICE, tokenizer, 64)


@pytest.mark.parametrize(
    ("text", "frames"),  # of the built-in voice, greedy
    [
        ("Hello, world.", 19),
        ("Please bring the green folder and the new map of the city.", 48),
        ("It is raining in the mountains today. Many people stay at home and read a good book.", 65),
        ("In 2026 there were 42 people, and 17 of them paid $1.50.", 72),
        ("Yes.", 10),
    ],
)
def test_the_estimate_is_near(text: str, frames: int) -> None:
    assert speech_s(text) * BUILTIN.frame_rate_hz == pytest.approx(frames, rel=0.13)
