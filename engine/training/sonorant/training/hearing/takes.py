"""Has a talker in training speak many lines at once, and tells how likely it was to speak as it did.

Both use the rows of the streaming layout. The weights are those of the serving modules.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.model.attention import frame_attention
from sonorant.engine.model.layers import RotaryTable
from sonorant.engine.types import X_VECTOR
from sonorant.training.alignment import NO_TOKEN
from sonorant.training.hearing.pool import Line
from sonorant.training.languages import AUTO
from sonorant.training.talker.losses import MASKED, TrainedTalker, predictor_logits, run_block
from sonorant.training.talker.rows import head_rows, streaming_tail


@dataclass(frozen=True, slots=True)
class Takes:
    codes: Tensor  # [takes, frames, codebooks]; what comes after the end means nothing
    num_frames: Tensor  # [takes]; all of them if it did not end

    def __getitem__(self, takes: slice) -> "Takes":
        return Takes(self.codes[takes], self.num_frames[takes])

    @property
    def inside(self) -> Tensor:  # [takes * frames]: whether a frame comes before its take's end
        return self._until(self.num_frames - 1)

    @property
    def chosen(self) -> Tensor:  # the same, or is the end, which is chosen as first codes are
        return self._until(self.num_frames)

    def _until(self, last: Tensor) -> Tensor:
        frames = torch.arange(self.codes.shape[1], device=last.device)
        return (frames <= last[:, None]).flatten()


@dataclass(frozen=True, slots=True)
class Script:
    """What is to be said, one line a take."""

    text_ids: Tensor  # [takes, frames]
    language: str

    def __getitem__(self, takes: Tensor | slice) -> "Script":
        return Script(self.text_ids[takes], self.language)


class Prompts:
    """The rows of the streaming layout: a head with the x-vector, then one text id with each frame."""

    def __init__(self, checkpoint: Checkpoint, text_folder: Path, device: torch.device) -> None:
        self._checkpoint, self._device = checkpoint, device
        languages = (*checkpoint.talker.language_ids, AUTO)
        self._heads = {language: self._head(text_folder, language) for language in languages}

    def _head(self, text_folder: Path, language: str) -> tuple[Tensor, Tensor]:
        text, control = head_rows(self._checkpoint, text_folder, None, language)
        return torch.from_numpy(text).long().to(self._device), torch.from_numpy(control).long().to(self._device)

    def script(self, lines: Sequence[Line], language: str, num_frames: int) -> Script:
        guide = np.full(num_frames - 1, NO_TOKEN, np.int16)
        tails = [streaming_tail(line, guide, self._checkpoint).text for line in lines]
        return Script(torch.from_numpy(np.stack(tails)).long().to(self._device), language)

    def head(self, model: TrainedTalker, x_vectors: Tensor, language: str) -> Tensor:  # [takes, rows, hidden]
        text, control = self._heads[language]
        rows = model.talker.embed_text(text) + model.talker.embed_codec(control)
        return rows + x_vectors[:, None] * (control == X_VECTOR)[:, None]


@torch.no_grad()
def speak(model: TrainedTalker, prompts: Prompts, x_vectors: Tensor, script: Script, temperature: float) -> Takes:
    """Speak each line with its x-vector [takes, hidden]. Temperature 0: the likeliest codes."""
    talker, device = model.talker, x_vectors.device
    (number, num_frames), num_books = script.text_ids.shape, model.config.num_codebooks
    head, text = prompts.head(model, x_vectors, script.language), _text(model, script)
    history = _History(model, number, head.shape[1] + num_frames, device)
    frame_rotary = RotaryTable(model.predictor_config.stack, num_books, device, torch.float32)

    def choose(_book: int, logits: Tensor) -> Tensor:
        if temperature == 0:
            return logits.argmax(-1)
        return torch.multinomial(F.softmax(logits.float() / temperature, -1), 1)[:, 0]

    for row in head.unbind(1):
        history.step(row)
    x = _begin(model)
    made: list[Tensor] = []
    for frame in range(num_frames):
        hidden = history.step(x + text[:, frame])
        first = choose(0, _first_logits(model, hidden))
        embedding = talker.model.codec_embedding(_codes(model, first))
        others, _ = talker.code_predictor.predict(hidden, embedding, num_books, frame_rotary, choose)
        made.append(torch.stack([first, *others], 1))
        x = talker.embed_frames(_codes(model, made[-1]))
    codes = torch.stack(made, 1)
    ended = codes[..., 0] == model.config.codec_eos_id
    return Takes(codes, torch.where(ended.any(1), ended.int().argmax(1), num_frames))


def log_probabilities(
    model: TrainedTalker, prompts: Prompts, x_vectors: Tensor, script: Script, takes: Takes, temperature: float
) -> tuple[Tensor, Tensor]:
    """Log probabilities of the ids that each first code could have been, [takes * frames, ids], and of the other codes
    of the frames before each take's end, [frames, codebooks - 1, codes]."""
    number, num_frames = script.text_ids.shape
    spoken = _codes(model, takes.codes)
    own = model.talker.embed_frames(spoken.flatten(0, 1)).view(number, num_frames, -1)
    begin = _begin(model).expand(number, 1, -1)
    tail = _text(model, script) + torch.cat([begin, own[:, :-1]], 1)
    rows = torch.cat([prompts.head(model, x_vectors, script.language), tail], 1)
    length, x = rows.shape[1], rows.flatten(0, 1)
    positions = torch.arange(length, device=x.device).repeat(number)
    rotation = RotaryTable(model.config.stack, length, x.device, torch.float32).at(positions)
    for layer in model.talker.model.layers.children():
        x, _ = run_block(layer, x, rotation.cos, rotation.sin, number, None, 0.0, None)  # type: ignore[arg-type]
    hidden = model.talker.model.norm(x).view(number, length, -1)[:, -num_frames:].flatten(0, 1)
    books = predictor_logits(model, hidden[takes.inside], spoken.flatten(0, 1)[takes.inside], run_block)
    return F.log_softmax(_first_logits(model, hidden) / temperature, -1), F.log_softmax(books.float() / temperature, -1)


