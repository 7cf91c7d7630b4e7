"""Training sentences as prompt rows, kept on the device: what goes in at each position and what must come out.

A sentence is a head (role, language, speaker: one of a few) and a tail in either text layout; batches are made of
indices into these rows, so the host sends no more than positions. Layouts: docs of `engine.prompt.layout`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.checkpoint import Checkpoint
from engine.prompt.layout import PromptAssembler
from engine.prompt.tokenizer import Tokenizer
from engine.training.alignment import NO_TOKEN, PHONES_PER_FRAME
from engine.training.flite import VOICES
from engine.training.shards import Shard
from engine.types import NO_ID, SynthesisParams

NOTHING = -1  # no frame goes in, or nothing is asked of the row
END = -2  # the row must give the end token
LANGUAGES = ("english", "auto")

IntArray = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Tail:
    """The rows of one sentence after its head, in one layout. Frames count from the sentence's first."""

    text: IntArray  # text id
    control: IntArray  # codec id that is no frame, or NO_ID
    frame: IntArray  # frame that goes in, or NOTHING
    target: IntArray  # frame that must come out, END or NOTHING
    guide: IntArray  # row of the tail whose text is being spoken by the target, or NO_TOKEN


def streaming_tail(tokens: npt.NDArray[np.int16], guide: npt.NDArray[np.int16], checkpoint: Checkpoint) -> Tail:
    """One text id per frame, then the end id, then padding; the first row comes with codec_bos."""
    num_frames, ids = len(guide), checkpoint.text_ids
    text = np.full(num_frames + 1, ids.tts_pad, np.int32)
    known = np.append(tokens, ids.tts_eos)[: num_frames + 1]
    text[: len(known)] = known
    frames = np.arange(num_frames, dtype=np.int32)
    seen = np.where(guide <= frames, guide, NO_TOKEN)  # text that has not come yet cannot be looked at
    return Tail(
        text=text,
        control=np.append([checkpoint.talker.codec_bos_id], np.full(num_frames, NO_ID)).astype(np.int32),
        frame=np.append([NOTHING], frames).astype(np.int32),
        target=np.append(frames, [END]).astype(np.int32),
        guide=np.append(seen, [NO_TOKEN]).astype(np.int32),
    )


def whole_text_tail(tokens: npt.NDArray[np.int16], guide: npt.NDArray[np.int16], checkpoint: Checkpoint) -> Tail:
    """All text first, each id with codec_pad, then the frames with tts_pad."""
    num_frames, num_text, ids, c = len(guide), len(tokens) + 1, checkpoint.text_ids, checkpoint.talker
    frames = np.arange(num_frames, dtype=np.int32)
    silent = np.full(num_text, NOTHING, np.int32)
    return Tail(
        text=np.concatenate([tokens, [ids.tts_eos], np.full(num_frames + 1, ids.tts_pad)]).astype(np.int32),
        control=np.concatenate(
            [np.full(num_text, c.codec_pad_id), [c.codec_bos_id], np.full(num_frames, NO_ID)]
        ).astype(np.int32),
        frame=np.concatenate([silent, [NOTHING], frames]).astype(np.int32),
        target=np.concatenate([silent, frames, [END]]).astype(np.int32),
        guide=np.concatenate([np.full(num_text, NO_TOKEN), guide, [NO_TOKEN]]).astype(np.int32),
    )


LAYOUTS = (streaming_tail, whole_text_tail)


