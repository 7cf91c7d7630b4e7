"""Stored voices as values, and what keeps them: an interface, so that they may be kept elsewhere than in a folder.

Methods block, and are called from a thread of their own. Each raises VoiceStoreFailed if the store cannot do its work
now. An owner is the name of an API key, "" without keys.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class VoiceAbout:
    """All of a stored voice but its tensors: small enough to be listed by the thousand."""

    voice_id: str
    kind: str  # cloned, designed, embedded or mixed
    create_s: float  # Unix time
    expire_s: float | None = None  # None = never
    display_name: str = ""
    description: str = ""
    languages: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    consent: str = ""
    design: str = ""
    transcript: str = ""
    reference_audio_ms: int = 0
    model: str = ""  # name of the checkpoint that it was made with
    fingerprint: str = ""  # the same checkpoint, under whatever name


@dataclass(frozen=True, slots=True)
class VoiceTensors:
    """What the model is given; None where a voice has none."""

    speaker_embedding: npt.NDArray[np.float32] | None = None  # [hidden]
    reference_codes: npt.NDArray[np.int16] | None = None  # [frames, codebooks]

    @property
    def num_bytes(self) -> int:
        return sum(array.nbytes for array in (self.speaker_embedding, self.reference_codes) if array is not None)


@dataclass(frozen=True, slots=True)
class StoredVoice:
    about: VoiceAbout
    file: str  # names its tensors; never used twice
    file_digest: bytes  # SHA-256


@dataclass(frozen=True, slots=True)
class RequestKey:
    """Of the request that makes a voice, for its repetition."""

    request_id: str
    digest: bytes  # of everything else in it


@dataclass(frozen=True, slots=True)
class OwnedVoice:
    """With what `about` leaves out."""

    owner: str
    voice: StoredVoice
    request: RequestKey | None  # that made it, if it had an id


@dataclass(frozen=True, slots=True)
class VoiceLimits:
    max_voices: int
    max_bytes: int  # of all files
    max_voices_of_owner: int


class VoiceStore(Protocol):
    def find(self, owner: str, voice_id: str) -> StoredVoice | None: ...

    def page(self, owner: str, after: str, fits: Callable[[VoiceAbout], bool], limit: int) -> list[StoredVoice]:
        """At most `limit` voices that fit, sorted by id, from the first one behind `after` on."""

    def prepare(self, owner: str, voice_id: str, request: RequestKey | None, limits: VoiceLimits) -> StoredVoice | None:
        """What `add` would answer or raise now: the voice that the same request has made, if it has; else None.

        Raises RequestIdReused if another request had its id, VoiceExists, VoiceQuotaReached. `voice_id` "" is one that
        nobody has.
        """

    def add(
        self, owner: str, about: VoiceAbout, file: bytes, request: RequestKey | None, limits: VoiceLimits
    ) -> StoredVoice:
        """Keep a voice for good. If the same request made one before, that one is the answer. Raises as `prepare`."""

    def load(self, voice: StoredVoice) -> bytes | None:
        """Its file; None if the voice was deleted meanwhile. Raises VoiceDamaged if it is not what was written."""

    def remove(self, owner: str, voice_id: str) -> bool:
        """Whether there was one."""

    def remove_expired(self) -> int:
        """How many."""

    def close(self) -> None: ...
