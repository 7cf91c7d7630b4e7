"""Which checkpoint speaks an utterance, and which of its worker pairs. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from sonorant.engine.checkpoint.config import TaskName
from sonorant.engine.serving.info import EngineInfo
from sonorant.engine.types import SynthesisParams


@dataclass(frozen=True, slots=True)
class Need:
    """What an utterance needs of a checkpoint because of its voice."""

    tasks: tuple[TaskName, ...]  # any of these will do; the first one best
    speaker: str | None = None  # upper case or lower
    embedding_size: int | None = None  # of the speaker embedding, which fits talkers of one size
    fingerprint: str = ""  # of the checkpoint, if it has to be a certain one

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
    """Index of the checkpoint that has all that is needed; else of the one that can best tell what is wrong.

    Of several, the one with the better task, and of those the first.
    """

    def merit(index: int) -> tuple[bool, bool, bool, int]:
        info = models[index]
        is_it = need.fingerprint == info.fingerprint
        if info.task not in need.tasks:
            return is_it, False, False, 0
        has_speaker = need.speaker is None or need.speaker.lower() in info.speakers
        has_size = need.embedding_size in (None, info.hidden_size)
        return is_it, True, has_speaker and has_size, -need.tasks.index(info.task)

    return max(range(len(models)), key=merit)  # the first of equals


@dataclass(frozen=True, slots=True)
class Load:
    """How things are with a worker pair."""

    serves: bool
    num_streams: int
    num_slots: int
    max_streams: int

    @property
    def room(self) -> int:
        """How many more streams it takes now."""
        return self.max_streams - self.num_streams if self.serves else 0


def choose_pair(pairs: Sequence[Load]) -> int | None:
    """Index of a pair with a free slot, else of one with room in its queue, else of any that serves; None without one.

    Of several, the one with the fewest live streams, and of those the first.
    """

    def merit(index: int) -> tuple[bool, bool, int]:
        pair = pairs[index]
        return pair.room <= 0, pair.num_streams >= pair.num_slots, pair.num_streams

    return min((index for index, pair in enumerate(pairs) if pair.serves), key=merit, default=None)
