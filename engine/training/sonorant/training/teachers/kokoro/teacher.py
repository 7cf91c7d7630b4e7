"""A teacher: Kokoro-82M, which sounds like a person. It speaks sentences that were spelled ahead."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from sonorant.engine.types import Int16Array
from sonorant.training.alignment import onset_s
from sonorant.training.speakers import Speaker
from sonorant.training.teachers.kokoro.modules import STEP_SAMPLES, BatchedKokoro
from sonorant.training.teachers.kokoro.phonemes import Spelling, chunks, phones_of, spoken_line
from sonorant.training.teachers.kokoro.voices import load_styles, style_of
from sonorant.training.teachers.speech import PAUSE, Speech, played_faster

SAMPLE_RATE_HZ = 24000
MAX_PHONES = 300  # in one part of a long text: some 20 seconds
BATCH_PHONES = {"cuda": 3000, "cpu": 300}  # of one batch, padding included; 3000 take 8 GB
BEFORE_S, BETWEEN_S = 0.05, 0.3  # silence that is kept before a later part of a text, and after an earlier one


class Kokoro:
    def __init__(self, folder: Path, spellings: Mapping[str, Spelling], device: torch.device) -> None:
        """`spellings`: of the texts that this teacher may be asked to speak."""
        self._model = BatchedKokoro(folder, device)
        self._styles = load_styles(folder)
        self._spellings = spellings
        self._batch_phones = BATCH_PHONES[device.type]

    def speak(self, texts: Sequence[str], voices: Sequence[str]) -> Sequence[Speech | None]:
        parts_of = [chunks(self._spellings[text], MAX_PHONES) if text in self._spellings else None for text in texts]
        jobs = [(words, voice) for parts, voice in zip(parts_of, voices, strict=True) for words in parts or ()]
        spoken = iter(self._speak_all(jobs))
        return [joined([next(spoken) for _ in parts]) if parts else None for parts in parts_of]

    def _speak_all(self, jobs: Sequence[tuple[Spelling, str]]) -> Sequence[Speech]:
        """`jobs`: (words, speaker). A made speaker's speech is played faster by the ratio of its formants, so Kokoro is
        asked for lower pitch and longer durations."""
        lines = [spoken_line(words) for words, _ in jobs]
        speakers = [Speaker.parse(name) for _, name in jobs]
        made: dict[int, Speech] = {}
        order = sorted(range(len(jobs)), key=lambda i: len(lines[i]))
        while order:
            size = max(1, self._batch_phones // (len(lines[order[-1]]) + 2))
            batch, order = order[-size:], order[:-size]
            styles = torch.stack([style_of(self._styles, speakers[i].shares, len(lines[i])) for i in batch])
            f0_hz = torch.tensor([(speakers[i].f0_hz or torch.nan) / speakers[i].formants for i in batch])
            stretch = torch.tensor([speakers[i].stretch * speakers[i].formants for i in batch])
            spoken = self._model.speak([lines[i] for i in batch], styles, f0_hz, stretch)
            for i, (samples, steps) in zip(batch, spoken, strict=True):
                durations_s = (steps.double() * (STEP_SAMPLES / SAMPLE_RATE_HZ)).tolist()
                phones, ends_s, spans = phones_of(jobs[i][0], durations_s)
                speech = Speech(_pcm(samples), SAMPLE_RATE_HZ, tuple(phones), tuple(ends_s), tuple(spans))
                made[i] = speech if speakers[i].f0_hz is None else played_faster(speech, speakers[i].formants)
        return [made[i] for i in range(len(jobs))]


def _pcm(samples: torch.Tensor) -> Int16Array:
    pcm: Int16Array = (samples.float() * 32767).clamp(-32768, 32767).to(torch.int16).cpu().numpy()
    return pcm


def joined(parts: Sequence[Speech]) -> Speech:
    """One speech of the parts of a long text, with a pause between them."""
    if len(parts) == 1:
        return parts[0]
    samples: list[Int16Array] = []
    phones: list[int] = []
    ends_s: list[float] = []
    spans: list[tuple[int, int] | None] = []
    at_s = 0.0
    for part in parts:
        last_s = max(end for end, phone in zip(part.ends_s, part.phones, strict=True) if phone != PAUSE)
        begin = round(max(0.0, onset_s(part.samples) - BEFORE_S) * SAMPLE_RATE_HZ)
        kept = part.samples[begin : round((last_s + BETWEEN_S) * SAMPLE_RATE_HZ)]
        shift_s, length_s = at_s - begin / SAMPLE_RATE_HZ, len(kept) / SAMPLE_RATE_HZ
        samples.append(kept)
        phones += part.phones
        ends_s += [min(max(end + shift_s, at_s), at_s + length_s) for end in part.ends_s]
        ends_s[-1] = at_s + length_s
        spans += part.spans
        at_s += length_s
    return Speech(np.concatenate(samples), SAMPLE_RATE_HZ, tuple(phones), tuple(ends_s), tuple(spans))
