"""Explains what the model would be given for a text, in words that people can read. Pure: nothing is synthesized.

Rows are named as in docs/text.md.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.prompt.layout import check, fit_max_frames, too_many_tokens
from sonorant.engine.prompt.nfc import clusters, normalize
from sonorant.engine.prompt.tokenizer import Tokenizer
from sonorant.engine.types import NO_ID, REFERENCE_FRAME, X_VECTOR, SynthesisParams

# Estimated seconds of speech. The built-in voice is within an eighth of the estimate; voices and styles vary more.
_SILENCE_S = 0.4  # before and after the speech, together
_LETTER_S = 0.065
_UNSPACED_LETTER_S = 0.2  # in scripts in which a character is a syllable
_DIGIT_S = 0.25
_PAUSE_S = 0.15
_UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL")


@dataclass(frozen=True, slots=True)
class PromptRow:
    """One position of the prompt; an absent part is ""."""

    text: str  # a token's text, or the name of a control token
    codec: str


@dataclass(frozen=True, slots=True)
class Change:
    """Characters that are not given to the model as they were written. Offsets count code points of the text."""

    start: int
    end: int
    written: str
    given: str  # "": they are left out


@dataclass(frozen=True, slots=True)
class Explanation:
    """The model's input for one text. A text without tokens has no prompt: `rows` and `trailing` are empty."""

    text: str  # as the model is given it: NFC, folded, without whitespace around it
    token_ids: tuple[int, ...]
    tokens: tuple[str, ...]  # one for each id; bytes that are no whole character are U+FFFD
    language: str  # the checkpoint's name for it, or "auto"
    rows: tuple[PromptRow, ...]
    trailing: tuple[str, ...]  # text parts of the positions after the prompt, one per codec frame; then tts_pad
    max_frames: int  # as many as fit after the prompt, or as were asked for
    max_context: int  # most positions: prompt rows and frames
    estimated_frames: int  # not limited by max_frames
    changes: tuple[Change, ...] = ()  # of the text as it was written


def explain_prompt(
    params: SynthesisParams,
    text: str,
    checkpoint: Checkpoint,
    tokenizer: Tokenizer,
    max_context: int,
    written: str | None = None,
) -> Explanation:
    """Explain a text. `written`: the text before phrases in it were respelled.

    Raises InvalidSynthesis or a subclass if an utterance of this text would be refused.
    """
    prompt = check(params, checkpoint, tokenizer, max_context)
    ids = tokenizer.encode(text, prompt.language)
    if len(ids) > max_context and not params.non_streaming_mode:
        raise too_many_tokens(max_context)
    plan = prompt.plan(ids, ended=True)
    num_rows = plan.num_rows if plan else prompt.min_rows
    max_frames = fit_max_frames(params.sampling, checkpoint, max_context, num_rows)
    names = _Names(checkpoint, tokenizer)
    rows: Sequence[PromptRow] = ()
    if plan is not None:
        pairs = zip(plan.text_ids, plan.codec_items, strict=True)
        rows = [PromptRow(names.text(text_id), names.codec(codec_item)) for text_id, codec_item in pairs]
    return Explanation(
        text=tokenizer.given(text, prompt.language),
        changes=tuple(changes_of(text if written is None else written, tokenizer, prompt.language)),
        token_ids=tuple(ids),
        tokens=tuple(map(tokenizer.text_of, ids)),
        language=prompt.language or "auto",
        rows=tuple(rows),
        trailing=tuple(map(names.text, plan.trailing)) if plan else (),
        max_frames=max_frames,
        max_context=max_context,
        # There is a frame for each trailing token, at least.
        estimated_frames=max(round(speech_s(text) * checkpoint.frame_rate_hz), len(plan.trailing)) if plan else 0,
    )


def speech_s(text: str) -> float:
    """Estimate roughly how long a text takes to say, in seconds."""
    seconds = _SILENCE_S
    for char in text:
        if char.isdigit():
            seconds += _DIGIT_S
        elif char.isalpha():
            unspaced = unicodedata.name(char, "").startswith(_UNSPACED)
            seconds += _UNSPACED_LETTER_S if unspaced else _LETTER_S
        elif unicodedata.category(char) == "Po":
            seconds += _PAUSE_S
    return seconds


def changes_of(text: str, tokenizer: Tokenizer, language: str | None = None) -> list[Change]:
    """Return what becomes of each character that the model is not given as it is."""
    fold, changes, start = tokenizer.fold(language), list[Change](), 0
    for written in clusters(text):
        given, end = fold.push(normalize(written)), start + len(written)
        if changes and changes[-1].end == start and given.startswith(" ") and not written[0].isspace():
            changes[-1] = replace(changes[-1], given=changes[-1].given + " ")  # it separates two words
            given = given[1:]
        if given != written:
            changes.append(Change(start, end, written, given))
        start = end
    return changes


class _Names:
    """Names for the ids of a prompt."""

    def __init__(self, checkpoint: Checkpoint, tokenizer: Tokenizer) -> None:
        ids, talker = checkpoint.text_ids, checkpoint.talker
        self._tokenizer = tokenizer
        self._texts = {
            NO_ID: "",
            ids.im_start: "<|im_start|>",
            ids.im_end: "<|im_end|>",
            ids.tts_pad: "tts_pad",
            ids.tts_bos: "tts_bos",
            ids.tts_eos: "tts_eos",
        }
        self._codecs = {
            NO_ID: "",
            X_VECTOR: "x-vector",
            talker.codec_pad_id: "codec_pad",
            talker.codec_bos_id: "codec_bos",
            talker.codec_think_id: "think",
            talker.codec_nothink_id: "nothink",
            talker.codec_think_bos_id: "think_bos",
            talker.codec_think_eos_id: "think_eos",
        }
        for table in (talker.language_ids, talker.speaker_ids):
            for name, codec_id in table.items():
                self._codecs.setdefault(codec_id, name)  # of a voice with two names, the first

    def text(self, text_id: int) -> str:
        return self._texts[text_id] if text_id in self._texts else self._tokenizer.text_of(text_id)

    def codec(self, item: int) -> str:
        return f"frame {REFERENCE_FRAME - item}" if item <= REFERENCE_FRAME else self._codecs[item]
