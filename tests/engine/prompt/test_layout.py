import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sonorant.engine.checkpoint.config import Checkpoint, load_checkpoint
from sonorant.engine.checkpoint.folders import resolve_model
from sonorant.engine.errors import InvalidSynthesis
from sonorant.engine.prompt.layout import PromptLayout, check, fit_max_frames
from sonorant.engine.prompt.tokenizer import Tokenizer
from sonorant.engine.types import NO_ID, REFERENCE_FRAME, X_VECTOR, PromptPlan, SynthesisParams

CASES = json.loads(Path(__file__).with_name("golden_prompt_layouts.json").read_text(encoding="utf-8"))["cases"]
MAX_CONTEXT = 4096


@pytest.fixture(scope="session")
def checkpoints() -> dict[str, Checkpoint]:
    names = [
        f"Qwen3-TTS-12Hz-{size}" for size in ("1.7B-CustomVoice", "1.7B-VoiceDesign", "1.7B-Base", "0.6B-CustomVoice")
    ]
    return {name: load_checkpoint(resolve_model(name)) for name in names}


def params_of(case: dict[str, Any], checkpoint: Checkpoint) -> SynthesisParams:
    given, talker = case["input"], checkpoint.talker
    clones = checkpoint.task == "base"
    frames = given.get("ref_frames")
    return SynthesisParams(
        sampling=checkpoint.default_sampling,
        speaker=given.get("speaker"),
        language=given["language"],
        instruct=given.get("instruct", ""),
        non_streaming_mode=case["non_streaming_mode"],
        x_vector=np.zeros(talker.stack.hidden_size, np.float32) if clones else None,
        reference_codes=np.zeros((frames, talker.num_codebooks), np.int16) if frames else None,
        reference_text=given.get("ref_text", ""),
    )


def golden_rows(case: dict[str, Any]) -> list[tuple[int, int]]:
    def item(value: int | str | None) -> int:
        if value is None:
            return NO_ID
        if isinstance(value, int):
            return value
        return X_VECTOR if value == "xvector" else REFERENCE_FRAME - int(value.removeprefix("ref_frame_"))

    return [(item(text_id), item(codec_item)) for text_id, codec_item in case["prompt"]]


def rows_of(plan: PromptPlan) -> list[tuple[int, int]]:
    return list(zip(plan.text_ids, plan.codec_items, strict=True))


def name_of(case: dict[str, Any]) -> str:
    return case["case"] + ("-whole" if case["non_streaming_mode"] else "-streaming")


@pytest.mark.parametrize("case", CASES, ids=name_of)
@pytest.mark.parametrize("step", [1, 100], ids=["token by token", "at once"])
def test_rows_are_those_of_the_official_package(
    checkpoints: dict[str, Checkpoint], tokenizer: Tokenizer, case: dict[str, Any], step: int
) -> None:
    checkpoint = checkpoints[case["model"]]
    params = params_of(case, checkpoint)
    check(params, checkpoint, tokenizer, MAX_CONTEXT)
    prompt = PromptLayout(params, checkpoint, tokenizer)
    ids = tokenizer.encode(case["input"]["text"])
    plan, trailing = None, ()
    for stop in [*range(step, len(ids) + step, step), None]:
        new = [] if stop is None else ids[stop - step : stop]
        if plan is None:
            plan = prompt.plan(ids[:stop], ended=stop is None)
        else:
            trailing += (*new, *(prompt.text_end if stop is None else ()))
    assert plan is not None
    assert rows_of(plan) == golden_rows(case)
    assert plan.num_rows == case["length"]
    golden_trailing = [token for token in case["trailing_text"] if token != checkpoint.text_ids.tts_pad]
    assert [*plan.trailing, *trailing] == golden_trailing
    assert plan.text_ended or golden_trailing[-1] == checkpoint.text_ids.tts_eos
    assert prompt.min_rows == plan.num_rows - (len(ids) if case["non_streaming_mode"] else 0)


def layout_for(checkpoints: dict[str, Checkpoint], tokenizer: Tokenizer, model: str, **changes: Any) -> PromptLayout:
    checkpoint = checkpoints[f"Qwen3-TTS-12Hz-{model}"]
    return PromptLayout(replace(SynthesisParams(checkpoint.default_sampling), **changes), checkpoint, tokenizer)


def cloning(num_frames: int, text: str, **changes: Any) -> dict[str, Any]:
    return {
        "x_vector": np.zeros(2048, np.float32),
        "reference_codes": np.zeros((num_frames, 16), np.int16),
        "reference_text": text,
        **changes,
    }


def test_plain_streaming_needs_one_token(checkpoints: dict[str, Checkpoint], tokenizer: Tokenizer) -> None:
    prompt = layout_for(checkpoints, tokenizer, "1.7B-CustomVoice", speaker="ryan")
    assert prompt.plan([], ended=False) is None
    plan = prompt.plan([9707], ended=False)
    assert plan is not None
    assert plan.num_rows == 9
    assert not plan.text_ended
    assert prompt.text_end == (151673,)


