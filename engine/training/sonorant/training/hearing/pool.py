"""Keeps what the teacher has spoken as references, and the texts as lines to be spoken in their voices."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sonorant.training.hearing.ear import Ear, Heard
from sonorant.training.hearing.settings import HearingSettings
from sonorant.training.references import ReferenceMels
from sonorant.training.shards import Shard

MEL_FRAMES = 512  # 5.5 s of a reference; a shorter one is repeated

Line = npt.NDArray[np.int16]  # text token ids


@dataclass(frozen=True, slots=True)
class Task:
    """Voices, and what each is to say."""

    mels: Tensor  # [voices, MEL_FRAMES, bands] of the references
    heard: Heard  # of the references
    lines: Sequence[Line]


class Cast:
    """References, any of which may say any of the lines."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self._references: list[tuple[Tensor, Heard]] = []

    def __len__(self) -> int:
        return len(self._references)

    def append(self, mels: Tensor, heard: Heard) -> None:
        for i in heard.semitones.isfinite().nonzero()[:, 0].tolist():  # a reference without pitch teaches none
            self._references.append((mels[i].half(), heard[i : i + 1]))

    def task(self, references: Sequence[int], lines: Sequence[int]) -> Task:
        mels, heard = zip(*(self._references[i] for i in references), strict=True)
        return Task(torch.stack(mels).float(), Heard.joined(heard), [self.lines[i] for i in lines])

    def draw(self, number: int, rng: np.random.Generator) -> Task:
        references = rng.choice(len(self), number, replace=False).tolist()
        return self.task(references, rng.integers(len(self.lines), size=number).tolist())

    def first(self, number: int) -> Task:
        number = min(number, len(self))
        return self.task(range(number), [i % len(self.lines) for i in range(number)])


class ReferencePool:
    """Grows shard by shard up to the settings' `max_references`."""

    def __init__(self, device: torch.device, settings: HearingSettings, held_out: frozenset[int]) -> None:
        self.training, self.held_out = Cast(), Cast()
        self._held_out_rows, self._settings = held_out, settings
        self._listen, self._ear = ReferenceMels(device), Ear(device)
        self._taken: set[str] = set()

    @property
    def is_enough(self) -> bool:
        casts = self.training, self.held_out
        return len(self.training) >= self._settings.num_voices and all(len(c) and c.lines for c in casts)

    def poll(self, folder: Path) -> bool:
        """Load a new shard of the folder, if there is one and room for it."""
        new = next((path for path in sorted(folder.glob("?????.npz")) if path.name not in self._taken), None)
        if new is None or len(self.training) >= self._settings.max_references:
            return False
        self._taken.add(new.name)
        self._append(Shard.load(new))
        return True

    def _append(self, shard: Shard) -> None:
        is_held_out = np.isin(shard.rows, list(self._held_out_rows))
        lines = np.split(shard.tokens, np.cumsum(shard.num_tokens)[:-1])
        for cast, own in ((self.training, ~is_held_out), (self.held_out, is_held_out)):
            cast.lines += [lines[i] for i in np.flatnonzero(own & (shard.num_frames <= self._settings.line_frames))]
            long = np.flatnonzero(own & (shard.num_frames >= self._settings.reference_frames)).astype(np.int32)
            if len(long):
                samples = self._listen.crops(shard, long, MEL_FRAMES)
                whole = torch.full((len(long),), samples.shape[1], device=samples.device)
                cast.append(self._listen.mels(samples), self._ear(samples, whole))
