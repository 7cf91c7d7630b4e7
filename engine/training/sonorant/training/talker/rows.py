"""Training sentences as prompt rows, kept on the device: what goes in at each position and what must come out.

A sentence has a head (role, language, speaker: there are few) and a tail in each text layout. Batches are made of
indices into these rows, so the host sends only indices to the device. `sonorant.engine.prompt.layout` explains layouts.

Where voices are cloned, all sentences share the heads. The speaker's row is then the x-vector of a reference, and the
references' mels are kept here, too. A prompt with reference text and reference frames has the layout of one long
sentence. So two neighbouring sentences of one speaker are joined to a pair, to train such prompts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.prompt.layout import PromptLayout
from sonorant.engine.prompt.tokenizer import Tokenizer
from sonorant.engine.types import NO_ID, SynthesisParams
from sonorant.training.alignment import NO_TOKEN, PHONES_PER_FRAME
from sonorant.training.languages import AUTO, LANGUAGES
from sonorant.training.references import NUM_MELS, REFERENCE_FRAMES
from sonorant.training.shards import Shard
from sonorant.training.speakers import NUM_TRAITS

NOTHING = -1  # no frame goes in, or the row has no target
END = -2  # the row's target is the end token

_LANGUAGES = tuple(LANGUAGES)

IntArray = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Tail:
    """The rows of one sentence after its head, in one layout. Frames are numbered within the sentence."""

    text: IntArray  # text id
    control: IntArray  # codec id that is no frame, or NO_ID
    frame: IntArray  # frame that goes in, or NOTHING
    target: IntArray  # frame that must come out, END or NOTHING
    guide: IntArray  # row of the tail with the text that the target speaks, or NO_TOKEN


def streaming_tail(tokens: npt.NDArray[np.int16], guide: npt.NDArray[np.int16], checkpoint: Checkpoint) -> Tail:
    """The streaming layout: one text id per frame, then the end id, then padding; codec_bos in the first row."""
    num_frames, ids = len(guide), checkpoint.text_ids
    text = np.full(num_frames + 1, ids.tts_pad, np.int32)
    known = np.append(tokens, ids.tts_eos)[: num_frames + 1]
    text[: len(known)] = known
    frames = np.arange(num_frames, dtype=np.int32)
    seen = np.where(guide <= frames, guide, NO_TOKEN)  # the model cannot look at text that comes later
    return Tail(
        text=text,
        control=np.append([checkpoint.talker.codec_bos_id], np.full(num_frames, NO_ID)).astype(np.int32),
        frame=np.append([NOTHING], frames).astype(np.int32),
        target=np.append(frames, [END]).astype(np.int32),
        guide=np.append(seen, [NO_TOKEN]).astype(np.int32),
    )


def whole_text_tail(tokens: npt.NDArray[np.int16], guide: npt.NDArray[np.int16], checkpoint: Checkpoint) -> Tail:
    """The layout with all text first: each text id with codec_pad, then the frames with tts_pad."""
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


@dataclass(frozen=True, slots=True)
class StoreSizes:
    max_rows: int
    max_frames: int
    max_references: int  # 0 where the checkpoint has voices of its own


@dataclass(frozen=True, slots=True)
class StoredSentence:
    language: str
    speaker: int
    tails: tuple[tuple[int, int], ...]  # (first row, rows) in each of LAYOUTS
    pair_tails: tuple[tuple[int, int], ...]  # joined with the sentence before; empty if it is not paired
    mels: int  # number of its own mels, or NOTHING


class RowStore:
    """Rows and frames on the device, appended shard by shard; row 0 is padding."""

    def __init__(self, checkpoint: Checkpoint, text_folder: Path, device: torch.device, sizes: StoreSizes) -> None:
        self.checkpoint = checkpoint
        max_rows = sizes.max_rows
        self.text = torch.zeros(max_rows, dtype=torch.int16, device=device)
        self.control = torch.full((max_rows,), NO_ID, dtype=torch.int16, device=device)
        self.frame = torch.full((max_rows,), NOTHING, dtype=torch.int32, device=device)
        self.target = torch.full((max_rows,), NOTHING, dtype=torch.int32, device=device)
        self.guide = torch.full((max_rows,), NO_TOKEN, dtype=torch.int16, device=device)
        self.codes = torch.zeros(sizes.max_frames, checkpoint.talker.num_codebooks, dtype=torch.int16, device=device)
        self.phones = torch.zeros(sizes.max_frames, PHONES_PER_FRAME, dtype=torch.int8, device=device)
        self.languages = torch.zeros(sizes.max_frames, dtype=torch.int8, device=device)  # of each frame, as in Shard
        mels = (sizes.max_references, REFERENCE_FRAMES, NUM_MELS)
        self.mels = torch.zeros(mels, dtype=torch.float16, device=device)
        self.traits = torch.zeros(sizes.max_references, NUM_TRAITS, device=device)
        self.teachers = torch.zeros(sizes.max_references, dtype=torch.long, device=device)
        self.num_rows, self.num_frames, self.num_references, self.full = 1, 0, 0, False
        self.training: list[StoredSentence] = []
        self.held_out: list[StoredSentence] = []
        self.by_speaker: dict[int, list[StoredSentence]] = {}  # the sentences of `training`
        self.references: dict[int, list[int]] = {}  # speaker -> numbers of its mels
        self._clones = checkpoint.speaker_encoder is not None
        self._heads = self._append_heads(text_folder)  # (voice, language) -> first row, rows

    def head(self, speaker: int, language: str) -> tuple[int, int]:
        return self._heads[0 if self._clones else speaker, language]

    def append(self, shard: Shard, held_out: frozenset[int]) -> None:
        twice = 2 if self._clones else 1
        num_rows = twice * twice * (sum(2 * (n + 1) for n in shard.num_frames) + len(shard.tokens) + len(shard.rows))
        if (
            self.num_rows + num_rows > len(self.text)
            or self.num_frames + len(shard.guide) > len(self.codes)
            or self.num_references + len(shard.references) > len(self.mels)
        ):
            self.full = True
            return
        frames_end, tokens_end = np.cumsum(shard.num_frames), np.cumsum(shard.num_tokens)
        tails: list[Tail] = []
        first_frames: list[int] = []

        def layouts(first: int, last: int) -> tuple[tuple[int, int], ...]:
            """Append the tails of the sentences first..last, joined to one; return (first row, rows) in each layout."""
            frames = slice(frames_end[first] - shard.num_frames[first], frames_end[last])
            tokens = slice(tokens_end[first] - shard.num_tokens[first], tokens_end[last])
            guide = shard.guide[frames].copy()
            if last > first:
                later = guide[shard.num_frames[first] :]
                later[later != NO_TOKEN] += shard.num_tokens[first]
            places = []
            for layout in LAYOUTS:
                start = self.num_rows + sum(len(t.text) for t in tails)
                tails.append(layout(shard.tokens[tokens], guide, self.checkpoint))
                first_frames.append(self.num_frames + int(frames.start))
                places.append((start, len(tails[-1].text)))
            return tuple(places)

        mels = {int(i): number for number, i in enumerate(shard.references, self.num_references)}
        for i, row in enumerate(shard.rows):
            speaker = int(shard.voices[i])
            paired = self._clones and i % 2 == 1 and shard.voices[i - 1] == speaker  # half of the pairs are enough
            pair_tails = layouts(i - 1, i) if paired else ()
            sentence = StoredSentence(
                _LANGUAGES[shard.languages[i]], speaker, layouts(i, i), pair_tails, mels.get(i, NOTHING)
            )
            if row in held_out:
                self.held_out.append(sentence)
            else:
                self.training.append(sentence)
                self.by_speaker.setdefault(speaker, []).append(sentence)
        self._append_tails(tails, first_frames)
        end = self.num_frames + len(shard.guide)
        self.codes[self.num_frames : end] = torch.from_numpy(shard.codes)
        self.phones[self.num_frames : end] = torch.from_numpy(shard.phones.reshape(-1, PHONES_PER_FRAME))
        self.languages[self.num_frames : end] = torch.from_numpy(shard.languages.repeat(shard.num_frames))
        self.num_frames = end
        self._append_references(shard)

    def _append_references(self, shard: Shard) -> None:
        chosen = shard.references
        if len(chosen) == 0:
            return
        for number, speaker in enumerate(shard.voices[chosen], self.num_references):
            self.references.setdefault(int(speaker), []).append(number)
        end = self.num_references + len(chosen)
        self.mels[self.num_references : end] = torch.from_numpy(shard.mels)
        self.traits[self.num_references : end] = torch.from_numpy(shard.traits[chosen])
        self.teachers[self.num_references : end] = torch.from_numpy(shard.teachers[chosen].astype(np.int64))
        self.num_references = end

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
        """Append the heads: the rows before the first text, as `PromptLayout` makes them."""
        heads = {}
        for voice, speaker in enumerate((None,) if self._clones else tuple(self.checkpoint.talker.speaker_ids)):
            for language in (*self.checkpoint.talker.language_ids, AUTO):
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


def head_rows(
    checkpoint: Checkpoint, text_folder: Path, speaker: str | None, language: str
) -> tuple[IntArray, IntArray]:
    """Return text ids and codec items of the rows before the first text id in the streaming layout.

    Without a `speaker`, there is a row for an x-vector.
    """
    params = SynthesisParams(
        sampling=checkpoint.default_sampling,
        speaker=speaker,
        language=language,
        x_vector=None if speaker else np.zeros(checkpoint.talker.stack.hidden_size, np.float32),
    )
    plan = PromptLayout(params, checkpoint, Tokenizer.load(text_folder)).plan([0], ended=False)
    assert plan is not None
    return np.array(plan.text_ids[:-1], np.int32), np.array(plan.codec_items[:-1], np.int32)
