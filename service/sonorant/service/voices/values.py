"""Stored voices as values. An owner is the name of an API key, or "" without keys."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class VoiceAbout:
    """The metadata of a stored voice: everything but its tensors. Small enough to list thousands."""

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
    fingerprint: str = ""  # of that checkpoint; the same whatever its name
    preview_text: str = ""  # what is said to try the voice


@dataclass(frozen=True, slots=True)
class VoiceTensors:
    """The tensors that the model needs; None if a voice does not have one."""

    speaker_embedding: npt.NDArray[np.float32] | None = None  # [hidden]
    reference_codes: npt.NDArray[np.int16] | None = None  # [frames, codebooks]

    @property
    def num_bytes(self) -> int:
        return sum(array.nbytes for array in (self.speaker_embedding, self.reference_codes) if array is not None)


@dataclass(frozen=True, slots=True)
class StoredVoice:
    about: VoiceAbout
    file: str  # name of the file with its tensors; never used for another voice
    file_digest: bytes  # SHA-256


@dataclass(frozen=True, slots=True)
class RequestKey:
    """Identifies a request that makes a voice, so that its repetition is recognized."""

    request_id: str
    digest: bytes  # of the whole request


@dataclass(frozen=True, slots=True)
class OwnedVoice:
    """A stored voice with its owner, and the request that made it."""

    owner: str
    voice: StoredVoice
    request: RequestKey | None  # None if the request had no id


@dataclass(frozen=True, slots=True)
class VoiceLimits:
    max_voices: int
    max_bytes: int  # of all files
    max_voices_of_owner: int
