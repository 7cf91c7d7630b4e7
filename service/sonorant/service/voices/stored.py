"""The stored voices, for use on the event loop: a store in threads, the callers' quotas, and a cache of tensors."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TypeVar

from sonorant.engine import LruCache
from sonorant.service.access.api_keys import Caller
from sonorant.service.errors import VoiceNotFound
from sonorant.service.voices.dictionary_table import Execute
from sonorant.service.voices.file import VoiceAbout, VoiceTensors, pack, unpack
from sonorant.service.voices.store import RequestKey, StoredVoice, VoiceLimits, VoiceStore

log = logging.getLogger(__name__)

T = TypeVar("T")


class _Lane:
    """A thread with its own store; it runs one call after another."""

    def __init__(self, open_store: Callable[[], VoiceStore]) -> None:
        self._thread = ThreadPoolExecutor(1, "voices")
        try:
            self._store = self._thread.submit(open_store).result()
        except BaseException:
            self._thread.shutdown()
            raise

    async def call(self, work: Callable[[VoiceStore], T]) -> T:
        """Run `work` in the thread. It runs to its end even if nobody waits for it any more."""
        return await asyncio.wrap_future(self._thread.submit(work, self._store))

    def call_now(self, work: Callable[[VoiceStore], T]) -> T:
        """Run `work` in the thread, and block until it is done."""
        return self._thread.submit(work, self._store).result()

    def close(self) -> None:
        self._thread.submit(self._store.close).result()
        self._thread.shutdown()


@dataclass(frozen=True, slots=True)
class StoredVoicesConfig:
    max_voices: int
    max_bytes: int
    cache_bytes: int


class StoredVoices:
    def __init__(self, open_store: Callable[[], VoiceStore], config: StoredVoicesConfig) -> None:
        """Blocks until the store is open. Raises VoiceStoreFailed."""
        self._config = config
        with ExitStack() as opened:
            self._reads = _Lane(open_store)  # separate, so that reads do not wait for writes
            opened.callback(self._reads.close)
            self._writes = _Lane(open_store)
            opened.callback(self._writes.close)
            if warning := self._writes.call_now(lambda store: store.warning()):
                log.warning(warning)
            opened.pop_all()
        self._cache: LruCache[str, VoiceTensors] = LruCache(config.cache_bytes)

    async def find(self, caller: Caller, voice_id: str) -> StoredVoice:
        """Return the caller's voice of this id. Raises VoiceNotFound."""
        voice = await self._reads.call(lambda store: store.find(caller.name, voice_id))
        if voice is None:
            raise VoiceNotFound(voice_id)
        return voice

    async def page(
        self, caller: Caller, after: str, fits: Callable[[VoiceAbout], bool], limit: int
    ) -> list[StoredVoice]:
        return await self._reads.call(lambda store: store.page(caller.name, after, fits, limit))

    async def clones(self) -> list[StoredVoice]:
        """Return all voices of all callers that are spoken with their recording, newest first."""
        everything = await self._reads.call(lambda store: list(store.everything()))
        clones = [owned.voice for owned in everything if owned.voice.about.transcript]
        return sorted(clones, key=lambda voice: voice.about.create_s, reverse=True)

    async def prepare(self, caller: Caller, voice_id: str, request: RequestKey | None) -> StoredVoice | None:
        """See `VoiceStore.prepare`."""
        limits = self._limits(caller)
        return await self._reads.call(lambda store: store.prepare(caller.name, voice_id, request, limits))

    async def add(
        self, caller: Caller, about: VoiceAbout, tensors: VoiceTensors, request: RequestKey | None
    ) -> StoredVoice:
        """Store a voice. Returns once it is stored durably."""
        file, limits = pack(about, tensors), self._limits(caller)
        return await self._writes.call(lambda store: store.add(caller.name, about, file, request, limits))

    async def tensors(self, voice: StoredVoice) -> VoiceTensors:
        """Return a voice's tensors. Raises VoiceNotFound if it was deleted meanwhile, and VoiceDamaged."""
        tensors = self._cache.get(voice.file)  # no other voice ever has a file of this name
        if tensors is None:
            tensors = unpack(await self.file(voice))[1]
            self._cache.put(voice.file, tensors)
        return tensors

    async def file(self, voice: StoredVoice) -> bytes:
        """Return a voice's file. Raises like `tensors`."""
        data = await self._reads.call(lambda store: store.load(voice))
        if data is None:
            raise VoiceNotFound(voice.about.voice_id)
        return data

    async def remove(self, caller: Caller, voice_id: str) -> bool:
        """Delete a voice and return whether there was one."""
        return await self._writes.call(lambda store: store.remove(caller.name, voice_id))

    async def read(self, work: Callable[[Execute], T]) -> T:
        """Run statements that only read; see `VoiceStore.run`."""
        return await self._reads.call(lambda store: store.run(work, writes=False))

    async def write(self, work: Callable[[Execute], T]) -> T:
        """Run statements that may write; see `VoiceStore.run`. Returns once all is stored durably."""
        return await self._writes.call(lambda store: store.run(work, writes=True))

    async def remove_expired(self) -> int:
        """Delete expired voices and return how many there were."""
        return await self._writes.call(lambda store: store.remove_expired())

    def close(self) -> None:
        self._reads.close()
        self._writes.close()

    def _limits(self, caller: Caller) -> VoiceLimits:
        own = self._config.max_voices if caller.max_voices is None else caller.max_voices
        return VoiceLimits(self._config.max_voices, self._config.max_bytes, own)
