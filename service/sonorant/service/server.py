"""The server: builds all parts in the order in which they depend on each other, serves, and shuts down."""

import asyncio
import gc
import logging
import secrets
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from functools import partial
from typing import Any

from sonorant.engine import EnginePool, EngineState
from sonorant.hosting.addresses import listening_socket
from sonorant.hosting.process import Announce, announce
from sonorant.hosting.tls import expires_s
from sonorant.service.access.api_keys import ANYONE, HOSTS, ApiKeys
from sonorant.service.access.tls import server_credentials
from sonorant.service.admission.fleet import FleetLimits
from sonorant.service.admission.fleet_table import FleetTable
from sonorant.service.admission.ledger import Ledger
from sonorant.service.admission.reservations import Reservations
from sonorant.service.admission.room import Room
from sonorant.service.calls.interceptor import CallInterceptor
from sonorant.service.calls.loop_share import LoopShare
from sonorant.service.calls.stalled import Stalled
from sonorant.service.errors import VoiceStoreFailed
from sonorant.service.listening.ports import admin_port, grpc_server, open_port
from sonorant.service.operations.garbage import collect_garbage
from sonorant.service.operations.metrics import Metrics
from sonorant.service.operations.metrics_port import serve_metrics
from sonorant.service.operations.tracing import Tracer
from sonorant.service.rpc.health import HealthServicer
from sonorant.service.rpc.readiness import Readiness
from sonorant.service.rpc.riva import RivaServicer
from sonorant.service.rpc.services import add_services
from sonorant.service.rpc.speech import TextToSpeechServicer
from sonorant.service.rpc.voices import VoiceServicer
from sonorant.service.settings import ServiceConfig
from sonorant.service.utterance.phrases import Phrases
from sonorant.service.utterance.receipts import read_key
from sonorant.service.utterance.wanted_phrases import read_phrases, speak_phrases
from sonorant.service.voices.choice import VoiceChooser
from sonorant.service.voices.opening import opener
from sonorant.service.voices.presets import Presets
from sonorant.service.voices.stored import StoredVoices

log = logging.getLogger(__name__)

STATUS_FLUSH_S = 0.5  # time for statuses to reach clients whose calls are cut off
RELOAD_S = 1.0  # between looks at files that may change
LISTENING_LOOK_S = 1.0  # between looks whether gRPC still listens
EXPIRY_S = 60.0  # between deletions of expired voices

# Starts the engine, and closes it at the end. Its argument is called with every state of the engine.
StartEngine = Callable[[Callable[[EngineState], None]], AbstractAsyncContextManager[EnginePool]]