def test_icl_streaming_waits_until_the_reference_is_covered(
    checkpoints: dict[str, Checkpoint], tokenizer: Tokenizer
) -> None:
    prompt = layout_for(checkpoints, tokenizer, "1.7B-Base", **cloning(4, "Okay."))  # 2 ids beside 5 rows
    for ids in ([1], [1, 2]):
        assert prompt.plan(ids, ended=False) is None
    plan = prompt.plan([1, 2, 3, 4], ended=False)
    assert plan is not None
    assert rows_of(plan)[-5:] == list(zip([32313, 13, 1, 2, 3], [2149, -3, -4, -5, -6], strict=True))
    assert plan.trailing == (4,)


def test_icl_streaming_with_a_short_text_is_padded(checkpoints: dict[str, Checkpoint], tokenizer: Tokenizer) -> None:
    prompt = layout_for(checkpoints, tokenizer, "1.7B-Base", **cloning(5, "Okay."))
    plan = prompt.plan([1], ended=True)
    assert plan is not None
    assert plan.text_ids[-6:] == (32313, 13, 1, 151673, 151671, 151671)
    assert plan.trailing == ()
    assert plan.text_ended


@pytest.mark.parametrize("whole", [False, True])
def test_no_text_no_plan(checkpoints: dict[str, Checkpoint], tokenizer: Tokenizer, whole: bool) -> None:
    changes = cloning(1, "Okay. Yeah.", non_streaming_mode=whole)  # the reference alone would fill the prompt
    prompt = layout_for(checkpoints, tokenizer, "1.7B-Base", **changes)
    assert prompt.plan([], ended=False) is None
    assert prompt.plan([], ended=True) is None


def test_small_checkpoints_drop_instruct(checkpoints: dict[str, Checkpoint], tokenizer: Tokenizer) -> None:
    for model, num_rows in (("0.6B-CustomVoice", 9), ("1.7B-CustomVoice", 9 + 8)):
        prompt = layout_for(checkpoints, tokenizer, model, speaker="Ryan", instruct=" Very happy.\n")
        assert prompt.min_rows == num_rows
        plan = prompt.plan([9707], ended=False)
        assert plan is not None
        assert plan.num_rows == num_rows
    assert plan.text_ids[:8] == (151644, 872, 198, 25756, 6247, 13, 151645, 198)


def test_instruct_of_whitespace_is_none(checkpoints: dict[str, Checkpoint], tokenizer: Tokenizer) -> None:
    prompt = layout_for(checkpoints, tokenizer, "1.7B-VoiceDesign", instruct=" \n")
    plan = prompt.plan([9707], ended=False)
    assert plan is not None
    assert plan.text_ids[0] == 151644
    assert plan.text_ids[1] == 77091


@pytest.mark.parametrize(("language", "language_id"), [("zh-CN", 2062), ("en-US", 2050), ("DE", 2053)])
def test_language_tags_and_dialects(
    checkpoints: dict[str, Checkpoint], tokenizer: Tokenizer, language: str, language_id: int
) -> None:
    prompt = layout_for(checkpoints, tokenizer, "1.7B-CustomVoice", speaker="Eric", language=language)
    plan = prompt.plan([9707], ended=False)
    assert plan is not None
    assert plan.codec_items[3:8] == (2154, 2156, language_id, 2157, 2875)


def test_frames_that_fit(checkpoints: dict[str, Checkpoint]) -> None:
    checkpoint = checkpoints["Qwen3-TTS-12Hz-1.7B-Base"]
    default = checkpoint.default_sampling
    chosen = replace(default, max_frames=100)
    assert fit_max_frames(default, checkpoint, 4096, 96) == 4000
    assert fit_max_frames(chosen, checkpoint, 200, 100) == 100
    with pytest.raises(
        InvalidSynthesis, match=r"max_frames is 100.* may have 199 .* at least 100; ask for 99"
    ) as error:
        fit_max_frames(chosen, checkpoint, 199, 100)
    assert error.value.field == "max_frames"
    with pytest.raises(InvalidSynthesis, match=r"takes at least 199 of the 199 positions.*shorten") as error:
        fit_max_frames(default, checkpoint, 199, 199)
    assert error.value.field == "text"


def test_check_counts_the_rows_known_beforehand(checkpoints: dict[str, Checkpoint], tokenizer: Tokenizer) -> None:
    checkpoint = checkpoints["Qwen3-TTS-12Hz-1.7B-Base"]
    params = SynthesisParams(checkpoint.default_sampling, **cloning(3000, "A long reference."))
    check(params, checkpoint, tokenizer, 4096)
    with pytest.raises(InvalidSynthesis, match="at least 3009 of the 3000"):
        check(params, checkpoint, tokenizer, 3000)
