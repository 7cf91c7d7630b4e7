"""The store behind the event loop: nothing waits that need not, and tensors are read once."""

import asyncio
import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from sonorant.service.access.api_keys import ANYONE, Caller
from sonorant.service.errors import VoiceNotFound, VoiceStoreFailed
from sonorant.service.voices.file import VoiceAbout, unpack
from sonorant.service.voices.store import RequestKey, StoredVoice, VoiceLimits
from sonorant.service.voices.stored import StoredVoices, StoredVoicesConfig
from tests.service.voice_values import about, tensors

CONFIG = StoredVoicesConfig(max_voices=9, max_bytes=10**6, cache_bytes=2 * tensors(0).num_bytes)


class MemoryStore:
    """A store in memory, shared by all its openings, whose writes wait to be let go."""

    voices: dict[tuple[str, str], tuple[StoredVoice, bytes]]
    limits: list[VoiceLimits]
    has_come: threading.Event  # a write
    may_write: threading.Event
    num_loads: int

    def __init__(self, shared: dict[str, Any]) -> None:
        self.__dict__ = shared

    def find(self, owner: str, voice_id: str) -> StoredVoice | None:
        found = self.voices.get((owner, voice_id))
        return found and found[0]

    def page(self, owner: str, after: str, fits: Callable[[VoiceAbout], bool], limit: int) -> list[StoredVoice]:
        ids = sorted(voice_id for other, voice_id in self.voices if other == owner and voice_id > after)
        return [self.voices[owner, voice_id][0] for voice_id in ids][:limit]

    def prepare(self, owner: str, voice_id: str, request: RequestKey | None, limits: VoiceLimits) -> StoredVoice | None:
        return None

    def add(
        self, owner: str, about: VoiceAbout, file: bytes, request: RequestKey | None, limits: VoiceLimits
    ) -> StoredVoice:
        self.has_come.set()
        assert self.may_write.wait(10)
        self.limits.append(limits)
        voice = StoredVoice(about, f"{len(self.limits)}", hashlib.sha256(file).digest())
        self.voices[owner, about.voice_id] = voice, file
        return voice

    def load(self, voice: StoredVoice) -> bytes | None:
        self.__dict__["num_loads"] += 1
        return next((file for known, file in self.voices.values() if known == voice), None)

    def remove(self, owner: str, voice_id: str) -> bool:
        return self.voices.pop((owner, voice_id), None) is not None

    def remove_expired(self) -> int:
        return 0

    def warning(self) -> None:
        return None

    def close(self) -> None:
        pass


@pytest.fixture
def shared() -> dict[str, Any]:
    may_write = threading.Event()
    may_write.set()
    return {"voices": {}, "limits": [], "has_come": threading.Event(), "may_write": may_write, "num_loads": 0}


@pytest.fixture
def stored(shared: dict[str, Any]) -> Iterator[StoredVoices]:
    with closing(StoredVoices(lambda: MemoryStore(shared), CONFIG)) as stored:
        yield stored


def test_what_is_open_is_closed_if_the_rest_cannot_be_opened(
    shared: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = list[MemoryStore]()
    monkeypatch.setattr(MemoryStore, "close", lambda store: closed.append(store))
    stores = [MemoryStore(shared)]

    def open_store() -> MemoryStore:
        if not stores:
            raise VoiceStoreFailed("the disk is gone")
        return stores.pop()

    with pytest.raises(VoiceStoreFailed):
        StoredVoices(open_store, CONFIG)
    assert len(closed) == 1


async def test_tensors_are_read_once_and_as_they_were(stored: StoredVoices, shared: dict[str, Any]) -> None:
    voices = [await stored.add(ANYONE, about(f"anna-{seed}"), tensors(seed), None) for seed in range(3)]
    for _ in range(3):
        for seed in (0, 1):
            read = await stored.tensors(voices[seed])
            np.testing.assert_array_equal(read.reference_codes, tensors(seed).reference_codes)
            np.testing.assert_array_equal(read.speaker_embedding, tensors(seed).speaker_embedding)
    assert shared["num_loads"] == 2
    await stored.tensors(voices[2])  # two fit into memory
    await stored.tensors(voices[1])
    assert shared["num_loads"] == 3
    await stored.tensors(voices[0])
    assert shared["num_loads"] == 4
    assert unpack(await stored.file(voices[0]))[0] == voices[0].about


async def test_neither_the_loop_nor_readers_wait_for_a_write(stored: StoredVoices, shared: dict[str, Any]) -> None:
    kept = await stored.add(ANYONE, about("anna"), tensors(1), None)
    shared["has_come"].clear()
    shared["may_write"].clear()
    writing = asyncio.create_task(stored.add(ANYONE, about("berta"), tensors(2), None))
    assert await asyncio.to_thread(shared["has_come"].wait, 60)
    async with asyncio.timeout(60):
        assert await stored.find(ANYONE, "anna") == kept
        await stored.tensors(kept)
    assert not writing.done()
    shared["may_write"].set()
    assert (await writing).about.voice_id == "berta"


async def test_a_write_that_nobody_waits_for_is_done_all_the_same(stored: StoredVoices, shared: dict[str, Any]) -> None:
    shared["may_write"].clear()
    writing = asyncio.create_task(stored.add(ANYONE, about("anna"), tensors(1), None))
    assert await asyncio.to_thread(shared["has_come"].wait, 60)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    shared["may_write"].set()
    assert not await stored.remove(ANYONE, "berta")  # waits for its turn behind the write
    assert (await stored.find(ANYONE, "anna")).about.voice_id == "anna"


async def test_owners_and_their_limits_reach_the_store(stored: StoredVoices, shared: dict[str, Any]) -> None:
    ada = Caller("ada", max_voices=3)
    voice = await stored.add(ada, about("anna"), tensors(1), None)
    await stored.add(ANYONE, about("anna"), tensors(2), None)
    assert [limits.max_voices_of_owner for limits in shared["limits"]] == [3, 9]
    assert await stored.find(ada, "anna") == voice != await stored.find(ANYONE, "anna")
    await stored.remove(ada, "anna")
    with pytest.raises(VoiceNotFound):
        await stored.find(ada, "anna")
    with pytest.raises(VoiceNotFound):
        await stored.tensors(voice)  # found before it was deleted
