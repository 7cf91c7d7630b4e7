"""What the talker keeps of each slot between steps, as arrays over all slots."""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.cuda import upload
from sonorant.engine.model.sampling import Sampling, penalize_repetition
from sonorant.engine.types import Int16Array, SamplingParams


class SlotArrays:
    """Arrays with one row per slot, and one more for padding rows. `reset` overwrites a slot's row for a new stream."""

    def __init__(self, num_slots: int, checkpoint: Checkpoint, device: torch.device, dtype: torch.dtype) -> None:
        c, num_rows = checkpoint.talker, num_slots + 1
        self.last_frame = torch.zeros(num_rows, c.stack.hidden_size, device=device, dtype=dtype)
        self.seen = torch.zeros(num_rows, c.vocab_size, device=device, dtype=torch.bool)
        self.seed = torch.zeros(num_rows, device=device, dtype=torch.int64)
        self.penalty = torch.ones(num_rows, device=device)
        self.talker = _greedy(num_rows, device)
        self.predictor = _greedy(num_rows, device)
        self._sampling_slots: set[int] = set()
        self.banned = torch.zeros(c.vocab_size, dtype=torch.bool, device=device)
        self.banned[list(c.suppressed_ids)] = True
        self.banned[c.codec_eos_id] = False
        self._is_eos = torch.zeros_like(self.banned)
        self._is_eos[c.codec_eos_id] = True

    def reset(self, slot: int, p: SamplingParams, known_codes: Int16Array | None = None) -> None:
        """Set a slot up for a new stream, or for one that goes on behind `known_codes` [frames, codebooks]."""
        numbers = [
            *(p.seed, p.repetition_penalty, p.do_sample, p.temperature, p.top_k, p.top_p),
            *(p.subtalker_do_sample, p.subtalker_temperature, p.subtalker_top_k, p.subtalker_top_p),
        ]
        values = upload(np.array(numbers, np.float64), self.seed.device)  # one copy for all, and the host does not wait
        self.seen[slot] = False
        if known_codes is not None:
            self.note_said(slot, known_codes)
        self.seed[slot] = values[0]
        self.penalty[slot] = values[1]
        self.talker.set(slot, values[2:6])
        self.predictor.set(slot, values[6:])
        if p.do_sample or p.subtalker_do_sample:
            self._sampling_slots.add(slot)
        else:
            self._sampling_slots.discard(slot)

    def note_said(self, slot: int, codes: Int16Array) -> None:
        """Note that the slot's stream has said these frames [frames, codebooks]."""
        self.seen[slot, upload(codes[:, 0].astype(np.int64), self.seen.device)] = True

    def any_samples(self, slots: Iterable[int]) -> bool:
        return not self._sampling_slots.isdisjoint(slots)

    def first_scores(self, logits: Tensor, slots: Tensor, allow_eos: Tensor) -> Tensor:
        """Return scores [rows, ids] to draw the first codebook from: repetition penalty applied, banned ids -inf."""
        scores = penalize_repetition(logits.float(), self.seen[slots], self.penalty[slots])
        return scores.masked_fill(self.banned | (self._is_eos & (allow_eos == 0)[:, None]), -torch.inf)


def _greedy(num_rows: int, device: torch.device) -> Sampling:
    return Sampling(
        do_sample=torch.zeros(num_rows, device=device, dtype=torch.bool),
        temperature=torch.ones(num_rows, device=device),
        top_k=torch.zeros(num_rows, device=device, dtype=torch.int64),
        top_p=torch.ones(num_rows, device=device),
    )
