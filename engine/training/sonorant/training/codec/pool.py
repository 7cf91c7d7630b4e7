"""Keeps the teacher's speech on the device, and draws random crops of it."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sonorant.training.alignment import FRAME_SAMPLES, PHONES_PER_FRAME
from sonorant.training.audio import PEAK
from sonorant.training.shards import Shard

STEPS_PER_FRAME = PHONES_PER_FRAME  # crops begin at multiples of 20 ms


class SpeechPool:
    """Sentences end to end; grows shard by shard up to `max_frames`."""

    def __init__(self, device: torch.device, max_frames: int, held_out: frozenset[int]) -> None:
        self._samples = torch.empty(max_frames, FRAME_SAMPLES, dtype=torch.int16, device=device)
        self._phones = torch.empty(max_frames, PHONES_PER_FRAME, dtype=torch.int8, device=device)
        self._starts = torch.zeros(0, dtype=torch.long, device=device)
        self._held_out = held_out
        self._taken: set[str] = set()
        self.device, self.num_frames = device, 0

    def poll(self, folder: Path, max_shards: int) -> int:
        """Load up to `max_shards` new shards of the folder; return how many."""
        new = [path for path in sorted(folder.glob("?????.npz")) if path.name not in self._taken][:max_shards]
        for path in new:
            self._taken.add(path.name)
            self._append(Shard.load(path))
        return len(new)

    def crops(self, num_frames: int, number: int, at_starts: float) -> tuple[Tensor, Tensor, Tensor]:
        """Draw samples [number, num_frames * 1920] in -1..1, their phones [number, num_frames * 4], and which of the
        crops begin where a sentence does [number].

        `at_starts`: the share of crops that begin where a sentence begins.
        """
        last = (self.num_frames - num_frames) * STEPS_PER_FRAME
        anywhere = torch.randint(last, (number,), device=self.device)
        begun = self._starts[torch.randint(len(self._starts), (number,), device=self.device)] * STEPS_PER_FRAME
        starting = (torch.rand(number, device=self.device) < at_starts) & (begun <= last)
        first = torch.where(starting, begun, anywhere)
        step_samples = FRAME_SAMPLES // STEPS_PER_FRAME
        span = torch.arange(num_frames * FRAME_SAMPLES, device=self.device)
        samples = self._samples.flatten()[first[:, None] * step_samples + span]
        phones = self._phones.flatten()[first[:, None] + torch.arange(num_frames * STEPS_PER_FRAME, device=self.device)]
        return samples.float() * (PEAK / 32768), phones.long(), starting

    def _append(self, shard: Shard) -> None:
        keep = [i for i, row in enumerate(shard.rows) if row not in self._held_out]
        if not keep:
            return
        ends = np.cumsum(shard.num_frames)
        frames = np.concatenate([np.arange(ends[i] - shard.num_frames[i], ends[i]) for i in keep])
        if self.num_frames + len(frames) > len(self._samples):
            return
        samples = torch.from_numpy(shard.audio).to(self.device)
        chosen = torch.from_numpy(frames).to(self.device)
        end = self.num_frames + len(frames)
        self._samples[self.num_frames : end] = samples.view(-1, FRAME_SAMPLES)[chosen]
        phones = torch.from_numpy(shard.phones).to(self.device).view(-1, PHONES_PER_FRAME)
        self._phones[self.num_frames : end] = phones[chosen]
        starts = torch.from_numpy(_starts(self.num_frames, shard.num_frames[keep])).to(self.device)
        self._starts = torch.cat([self._starts, starts])
        self.num_frames = end


def _starts(first: int, lengths: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    return first + np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)[:-1]])
