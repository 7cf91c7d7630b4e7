"""Builds the parts of a server process, in the order in which they depend on each other. `server` serves with them."""

import asyncio
import secrets
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

from sonorant.engine import EnginePool
from sonorant.hosting.tls import expires_s
from sonorant.service.access.api_keys import HOSTS, ApiKeys
from sonorant.service.access.receipt_key import read_key
from sonorant.service.admission.fleet import FleetLimits
from sonorant.service.admission.fleet_table import FleetTable
from sonorant.service.admission.ledger import Ledger
from sonorant.service.admission.reservations import Reservations
from sonorant.service.admission.room import Room
from sonorant.service.admission.usage import Usage
from sonorant.service.calls.call import CallParts
from sonorant.service.calls.interceptor import CallInterceptor
from sonorant.service.calls.loop_share import LoopShare
from sonorant.service.calls.stalled import Stalled
from sonorant.service.dictionaries.dictionaries import Dictionaries
from sonorant.service.operations.metrics import Metrics
from sonorant.service.operations.tracing import Tracer
from sonorant.service.session.parts import Parts
from sonorant.service.settings import ServiceConfig
from sonorant.service.utterance.phrases import Phrases
from sonorant.service.voices.choice import Presets, VoiceChooser
from sonorant.service.voices.opening import opener
from sonorant.service.voices.stored import StoredVoices


@dataclass(frozen=True, slots=True)
class Base:
    """What needs no engine, so that what is wrong with it ends the server before the model is loaded."""

    keys: ApiKeys | None  # None: no call needs a key
    ledger: Ledger
    room: Room
    metrics: Metrics
    usage: Usage
    calls: CallParts
    stored: StoredVoices | None
    fleet: FleetLimits | None  # limits of several hosts together
    receipt_key: bytes

    @property
    def warning(self) -> str | None:
        """What is wrong although the server serves."""
        return self.keys.fault if self.keys is not None else None


def base_of(config: ServiceConfig, ledger: Ledger | None, stack: AsyncExitStack) -> Base:
    """Raises ApiKeysError, TlsError or VoiceStoreFailed. `stack` closes what has to be closed."""
    keys = ApiKeys(config.api_keys) if config.api_keys else None

    def num_callers() -> int:
        return max(1, len(keys)) if keys is not None else HOSTS

    if ledger is None:
        ledger = Ledger()
        stack.callback(ledger.close)
    room = Room(ledger, num_callers, config.max_sessions)
    metrics = Metrics()
    metrics.api_keys_up.set_function(lambda: int(keys is None or keys.fault is None))
    metrics.sessions.set_function(lambda: room.sessions.num_active)
    metrics.sessions_limit.set(config.max_sessions)
    metrics.sessions_used_ratio.set_function(lambda: room.sessions.num_on_host / config.max_sessions)
    if config.tls:
        metrics.certificate_expires_s.set_function(partial(expires_s, config.tls.certificate))
    stored: StoredVoices | None = None
    if open_store := opener(config.voices_dir, config.voices_url):
        stored = StoredVoices(open_store, config.stored_voices)
        stack.push_async_callback(asyncio.to_thread, stored.close)
    fleet: FleetLimits | None = None
    if config.voices_url and keys is not None:
        table = FleetTable(config.voices_url, secrets.token_hex(8))
        fleet = FleetLimits(table, metrics.database_up.set, ledger)
        stack.push_async_callback(asyncio.to_thread, fleet.close)
    calls = CallParts(config.request_timeout_s, Stalled(), LoopShare())
    receipt_key = config.receipt_key or read_key(config.receipt_key_file)
    return Base(keys, ledger, room, metrics, Usage(ledger, metrics), calls, stored, fleet, receipt_key)


def interceptor_of(config: ServiceConfig, base: Base, stack: AsyncExitStack) -> CallInterceptor:
    """Raises TracingMissing."""
    tracer = Tracer(config.traces) if config.traces else None
    if tracer is not None:
        stack.push_async_callback(asyncio.to_thread, tracer.close)
    return CallInterceptor(base.keys, config.open_services, base.calls, base.metrics, base.usage, tracer)


def parts_of(
    config: ServiceConfig, base: Base, engine: EnginePool, presets: Presets, tasks: asyncio.TaskGroup
) -> Parts:
    """`tasks`: a group that outlives all calls."""
    parts = Parts(
        engine=engine,
        keys=base.keys,
        voices=VoiceChooser(engine, presets, base.stored, base.usage),
        dictionaries=Dictionaries(base.stored),
        permits=base.room.sessions,
        usage=base.usage,
        limits=base.fleet or base.room.limits,
        reservations=Reservations(engine, base.ledger, base.room.num_callers),
        phrases=Phrases(config.phrase_cache_bytes),
        loop_share=base.calls.loop_share,
        tasks=tasks,
        receipt_key=base.receipt_key,
        max_text_chars=config.max_text_chars,
    )
    base.metrics.follow(engine)
    base.metrics.follow_phrases(parts.phrases)
    base.metrics.waiting_utterances.set_function(lambda: parts.reservations.num_waiting)
    return parts