async def serve(
    config: ServiceConfig,
    start_engine: StartEngine,
    drain: asyncio.Event,
    announce: Announce = announce,
    ledger: Ledger | None = None,
) -> int:
    """Serve until `drain` is set or the engine has failed for good, finish running calls, and return the exit code.
    `ledger`: one that other server processes use as well, if there are others.

    Raises, before the engine is started: CannotListen; ApiKeysError, TlsError, PhrasesFileError or VoiceStoreFailed for
    their files; ChannelzMissing or TracingMissing.
    """
    async with AsyncExitStack() as parts:
        # Access, limits, metrics, logs and health.
        keys = ApiKeys(config.api_keys) if config.api_keys else None

        def num_callers() -> int:
            return max(1, len(keys)) if keys is not None else HOSTS

        if ledger is None:
            ledger = Ledger()
            parts.callback(ledger.close)
        room = Room(ledger, num_callers, config.max_sessions)
        sessions = room.sessions
        metrics, stalled, health = Metrics(), Stalled(), HealthServicer()
        metrics.api_keys_up.set_function(lambda: int(keys is None or keys.fault is None))
        metrics.sessions.set_function(lambda: sessions.num_active)
        metrics.sessions_limit.set(config.max_sessions)
        metrics.sessions_used_ratio.set_function(lambda: sessions.num_on_host / config.max_sessions)
        tracer = Tracer(config.traces) if config.traces else None
        if tracer is not None:
            parts.push_async_callback(asyncio.to_thread, tracer.close)
        readiness, loop_share = Readiness(health), LoopShare()

        # Ports and files: errors in them end the server before the model is loaded.
        interceptor = CallInterceptor(
            keys, config.open_services, config.request_timeout_s, stalled, loop_share, metrics, tracer
        )
        server = grpc_server(config, interceptor)
        credentials = server_credentials(config.tls) if config.tls else None
        if config.tls:
            metrics.certificate_expires_s.set_function(partial(expires_s, config.tls.certificate))
        ports = {}
        if config.metrics_listen:
            listening = listening_socket(config.metrics_listen, "--metrics-listen")
            parts.callback(listening.close)
            ports["metrics_port"] = listening.getsockname()[1]
        if config.admin_listen:
            admin, ports["admin_port"] = admin_port(config.admin_listen)
        stored: StoredVoices | None = None
        if open_store := opener(config.voices_dir, config.voices_url):
            stored = StoredVoices(open_store, config.stored_voices)
            parts.push_async_callback(asyncio.to_thread, stored.close)
        wanted = read_phrases(config.phrases) if config.phrases else []
        receipt_key = config.receipt_key or read_key(config.receipt_key_file)
        of_fleet: FleetLimits | None = None
        if config.voices_url and keys is not None:
            table = FleetTable(config.voices_url, secrets.token_hex(8))
            of_fleet = FleetLimits(table, metrics.database_up.set, room.limits)
            parts.push_async_callback(asyncio.to_thread, of_fleet.close)

        # The engine, and the services that speak through it.
        states: asyncio.Queue[EngineState] = asyncio.Queue()
        engine = await parts.enter_async_context(start_engine(states.put_nowait))
        metrics.follow(engine)
        presets = Presets(engine.infos)
        chooser = VoiceChooser(engine, presets, stored)
        parts.callback(announce, "stopped")
        tasks = await parts.enter_async_context(asyncio.TaskGroup())
        limits = of_fleet or room.limits
        phrases = Phrases(config.phrase_cache_bytes)
        metrics.follow_phrases(phrases)
        reservations = Reservations(engine, ledger, num_callers)
        speech = TextToSpeechServicer(
            engine,
            chooser,
            sessions,
            tasks,
            config.max_text_chars,
            limits,
            phrases,
            loop_share,
            reservations,
            receipt_key,
        )
        metrics.waiting_utterances.set_function(lambda: speech.num_waiting)
        voices = VoiceServicer(engine, presets, chooser, stored, room.uploads, phrases)
        add_services(server, speech, voices, RivaServicer(engine, speech) if config.riva else None, health)
        readiness.update(engine, EngineState.STARTING)

        async def is_ready() -> bool:
            return readiness.serves

        def warning() -> str | None:
            return keys.fault if keys is not None else None

        # Open.
        if config.metrics_listen:
            await parts.enter_async_context(serve_metrics(listening, metrics.text, is_ready, warning))
        if config.admin_listen:
            await admin.start()
            parts.push_async_callback(admin.stop, None)
        await engine.tried()  # until this process has spoken it would refuse calls that others could serve
        ports["port"] = open_port(server, config.listen, credentials)
        await server.start()
        crash: list[type[Exception]] = []  # the type of the error that ended gRPC, if one did

        async def stop() -> None:
            with suppress(*crash):  # gRPC raises it once more here
                await server.stop(STATUS_FLUSH_S if drain.is_set() else 0)

        parts.push_async_callback(stop)
        announce("listening", **ports, model=engine.info.model)

        ready = asyncio.Event()

        async def keep_wanted_phrases() -> None:
            await ready.wait()
            part = loop_share.of(ANYONE.limit_key)
            await speak_phrases(wanted, reservations, chooser, phrases, config.max_text_chars, part)

        def on_ready() -> None:
            gc.collect()
            gc.freeze()  # objects that live now stay: full collections can skip them from now on
            announce("serving", port=ports["port"])
            ready.set()

        garbage = collect_garbage(lambda: sessions.num_active == 0)
        chores = [tasks.create_task(each) for each in (_reload(keys), _remove_expired(stored), garbage)]
        if wanted:
            chores.append(tasks.create_task(keep_wanted_phrases()))
        to_the_end = [tasks.create_task(stalled.watch())]
        if of_fleet is not None:
            to_the_end.append(tasks.create_task(of_fleet.keep()))
        following = tasks.create_task(readiness.follow(engine, states, on_ready))
        asked = tasks.create_task(drain.wait())
        gone = tasks.create_task(_until_deaf(server, crash))
        await asyncio.wait({following, asked, gone}, return_when=asyncio.FIRST_COMPLETED)

        # Shutdown: take no new calls, give the running ones time, then stop.
        for task in (following, asked, gone, *chores):
            task.cancel()
        await asyncio.wait({following})  # so that it cannot change health after the next line
        readiness.update(engine, EngineState.CLOSED)
        if drain.is_set():
            await asyncio.sleep(config.drain_delay_s)  # time for balancers to see it: they look now and then
        speech.go_away(round(config.drain_grace_s * 1000))
        stalled.drain()
        if not await sessions.drain(config.drain_grace_s):
            log.warning("%d calls did not finish in time and are cut off", sessions.num_active)
        for task in to_the_end:
            task.cancel()
    return 0 if drain.is_set() else 1


async def _until_deaf(server: Any, crash: list[type[Exception]]) -> None:
    """Return once gRPC no longer listens. A bug in gRPC may cause that, and the process would live on uselessly."""
    try:
        while await server.wait_for_termination(LISTENING_LOOK_S):
            pass
    except Exception as error:
        crash.append(type(error))
        log.error("gRPC has stopped listening; this server ends", exc_info=error)


async def _reload(keys: ApiKeys | None) -> None:
    while keys is not None:
        await asyncio.sleep(RELOAD_S)
        keys.reload()


async def _remove_expired(stored: StoredVoices | None) -> None:
    while stored is not None:
        await asyncio.sleep(EXPIRY_S)
        try:
            await stored.remove_expired()
        except VoiceStoreFailed as error:
            log.error("%s", error)
