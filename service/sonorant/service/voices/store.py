"""Stored voices as values, and the interface of the stores that keep them.

A store's methods block, and are called from its own thread. Each raises VoiceStoreFailed if the store cannot be read or
written now. An owner is the name of an API key, or "" without keys.
"""

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from sonorant.service.errors import VoiceDamaged, VoiceQuotaReached, VoiceStoreFailed
from sonorant.service.voices.dictionary_table import Execute

log = logging.getLogger(__name__)

T = TypeVar("T")


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


class VoiceStore(Protocol):
    def find(self, owner: str, voice_id: str) -> StoredVoice | None: ...

    def page(self, owner: str, after: str, fits: Callable[[VoiceAbout], bool], limit: int) -> list[StoredVoice]:
        """Return up to `limit` voices that fit, sorted by id, of those with an id after `after`."""

    def prepare(self, owner: str, voice_id: str, request: RequestKey | None, limits: VoiceLimits) -> StoredVoice | None:
        """Return the voice that the same request has made already, else None if `add` would succeed now.

        Raises RequestIdReused if another request had this id, VoiceExists, VoiceQuotaReached. `voice_id` "" stands for
        one that nobody has.
        """

    def add(
        self, owner: str, about: VoiceAbout, file: bytes, request: RequestKey | None, limits: VoiceLimits
    ) -> StoredVoice:
        """Store a voice durably. If the same request has made one already, return that one. Raises like `prepare`."""

    def load(self, voice: StoredVoice) -> bytes | None:
        """Return a voice's file, or None if the voice was deleted. Raises VoiceDamaged if the file has changed."""

    def remove(self, owner: str, voice_id: str) -> bool:
        """Delete a voice and return whether there was one."""

    def remove_expired(self) -> int:
        """Delete expired voices and return how many there were."""

    def everything(self) -> Iterator[OwnedVoice]:
        """Yield all voices of all owners, as they are now."""

    def run(self, work: Callable[[Execute], T], *, writes: bool) -> T:
        """Run statements on the store's database, in one transaction. Those that write run one after another."""

    def warning(self) -> str | None:
        """Return a sentence for the operator if voices may be missing."""

    def close(self) -> None: ...


def check_room(limits: VoiceLimits, num_voices: int, num_own: int, total_bytes: int) -> None:
    """Raise VoiceQuotaReached if there is no room. `num_own` of the `num_voices` are the owner's; `total_bytes`: with
    the new one.
    """
    if num_own >= limits.max_voices_of_owner:
        most = limits.max_voices_of_owner
        why = (
            f"you have all {most} voices that you may; delete one first" if most else "this API key may keep no voices"
        )
        raise VoiceQuotaReached("voices of this owner", why)
    if num_voices >= limits.max_voices:
        raise VoiceQuotaReached("voices", f"the server has all {limits.max_voices} voices it keeps; delete one first")
    if total_bytes > limits.max_bytes:
        raise VoiceQuotaReached("bytes of voices", f"the server keeps at most {limits.max_bytes} bytes; delete a voice")


def checked(data: bytes, voice: StoredVoice) -> bytes:
    """Return a voice's file. Raises VoiceDamaged if it is not the one that was stored."""
    if hashlib.sha256(data).digest() != voice.file_digest:
        raise VoiceDamaged(voice.about.voice_id, "its file was changed")
    return data


def damaged(store: VoiceStore, voices: Iterable[StoredVoice]) -> tuple[int, list[str]]:
    """Load all voices; return how many there are, and a sentence for each that is damaged."""
    num_voices, damages = 0, []
    for voice in voices:
        num_voices += 1
        try:
            store.load(voice)
        except VoiceDamaged as error:
            damages.append(str(error))
    return num_voices, damages


@contextmanager
def failures(*kinds: type[Exception]) -> Iterator[None]:
    """Turn failures of the disk or database into VoiceStoreFailed. Their details go to the log alone."""
    try:
        yield
    except kinds as error:
        log.error("the stored voices cannot be read or written: %s", error)
        raise VoiceStoreFailed("the stored voices cannot be read or written now; the server's log says why") from error
