"""Prompt layouts turn an utterance's checked parameters and text into rows of ids. Ints only; no tensors or processes.

Reference: QwenLM/Qwen3-TTS `qwen_tts/core/models/modeling_qwen3_tts.py` (Qwen3TTSForConditionalGeneration.generate,
generate_icl_prompt). `docs/text.md` shows the layouts as tables.
"""

from collections.abc import Sequence

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.errors import InvalidSynthesis
from sonorant.engine.prompt.tokenizer import Tokenizer
from sonorant.engine.prompt.validation import check_params, resolve_language
from sonorant.engine.types import NO_ID, REFERENCE_FRAME, X_VECTOR, PromptPlan, SamplingParams, SynthesisParams

Row = tuple[int, int]  # text id, codec item; NO_ID where a part is absent


def check(params: SynthesisParams, checkpoint: Checkpoint, tokenizer: Tokenizer, max_context: int) -> "PromptLayout":
    """Return the layout of the prompt.

    Raises InvalidSynthesis, UnknownSpeaker or UnsupportedTask if this checkpoint cannot speak as `params` ask.
    """
    check_params(params, checkpoint)
    prompt = PromptLayout(params, checkpoint, tokenizer)
    fit_max_frames(params.sampling, checkpoint, max_context, prompt.min_rows)
    return prompt


def fit_max_frames(sampling: SamplingParams, checkpoint: Checkpoint, max_context: int, num_rows: int) -> int:
    """Return `max_frames`, lowered if a prompt of `num_rows` and the frames would not fit into `max_context` positions.

    Only the checkpoint's default is lowered: raises InvalidSynthesis if a limit that the caller chose does not fit.
    """
    room = max_context - num_rows
    if room < 1:
        raise InvalidSynthesis(
            "text",
            f"the prompt takes at least {num_rows} of the {max_context} positions an utterance may have, which leaves "
            "none for speech; shorten text, instruct or reference audio",
        )
    if sampling.max_frames > room and sampling.max_frames != checkpoint.default_sampling.max_frames:
        raise InvalidSynthesis(
            "max_frames",
            f"max_frames is {sampling.max_frames}, but an utterance may have {max_context} positions and its prompt "
            f"takes at least {num_rows}; ask for {room} frames or fewer",
        )
    return min(sampling.max_frames, room)


def too_many_tokens(max_context: int) -> InvalidSynthesis:
    """Return the error of a text with more tokens than that, whose streaming prompt does not grow with it."""
    return InvalidSynthesis("text", f"the text has more than {max_context} tokens; split it into utterances")


class PromptLayout:
    """The prompt of one utterance, whose text may still be coming.

    After a fixed head there are two columns. S: reference text, text, tts_eos. C: codec_bos, then the frames of the
    reference. A streaming prompt is as long as C; the rest of S trails, one id per codec frame. A non-streaming prompt
    has all of S first (beside codec_pad), then C (beside tts_pad), and nothing trails.

    `params` must have passed `check`, which returns the same.
    """

    def __init__(self, params: SynthesisParams, checkpoint: Checkpoint, tokenizer: Tokenizer) -> None:
        self._tts_pad = checkpoint.text_ids.tts_pad
        self.text_end = (checkpoint.text_ids.tts_eos,)  # what S has behind a text that has ended
        self._codec_pad = checkpoint.talker.codec_pad_id
        self._streaming = not params.non_streaming_mode
        self.language = resolve_language(params.language, checkpoint)
        self._head = _head(params, self.language, checkpoint, tokenizer)
        self._codec = [checkpoint.talker.codec_bos_id]
        self._reference: list[int] = []  # ids of the reference text, with which S begins
        if params.reference_codes is not None:
            self._codec += [REFERENCE_FRAME - k for k in range(len(params.reference_codes))]
            self._reference = tokenizer.encode(params.reference_text, self.language)
        # Rows of the shortest possible prompt: all rows in streaming layouts, all but the text's rows in the others.
        self.min_rows = len(self._head) + len(self._codec) + (0 if self._streaming else len(self._reference) + 1)

    def plan(self, ids: Sequence[int], *, ended: bool) -> PromptPlan | None:
        """Return the prompt for the text ids that have come so far, which are all if the text has `ended`.

        Returns None while the layout needs more ids, and also if the text ends without any.
        """
        text = [*self._reference, *ids, *(self.text_end if ended else ())]
        if not ids or not (ended or (self._streaming and len(text) >= len(self._codec))):
            return None
        num_codec = len(self._codec)
        trailing: list[int] = []
        if self._streaming:
            text, trailing = text[:num_codec], text[num_codec:]
            text += [self._tts_pad] * (num_codec - len(text))
            rows = list(zip(text, self._codec, strict=True))
        else:
            rows = [(text_id, self._codec_pad) for text_id in text] + [(self._tts_pad, item) for item in self._codec]
        text_ids, codec_items = zip(*self._head, *rows, strict=True)
        text_row = len(self._head) + len(self._reference)
        return PromptPlan(text_ids, codec_items, tuple(trailing), ended, len(ids), text_row, began_open=not ended)


def _head(params: SynthesisParams, language: str | None, checkpoint: Checkpoint, tokenizer: Tokenizer) -> list[Row]:
    """Return the rows that every layout begins with: instruct, role, language, speaker and the row before the text."""
    ids, talker = checkpoint.text_ids, checkpoint.talker
    newline = tokenizer.newline_id
    text_only: list[int] = []
    instruct = tokenizer.encode(params.instruct) if params.instruct and checkpoint.takes_instruct else []
    if instruct:
        text_only += [ids.im_start, *tokenizer.encode("user"), newline, *instruct, ids.im_end, newline]
    text_only += [ids.im_start, ids.assistant, newline]

    speaker = (params.speaker or "").lower()
    if language in (None, "chinese"):
        language = talker.speaker_dialects.get(speaker, language)
    if language is None:
        codec = [talker.codec_nothink_id, talker.codec_think_bos_id, talker.codec_think_eos_id]
    else:
        language_id = talker.language_ids[language]
        codec = [talker.codec_think_id, talker.codec_think_bos_id, language_id, talker.codec_think_eos_id]
    if speaker:
        codec.append(talker.speaker_ids[speaker])
    elif params.x_vector is not None:
        codec.append(X_VECTOR)
    return [
        *((text_id, NO_ID) for text_id in text_only),
        *((ids.tts_pad, item) for item in codec),
        (ids.tts_bos, talker.codec_pad_id),
    ]
