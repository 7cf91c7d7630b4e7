"""The server: starts what `composition` builds, serves, and shuts down."""

import asyncio
import gc
import logging
import socket
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any

import grpc

from sonorant.engine import EnginePool, EngineState
from sonorant.hosting.addresses import listening_socket
from sonorant.hosting.process import Announce, announce
from sonorant.logs import start
from sonorant.service.access.api_keys import ANYONE, ApiKeys
from sonorant.service.access.tls import server_credentials
from sonorant.service.admission.ledger import Ledger
from sonorant.service.composition import Base, base_of, interceptor_of, parts_of
from sonorant.service.errors import VoiceStoreFailed
from sonorant.service.listening.accepting import AcceptingServer
from sonorant.service.listening.ports import admin_port, grpc_server, open_port
from sonorant.service.operations.garbage import collect_garbage
from sonorant.service.operations.metrics_port import ready_text, serve_metrics
from sonorant.service.rpc.dictionaries import DictionaryServicer
from sonorant.service.rpc.health import HealthServicer
from sonorant.service.rpc.readiness import Readiness
from sonorant.service.rpc.riva import RivaServicer
from sonorant.service.rpc.services import add_services
from sonorant.service.rpc.speech import TextToSpeechServicer
from sonorant.service.rpc.voices import VoiceServicer
from sonorant.service.session.parts import Parts
from sonorant.service.settings import ServiceConfig
from sonorant.service.utterance.phrases import EVERYBODY, CallerPhrases
from sonorant.service.utterance.wanted_phrases import read_phrases, speak_phrases
from sonorant.service.voices.choice import Presets
from sonorant.service.voices.stored import StoredVoices
from sonorant.service.voices.warming import warm_up
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeRequest

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
    async with AsyncExitStack() as stack:
        base = base_of(config, ledger, stack)
        doors = _doors(config, base, stack)
        wanted = read_phrases(config.phrases) if config.phrases else []
        states: asyncio.Queue[EngineState] = asyncio.Queue()
        engine = await stack.enter_async_context(start_engine(states.put_nowait))
        stack.callback(announce, "stopped")
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        presets, readiness = Presets(engine.infos), Readiness(health := HealthServicer())
        parts = parts_of(config, base, engine, presets, tasks)
        speech = TextToSpeechServicer(parts)
        voices = VoiceServicer(engine, presets, parts.voices, base.stored, base.room.uploads, parts.phrases)
        riva, dictionaries = RivaServicer(engine, speech), DictionaryServicer(parts.dictionaries)
        add_services(doors.server, speech, voices, dictionaries, riva, health)
        readiness.update(engine, EngineState.STARTING)
        crash: list[type[Exception]] = []  # the type of the error that ended gRPC, if one did
        await _open_beside(doors, base, readiness, stack)
        ports = await _open_to_callers(doors, config, engine, drain)
        stack.push_async_callback(_stop, doors.server, drain, crash)
        announce("listening", **ports, model=engine.info.model)
        ready = asyncio.Event()

        def on_ready() -> None:
            gc.freeze()  # objects that live now stay: full collections can skip them from now on
            start.phase("port")
            start.end()
            announce("serving", port=ports["port"])
            ready.set()

        chores = [tasks.create_task(each) for each in _chores(base, parts, wanted, ready)]
        to_the_end = [tasks.create_task(base.calls.stalled.watch())]
        if base.fleet is not None:
            to_the_end.append(tasks.create_task(base.fleet.keep()))
        following = tasks.create_task(readiness.follow(engine, states, on_ready))
        asked = tasks.create_task(drain.wait())
        gone = tasks.create_task(_until_deaf(doors.server, crash))
        await asyncio.wait({following, asked, gone}, return_when=asyncio.FIRST_COMPLETED)
        for task in (following, asked, gone, *chores):
            task.cancel()
        await asyncio.wait({following})  # so that it cannot change health after the next line
        readiness.update(engine, EngineState.CLOSED)
        if drain.is_set():
            await asyncio.sleep(config.drain_delay_s)  # time for balancers to see it: they look now and then
        await _drain(base, speech, config.drain_grace_s)
        for task in to_the_end:
            task.cancel()
    return 0 if drain.is_set() else 1