class RowStore:
    """Rows and frames on the device, appended shard by shard; row 0 is padding."""

    def __init__(
        self, checkpoint: Checkpoint, text_folder: Path, device: torch.device, max_rows: int, max_frames: int
    ) -> None:
        self.checkpoint = checkpoint
        self.text = torch.zeros(max_rows, dtype=torch.int16, device=device)
        self.control = torch.full((max_rows,), NO_ID, dtype=torch.int16, device=device)
        self.frame = torch.full((max_rows,), NOTHING, dtype=torch.int32, device=device)
        self.target = torch.full((max_rows,), NOTHING, dtype=torch.int32, device=device)
        self.guide = torch.full((max_rows,), NO_TOKEN, dtype=torch.int16, device=device)
        self.codes = torch.zeros(max_frames, checkpoint.talker.num_codebooks, dtype=torch.int16, device=device)
        self.phones = torch.zeros(max_frames, PHONES_PER_FRAME, dtype=torch.int8, device=device)
        self.num_rows, self.num_frames, self.full = 1, 0, False
        # Per sentence: [voice, first row and rows of each layout's tail].
        self.training: list[tuple[int, ...]] = []
        self.held_out: list[tuple[int, ...]] = []
        self.heads = self._append_heads(text_folder)  # (voice, language) -> first row, rows

    def append(self, shard: Shard, held_out: frozenset[int]) -> None:
        num_rows = sum(2 * (n + 1) for n in shard.num_frames) + len(shard.tokens) + len(shard.rows)
        if self.num_rows + num_rows > len(self.text) or self.num_frames + len(shard.guide) > len(self.codes):
            self.full = True
            return
        frames_end, tokens_end = np.cumsum(shard.num_frames), np.cumsum(shard.num_tokens)
        tails: list[Tail] = []
        first_frames: list[int] = []
        for i, row in enumerate(shard.rows):
            frames = slice(frames_end[i] - shard.num_frames[i], frames_end[i])
            tokens = slice(tokens_end[i] - shard.num_tokens[i], tokens_end[i])
            made = [layout(shard.tokens[tokens], shard.guide[frames], self.checkpoint) for layout in LAYOUTS]
            start = self.num_rows + sum(len(t.text) for t in tails)
            starts = (start, len(made[0].text), start + len(made[0].text), len(made[1].text))
            (self.held_out if row in held_out else self.training).append((int(shard.voices[i]), *starts))
            tails += made
            first_frames += [self.num_frames + int(frames.start)] * len(made)
        self._append_tails(tails, first_frames)
        end = self.num_frames + len(shard.guide)
        self.codes[self.num_frames : end] = torch.from_numpy(shard.codes)
        self.phones[self.num_frames : end] = torch.from_numpy(shard.phones.reshape(-1, PHONES_PER_FRAME))
        self.num_frames = end

    def _append_tails(self, tails: Sequence[Tail], first_frames: Sequence[int]) -> None:
        shift = np.repeat(first_frames, [len(t.text) for t in tails])

        def joined(name: str) -> IntArray:
            return np.concatenate([getattr(t, name) for t in tails])

        frame, target = joined("frame"), joined("target")
        self._write(self.text, joined("text"))
        self._write(self.control, joined("control"))
        self._write(self.frame, np.where(frame >= 0, frame + shift, frame))
        self._write(self.target, np.where(target >= 0, target + shift, target))
        self._write(self.guide, joined("guide"))
        self.num_rows += len(shift)

    def _write(self, column: Tensor, values: npt.NDArray[np.integer]) -> None:
        column[self.num_rows : self.num_rows + len(values)] = torch.from_numpy(values).to(column.dtype)

    def _append_heads(self, text_folder: Path) -> dict[tuple[int, str], tuple[int, int]]:
        """The prompt's own assembler makes the heads: the rows before the first text."""
        heads = {}
        for voice, speaker in enumerate(VOICES):
            for language in LANGUAGES:
                text, control = head_rows(self.checkpoint, text_folder, speaker, language)
                nothing = np.full(len(text), NOTHING, np.int32)
                self._write(self.text, text)
                self._write(self.control, control)
                self._write(self.frame, nothing)
                self._write(self.target, nothing)
                self._write(self.guide, np.full(len(text), NO_TOKEN, np.int32))
                heads[voice, language] = (self.num_rows, len(text))
                self.num_rows += len(text)
        return heads


def head_rows(checkpoint: Checkpoint, text_folder: Path, speaker: str, language: str) -> tuple[IntArray, IntArray]:
    """(text ids, codec ids) of the rows before the first text id in the streaming layout."""
    params = SynthesisParams(sampling=checkpoint.default_sampling, speaker=speaker, language=language)
    assembler = PromptAssembler(params, checkpoint, Tokenizer.load(text_folder))
    assembler.push_text([0])
    plan = assembler.plan()
    assert plan is not None
    return np.array(plan.text_ids[:-1], np.int32), np.array(plan.codec_items[:-1], np.int32)
