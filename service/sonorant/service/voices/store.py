"""What keeps the voices: a table of them, in the database of a folder or in one that several servers share.

A store's methods block, and are called from its own thread. Each raises VoiceStoreFailed if the store cannot be read or
written now. The statements hold for SQLite and PostgreSQL alike.
An owner is the name of an API key, or "" without keys.
"""

import hashlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from sonorant.service.errors import RequestIdReused, VoiceDamaged, VoiceExists, VoiceQuotaReached, VoiceStoreFailed
from sonorant.service.voices.dictionary_table import Execute
from sonorant.service.voices.file import VoiceAbout, about_from_json, about_to_json

log = logging.getLogger(__name__)

T = TypeVar("T")

PAGE = 100  # rows fetched and read at once
_LIVE = "(expire_s IS NULL OR expire_s > ?)"


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


class VoiceStore(ABC):
    """A row is an owner, voice_id, about, expire_s, request_id, request_digest, file, file_digest, and one thing more
    that `_insert` is given."""

    _TABLE: ClassVar[str]
    _FILE_BYTES: ClassVar[str]  # of a row, as an expression

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock  # Unix time

    @abstractmethod
    def run(self, work: Callable[[Execute], T], *, writes: bool) -> T:
        """Run statements on the store's database, in one transaction. Those that write run one after another."""

    @abstractmethod
    def add(
        self, owner: str, about: VoiceAbout, file: bytes, request: RequestKey | None, limits: VoiceLimits
    ) -> StoredVoice:
        """Store a voice durably. If the same request has made one already, return that one. Raises like `prepare`."""

    @abstractmethod
    def load(self, voice: StoredVoice) -> bytes | None:
        """Return a voice's file, or None if the voice was deleted. Raises VoiceDamaged if the file has changed."""

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def _delete(self, condition: str, *values: object) -> list[float | None]:
        """Delete voices, and return when each would have expired."""

    def find(self, owner: str, voice_id: str) -> StoredVoice | None:
        found = self._page("owner = ? AND voice_id = ?", owner, voice_id)
        return found[0].voice if found else None

    def page(self, owner: str, after: str, fits: Callable[[VoiceAbout], bool], limit: int) -> list[StoredVoice]:
        """Return up to `limit` voices that fit, sorted by id, of those with an id after `after`."""
        found: list[StoredVoice] = []
        for owned in self._following(owner, after, "owner = ? AND voice_id > ?"):
            if fits(owned.voice.about):
                found.append(owned.voice)
            if len(found) == limit:
                break
        return found

    def prepare(self, owner: str, voice_id: str, request: RequestKey | None, limits: VoiceLimits) -> StoredVoice | None:
        """Return the voice that the same request has made already, else None if `add` would succeed now.

        Raises RequestIdReused if another request had this id, VoiceExists, VoiceQuotaReached. `voice_id` "" stands for
        one that nobody has.
        """

        def look(execute: Execute) -> StoredVoice | None:
            made = self._repeated(execute, owner, request)
            if made is None:
                self._check_room(execute, owner, voice_id, 0, limits)
            return made

        return self.run(look, writes=False)

    def remove(self, owner: str, voice_id: str) -> bool:
        """Delete a voice and return whether there was one."""
        deleted = self._delete("owner = ? AND voice_id = ?", owner, voice_id)
        return any(expire_s is None or expire_s > self._clock() for expire_s in deleted)

    def remove_expired(self) -> int:
        """Delete expired voices and return how many there were."""
        return len(self._delete("expire_s <= ?", self._clock()))

    def everything(self) -> Iterator[OwnedVoice]:
        """Yield all voices of all owners, as they are now."""
        return self._following("", "", "(owner, voice_id) > (?, ?)")

    def check(self) -> tuple[int, list[str]]:
        """Return the number of voices of all owners, and a sentence for each that is damaged."""
        num_voices, damages = 0, []
        for owned in self.everything():
            num_voices += 1
            try:
                self.load(owned.voice)
            except VoiceDamaged as error:
                damages.append(str(error))
        return num_voices, damages

    def warning(self) -> str | None:
        """Return a sentence for the operator if voices may be missing."""
        return None

    def _following(self, owner: str, voice_id: str, condition: str) -> Iterator[OwnedVoice]:
        """Yield the voices behind this one, in order. `condition`: of the two values that were given."""
        while True:
            page = self._page(condition, owner, voice_id)
            yield from page
            if len(page) < PAGE:
                return
            owner, voice_id = page[-1].owner, page[-1].voice.about.voice_id

    def _page(self, condition: str, *values: object) -> list[OwnedVoice]:
        return self.run(lambda execute: self._live(execute, condition, *values), writes=False)

    def _live(self, execute: Execute, condition: str, *values: object) -> list[OwnedVoice]:
        """Return the voices for which a condition holds and which have not expired, at most a page."""
        rows = execute(
            f"SELECT owner, request_id, request_digest, about, file, file_digest FROM {self._TABLE} "
            f"WHERE {condition} AND {_LIVE} ORDER BY owner, voice_id LIMIT {PAGE}",
            [*values, self._clock()],
        )
        return [
            OwnedVoice(
                owner,
                StoredVoice(about_from_json(about), file, file_digest),
                None if request_id is None else RequestKey(request_id, digest),
            )
            for owner, request_id, digest, about, file, file_digest in rows
        ]

    def _repeated(self, execute: Execute, owner: str, request: RequestKey | None) -> StoredVoice | None:
        if request is None:
            return None
        made = self._live(execute, "owner = ? AND request_id = ?", owner, request.request_id)
        if made and made[0].request != request:
            raise RequestIdReused(request.request_id)
        return made[0].voice if made else None

    def _check_room(self, execute: Execute, owner: str, voice_id: str, num_bytes: int, limits: VoiceLimits) -> None:
        """Raise VoiceExists, or VoiceQuotaReached if there is no room for a file of so many bytes."""
        if self._live(execute, "owner = ? AND voice_id = ?", owner, voice_id):
            raise VoiceExists(voice_id)
        ((num_voices, num_own, total_bytes),) = execute(
            f"SELECT count(*), count(*) FILTER (WHERE owner = ?), coalesce(sum({self._FILE_BYTES}), 0) "
            f"FROM {self._TABLE} WHERE {_LIVE}",
            [owner, self._clock()],
        )
        if num_own >= limits.max_voices_of_owner:
            most = limits.max_voices_of_owner
            why = (
                f"you have all {most} voices that you may; delete one first"
                if most
                else "this API key may keep no voices"
            )
            raise VoiceQuotaReached("voices of this owner", why)
        if num_voices >= limits.max_voices:
            most = limits.max_voices
            raise VoiceQuotaReached("voices", f"the server has all {most} voices it keeps; delete one first")
        if total_bytes + num_bytes > limits.max_bytes:
            most = limits.max_bytes
            raise VoiceQuotaReached("bytes of voices", f"the server keeps at most {most} bytes; delete a voice")

    def _insert(
        self, execute: Execute, owner: str, voice: StoredVoice, request: RequestKey | None, last: object
    ) -> None:
        about, of_request = voice.about, (request.request_id, request.digest) if request else (None, None)
        values = (owner, about.voice_id, about_to_json(about), about.expire_s)
        execute(
            f"INSERT INTO {self._TABLE} VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*values, *of_request, voice.file, voice.file_digest, last),
        )


def checked(data: bytes, voice: StoredVoice) -> bytes:
    """Return a voice's file. Raises VoiceDamaged if it is not the one that was stored."""
    if hashlib.sha256(data).digest() != voice.file_digest:
        raise VoiceDamaged(voice.about.voice_id, "its file was changed")
    return data


@contextmanager
def failures(*kinds: type[Exception]) -> Iterator[None]:
    """Turn failures of the disk or database into VoiceStoreFailed. Their details go to the log alone."""
    try:
        yield
    except kinds as error:
        log.error("the stored voices cannot be read or written: %s", error)
        raise VoiceStoreFailed("the stored voices cannot be read or written now; the server's log says why") from error
