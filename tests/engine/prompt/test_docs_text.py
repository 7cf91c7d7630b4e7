"""The tables of docs/text.md, executed."""

import ast
import json
import re
from pathlib import Path

import numpy as np
import pytest
from tokenizers import decoders

from sonorant.engine.checkpoint.config import Checkpoint, load_checkpoint
from sonorant.engine.checkpoint.folders import resolve_model
from sonorant.engine.prompt.layout import PromptLayout
from sonorant.engine.prompt.tokenizer import Tokenizer, TokenStream
from sonorant.engine.types import NO_ID, REFERENCE_FRAME, X_VECTOR, SynthesisParams

DOC = Path(__file__).parents[3].joinpath("docs/text.md").read_text(encoding="utf-8")
REFERENCE = {"reference_codes": np.zeros((3, 16), np.int16), "reference_text": "Okay."}
HEADS = {
    "Head, a speaker by name and a language:": ("customvoice", {"speaker": "ryan", "language": "en-US"}),
    "Head, a cloned voice and language `auto`:": ("base", {}),
}
TAILS = {
    "Tail, streaming text (the default of a stream):": {},
    'Tail, streaming text with a reference of 3 frames that says "Okay.":': REFERENCE,
    "Tail, whole text (`non_streaming_mode`):": {"non_streaming_mode": True},
    "Tail, whole text with the same reference:": {"non_streaming_mode": True, **REFERENCE},
}


def table(title: str) -> list[list[str]]:
    """Return the cells of the table below a line."""
    lines = DOC[DOC.index(title) + len(title) :].lstrip().split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


@pytest.mark.parametrize("row", table("what comes later begins a new pre-token."), ids=lambda row: row[0])
def test_what_a_push_releases(tokenizer: Tokenizer, row: list[str]) -> None:
    pieces, expected = (json.loads(f"[{cell.strip('`')}]") for cell in row[:2])
    stream = TokenStream(tokenizer)
    ids = [stream.push(piece) for piece in pieces][-1]
    assert [spelled(tokenizer, token) for token in ids] == expected


@pytest.mark.parametrize("row", table("no sentence of its training has:"), ids=lambda row: row[0])
def test_what_a_checkpoint_that_knows_ascii_is_given(small_tokenizer: Tokenizer, row: list[str]) -> None:
    written, given = (ast.literal_eval(cell.strip("`").replace("\\|", "|")) for cell in row[1:])
    assert Tokenizer(small_tokenizer._bpe, "ascii").given(written) == given


@pytest.mark.parametrize("row", table("are given as they come:"), ids=lambda row: row[0])
def test_numbers_and_letters_in_words(small_tokenizer: Tokenizer, row: list[str]) -> None:
    written, given = (ast.literal_eval(cell.strip("`")) for cell in row[1:])
    assert Tokenizer(small_tokenizer._bpe, "ascii", in_words=True).given(written) == given


@pytest.mark.parametrize("row", table("English is the first of them."), ids=lambda row: row[1])
def test_what_a_checkpoint_that_knows_three_languages_is_given(small_tokenizer: Tokenizer, row: list[str]) -> None:
    written, given = (ast.literal_eval(cell.strip("`")) for cell in row[1:])
    language = None if row[0] == "auto" else row[0]
    assert Tokenizer(small_tokenizer._bpe, "western").given(written, language) == given


@pytest.mark.parametrize("row", table("who knows the language names it."), ids=lambda row: row[1])
def test_numbers_of_three_languages_in_words(small_tokenizer: Tokenizer, row: list[str]) -> None:
    written, given = (ast.literal_eval(cell.strip("`")) for cell in row[1:])
    language = None if row[0] == "auto" else row[0]
    assert Tokenizer(small_tokenizer._bpe, "western", in_words=True).given(written, language) == given


def spelled(tokenizer: Tokenizer, token: int) -> str:
    return str(decoders.ByteLevel().decode([tokenizer._pipeline.id_to_token(token)]))


def test_every_layout_table_is_tested() -> None:
    assert re.findall(r"^(?:Head|Tail), .*", DOC, re.MULTILINE) == [*HEADS, *TAILS]


@pytest.mark.parametrize("title", HEADS)
def test_heads(tokenizer: Tokenizer, title: str) -> None:
    task, given = HEADS[title]
    rows, _ = layout(tokenizer, task, given)
    assert [list(row) for row in rows[:-1]] == table(title)  # without the row of the text


@pytest.mark.parametrize("title", TAILS)
def test_tails(tokenizer: Tokenizer, title: str) -> None:
    rows, trailing = layout(tokenizer, "base", TAILS[title])
    head = len(table("Head, a cloned voice and language `auto`:"))
    tail = [list(row) for row in rows[head:]] + [[f"after frame {n}: {text}", ""] for n, text in enumerate(trailing)]
    assert tail == table(title)


def layout(tokenizer: Tokenizer, task: str, given: dict[str, object]) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the prompt's rows for "Hello" or "Hello world", and what trails, in the words of the document."""
    checkpoint = load_checkpoint(resolve_model(f"qwen3-tts-12hz-1.7b-{task}"))
    x_vector = np.zeros(2048, np.float32) if task == "base" else None
    params = SynthesisParams(checkpoint.default_sampling, x_vector=x_vector, **given)  # type: ignore[arg-type]
    plan = PromptLayout(params, checkpoint, tokenizer).plan(tokenizer.encode("Hello world"), ended=True)
    assert plan is not None
    texts = [text_name(token, checkpoint, tokenizer) for token in plan.text_ids]
    codecs = [codec_name(item, checkpoint) for item in plan.codec_items]
    return list(zip(texts, codecs, strict=True)), [text_name(t, checkpoint, tokenizer) for t in plan.trailing]


def text_name(token: int, checkpoint: Checkpoint, tokenizer: Tokenizer) -> str:
    ids = checkpoint.text_ids
    special = {
        ids.im_start: r"`<\|im_start\|>`",
        ids.tts_pad: "tts_pad",
        ids.tts_bos: "tts_bos",
        ids.tts_eos: "tts_eos",
        tokenizer.newline_id: r"`\n`",
    }
    return special.get(token) or f"`{spelled(tokenizer, token)}`"


def codec_name(item: int, checkpoint: Checkpoint) -> str:
    talker = checkpoint.talker
    if item <= REFERENCE_FRAME:
        return f"frame {REFERENCE_FRAME - item}"
    named = {NO_ID: "", X_VECTOR: "x-vector", talker.codec_pad_id: "codec_pad", talker.codec_bos_id: "codec_bos"}
    named |= {talker.codec_think_id: "think", talker.codec_nothink_id: "nothink"}
    named |= {talker.codec_think_bos_id: "think_bos", talker.codec_think_eos_id: "think_eos"}
    named |= {id_: name for table in (talker.language_ids, talker.speaker_ids) for name, id_ in table.items()}
    return named[item]
