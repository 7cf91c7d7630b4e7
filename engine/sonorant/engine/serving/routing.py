"""Chooses the checkpoint that speaks an utterance, and one of its worker pairs. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from sonorant.engine.checkpoint.config import TaskName
from sonorant.engine.serving.info import EngineInfo
from sonorant.engine.types import SynthesisParams


@dataclass(frozen=True, slots=True)
class Need:
    """What an utterance needs of a checkpoint because of its voice."""

    tasks: tuple[TaskName, ...]  # any of these will do, earlier ones better
    speaker: str | None = None  # in upper or lower case
    embedding_size: int | None = None  # of the speaker embedding; it must be the talker's hidden size
    fingerprint: str = ""  # of the checkpoint, if it must be a certain one

    @classmethod
    def of(cls, params: SynthesisParams) -> "Need":
        size = None if params.x_vector is None else params.x_vector.size
        if params.reference_codes is not None or params.reference_text:
            tasks: tuple[TaskName, ...] = ("base",)
        elif params.x_vector is not None:
            tasks = ("base", "custom_voice")
        else:
            tasks = ("custom_voice",) if params.speaker else ("voice_design",)
        return cls(tasks, params.speaker, size, params.checkpoint)


def choose_model(need: Need, models: Sequence[EngineInfo]) -> int:
    """Return the index of the checkpoint that has everything needed; else of the one that can best say what is wrong.

    If there are several, prefers the one with the better task, then the first.
    """
    if len(models) == 1:
        return 0

    def merit(index: int) -> tuple[bool, bool, bool, int]:
        info = models[index]
        is_it = need.fingerprint == info.fingerprint
        if info.task not in need.tasks:
            return is_it, False, False, 0
        has_speaker = need.speaker is None or need.speaker.lower() in info.speakers
        has_size = need.embedding_size in (None, info.hidden_size)
        return is_it, True, has_speaker and has_size, -need.tasks.index(info.task)

    return max(range(len(models)), key=merit)  # max returns the first of equals


@dataclass(frozen=True, slots=True)
class PairLoad:
    """How full a worker pair is, and whether it serves."""

    serves: bool
    num_streams: int
    num_slots: int
    max_streams: int

    @property
    def room(self) -> int:
        """How many more streams it takes now."""
        return self.max_streams - self.num_streams if self.serves else 0


def choose_pair(pairs: Sequence[PairLoad]) -> int | None:
    """Return the index of a pair with a free slot, else with room in its queue, else of any that serves, else None.

    If there are several, prefers the one with the fewest live streams, then the first.
    """

    def merit(index: int) -> tuple[bool, bool, int]:
        pair = pairs[index]
        return pair.room <= 0, pair.num_streams >= pair.num_slots, pair.num_streams

    return min((index for index, pair in enumerate(pairs) if pair.serves), key=merit, default=None)