@dataclass(frozen=True, slots=True)
class _Doors:
    """Ports that are bound, and gRPC's, which is opened last."""

    server: AcceptingServer
    credentials: grpc.ServerCredentials | None
    metrics: socket.socket | None
    admin: grpc.aio.Server | None
    numbers: dict[str, int]  # of the ports that are bound, by name


def _doors(config: ServiceConfig, base: Base, stack: AsyncExitStack) -> _Doors:
    """Raises CannotListen, TlsError, ChannelzMissing or TracingMissing."""
    server = grpc_server(config, interceptor_of(config, base, stack))
    credentials = server_credentials(config.tls) if config.tls else None
    numbers: dict[str, int] = {}
    metrics = admin = None
    if config.metrics_listen:
        metrics = listening_socket(config.metrics_listen, "--metrics-listen")
        stack.callback(metrics.close)
        numbers["metrics_port"] = metrics.getsockname()[1]
    if config.admin_listen:
        admin, numbers["admin_port"] = admin_port(config.admin_listen)
    return _Doors(server, credentials, metrics, admin, numbers)


async def _open_beside(doors: _Doors, base: Base, readiness: Readiness, stack: AsyncExitStack) -> None:
    """Open the ports for metrics and for operators."""

    async def ready() -> str:
        return ready_text([base.warning] if base.warning else []) if readiness.serves else ""

    if doors.metrics is not None:
        metrics_port = serve_metrics(doors.metrics, base.metrics.text, ready)
        await stack.enter_async_context(metrics_port)
    if doors.admin is not None:
        await doors.admin.start()
        stack.push_async_callback(doors.admin.stop, None)
    start.phase("services")


async def _open_to_callers(
    doors: _Doors, config: ServiceConfig, engine: EnginePool, drain: asyncio.Event
) -> dict[str, int]:
    """Open the port of gRPC, and return the numbers of all. Until this process has spoken it would refuse calls that
    others could serve, so it waits for that; if it is to drain, it does not."""
    either = [asyncio.ensure_future(each) for each in (engine.tried(), drain.wait())]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    for each in either:
        each.cancel()
    start.phase("first utterance")
    port = open_port(doors.server, config.listen, doors.credentials)
    await doors.server.start()
    return {**doors.numbers, "port": port}


async def _drain(base: Base, speech: TextToSpeechServicer, grace_s: float) -> None:
    """Take no new calls, and give the running ones time."""
    speech.go_away(round(grace_s * 1000))
    base.calls.stalled.drain()
    sessions = base.room.sessions
    if not await sessions.drain(grace_s):
        log.warning("%d calls did not finish in time and are cut off", sessions.num_active)


def _chores(
    base: Base, parts: Parts, wanted: Sequence[SynthesizeRequest], ready: asyncio.Event
) -> Iterator[Coroutine[Any, Any, None]]:
    """What is done beside the calls until the server drains."""
    yield _reload(base.keys)
    yield _remove_expired(base.stored)
    yield collect_garbage(lambda: base.room.sessions.num_active == 0)
    if wanted:
        yield _keep_phrases(parts, wanted, ready)
    if base.stored is not None:
        yield _warm_voices(base.stored, parts, ready)


async def _keep_phrases(parts: Parts, wanted: Sequence[SynthesizeRequest], ready: asyncio.Event) -> None:
    await ready.wait()
    shared = CallerPhrases(parts.phrases, EVERYBODY)
    allowance = replace(parts.allowance(ANYONE), phrases=shared, charge=lambda num_chars: None)
    await speak_phrases(wanted, parts.voices, parts.dictionaries, allowance)
    log.info("%d phrases are kept, %d bytes", len(parts.phrases), parts.phrases.num_bytes)


async def _warm_voices(stored: StoredVoices, parts: Parts, ready: asyncio.Event) -> None:
    await ready.wait()
    try:
        await warm_up(stored, parts.voices, parts.engine)
    except VoiceStoreFailed as error:
        log.error("%s", error)


async def _stop(server: AcceptingServer, drain: asyncio.Event, crash: list[type[Exception]]) -> None:
    with suppress(*crash):  # gRPC raises it once more here
        await server.stop(STATUS_FLUSH_S if drain.is_set() else 0)


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
