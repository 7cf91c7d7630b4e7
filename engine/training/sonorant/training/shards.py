"""The files between the stages: numbered shards of sentences, written whole or not at all, so stages can resume."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from sonorant.engine.types import Int16Array
from sonorant.training.alignment import AlignedSpeech
from sonorant.training.languages import LANGUAGES
from sonorant.training.speakers import VOICE_NAMES, Speaker

_LANGUAGES = tuple(LANGUAGES)


@dataclass(frozen=True, slots=True)
class Shard:
    """Several sentences end to end. A shard has either `audio` or `codes`; the other is empty."""

    rows: npt.NDArray[np.int32]  # [sentences] line of the sentence list
    languages: npt.NDArray[np.int8]  # [sentences] index of languages.LANGUAGES
    voices: npt.NDArray[
        np.int32
    ]  # [sentences] who speaks: index of the checkpoint's voices, or a made speaker's first row
    traits: npt.NDArray[np.float32]  # [sentences, NUM_TRAITS] of made speakers
    teachers: npt.NDArray[np.int8]  # [sentences] index of speakers.VOICE_NAMES: most of a made speaker's voice
    num_frames: npt.NDArray[np.int32]  # [sentences]
    num_tokens: npt.NDArray[np.int32]  # [sentences]
    tokens: Int16Array  # [sum of num_tokens] text token ids
    guide: Int16Array  # [sum of num_frames] text token being spoken
    phones: npt.NDArray[np.int8]  # [sum of num_frames * 4]
    audio: Int16Array  # [sum of num_frames * 1920], 24 kHz
    codes: Int16Array  # [sum of num_frames, codebooks]
    references: npt.NDArray[np.int32]  # [references] indices of the sentences in `mels`; empty in a shard with audio
    mels: npt.NDArray[np.float16]  # [references, frames, bands]; empty in a shard with audio

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".tmp.npz")
        np.savez(unfinished, **{field.name: getattr(self, field.name) for field in fields(self)})
        os.replace(unfinished, path)

    @classmethod
    def load(cls, path: Path) -> Self:
        with np.load(path) as file:
            return cls(**{field.name: file[field.name] for field in fields(cls)})


@dataclass(frozen=True, slots=True)
class SpokenSentence:
    row: int
    language: str
    voice: int
    speaker: Speaker
    tokens: Sequence[int]
    speech: AlignedSpeech


def audio_shard(sentences: Sequence[SpokenSentence]) -> Shard:
    return Shard(
        rows=np.array([s.row for s in sentences], np.int32),
        languages=np.array([_LANGUAGES.index(s.language) for s in sentences], np.int8),
        voices=np.array([s.voice for s in sentences], np.int32),
        traits=np.array([s.speaker.traits() for s in sentences], np.float32),
        teachers=np.array([_main_voice(s.speaker) for s in sentences], np.int8),
        num_frames=np.array([s.speech.num_frames for s in sentences], np.int32),
        num_tokens=np.array([len(s.tokens) for s in sentences], np.int32),
        tokens=np.concatenate([np.array(s.tokens, np.int16) for s in sentences]),
        guide=np.concatenate([s.speech.guide for s in sentences]),
        phones=np.concatenate([s.speech.phones for s in sentences]),
        audio=np.concatenate([s.speech.samples for s in sentences]),
        codes=np.zeros((0, 0), np.int16),
        references=np.zeros(0, np.int32),
        mels=np.zeros((0, 0, 0), np.float16),
    )


def _main_voice(speaker: Speaker) -> int:
    name = max(speaker.shares, key=lambda part: speaker.shares[part])
    return VOICE_NAMES.index(name) if name in VOICE_NAMES else 0


def shard_path(folder: Path, number: int) -> Path:
    return folder / f"{number:05d}.npz"