class _History:
    """Keys and values of all rows so far; all takes are at the same position."""

    def __init__(self, model: TrainedTalker, number: int, length: int, device: torch.device) -> None:
        c = model.config.stack
        self._model, self._position = model.talker.model, 0
        self._rotary = RotaryTable(c, length, device, torch.float32)
        self._cache = torch.zeros(c.num_layers, 2, number, length, c.num_kv_heads, c.head_dim, device=device)

    def step(self, x: Tensor) -> Tensor:  # [takes, hidden] -> [takes, hidden]
        rotation = self._rotary.at_each(self._position)
        for layer, (keys, values) in zip(self._model.layers, self._cache, strict=True):
            x = layer(x, rotation, partial(frame_attention, keys=keys, values=values, position=self._position))
        self._position += 1
        out: Tensor = self._model.norm(x)
        return out


def _text(model: TrainedTalker, script: Script) -> Tensor:  # [takes, frames, hidden]
    return model.talker.embed_text(script.text_ids.flatten()).view(*script.text_ids.shape, -1)


def _begin(model: TrainedTalker) -> Tensor:  # [hidden]
    return model.talker.model.codec_embedding.weight[model.config.codec_bos_id]


def _first_logits(model: TrainedTalker, hidden: Tensor) -> Tensor:
    """Logits of codes and the end token; ids between them are never said."""
    end, num_codes = model.config.codec_eos_id, model.predictor_config.vocab_size
    logits = F.linear(hidden, model.talker.codec_head.weight[: end + 1]).float()
    ids = torch.arange(end + 1, device=hidden.device)
    return logits.masked_fill((ids >= num_codes) & (ids < end), MASKED)


def _codes(model: TrainedTalker, codes: Tensor) -> Tensor:
    """The codes with some code in place of the end token, so that they can be embedded."""
    return codes.clamp(max=model.predictor_config.vocab_size - 1)
