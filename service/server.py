"""The gRPC server around an engine: services, health, reflection, when to say SERVING, and how to stop."""

import asyncio
import gc
import json
import logging
import socket
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import grpc
from google.rpc import error_details_pb2  # noqa: F401  so that reflection can resolve the details of errors
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_reflection.v1alpha.reflection import SERVICE_NAME as REFLECTION_V1ALPHA
from grpc_reflection.v1alpha.reflection import aio as reflection_aio

from engine import EnginePool, EngineState
from service.admin_port import admin_server
from service.admission import Admission
from service.api_keys import ApiKeys
from service.calls import CallInterceptor
from service.config import ServiceConfig
from service.errors import VoiceStoreFailed
from service.garbage import collect_garbage
from service.metrics import Metrics
from service.metrics_port import listening_socket, serve_metrics
from service.presets import Presets
from service.servicer import TextToSpeechServicer
from service.stored_voices import StoredVoices
from service.tls import server_credentials
from service.tracing import Tracer
from service.voice_choice import VoiceChooser
from service.voice_registry import VoiceRegistry
from service.voice_servicer import VoiceServicer
from sonorant.tts.v1 import (
    text_to_speech_service_pb2,
    text_to_speech_service_pb2_grpc,
    voice_service_pb2,
    voice_service_pb2_grpc,
)

log = logging.getLogger(__name__)

SERVICES = (
    text_to_speech_service_pb2.DESCRIPTOR.services_by_name["TextToSpeechService"].full_name,
    voice_service_pb2.DESCRIPTOR.services_by_name["VoiceService"].full_name,
)
REFLECTION_V1 = "grpc.reflection.v1.ServerReflection"
MAX_RECEIVED_BYTES = 8 * 1024 * 1024
MAX_METADATA_BYTES = 8 * 1024
MAX_SENT_BYTES = 4 * 1024 * 1024
LIVENESS = "liveness"  # health name that says SERVING for as long as the process does its work, draining included
MODEL = "model/"  # and the name of a checkpoint: whether one of its worker pairs serves
READINESS = "readiness"  # as "" and the names of the services: whether to send calls here
LAST_WORDS_S = 0.5  # for statuses to reach clients when their calls are cut off
SPARE_CALLS = 100  # over the sessions on one connection: health checks, and calls that are about to be refused
RELOAD_S = 1.0  # how often files that may change are looked at
EXPIRY_S = 60.0  # how often voices that have expired are deleted

_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_RECEIVED_BYTES),
    ("grpc.max_send_message_length", MAX_SENT_BYTES),
    # Without these gRPC refuses some calls with more than 8 KiB, by chance, and all with more than 16.
    ("grpc.max_metadata_size", MAX_METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", MAX_METADATA_BYTES),
    # Connections that do not get through TLS, or are not used, are closed; clients connect again by themselves.
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 600_000),
    # Dead peers are noticed within 30 s; live ones may ping as often as every 5 s.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.so_reuseport", 0),  # a second server on the same port is a mistake, not a way to scale
)


class CannotListen(Exception):
    def __init__(self, address: str, error: Exception, flag: str) -> None:
        super().__init__(f"cannot listen on {address} ({error}); is another server running there? Choose with {flag}")


class Server:
    """Binds when made, listens in `run`, and says SERVING while the engine is known to speak."""

    def __init__(self, config: ServiceConfig) -> None:
        """Raises CannotListen; ApiKeysError, TlsError or VoiceStoreFailed for their files; ChannelzMissing or
        TracingMissing."""
        self._config = config
        self._admission = Admission(config.max_sessions)
        self._health = health_aio.HealthServicer()
        self._metrics = Metrics()
        self._keys = ApiKeys(config.api_keys) if config.api_keys else None
        self._tracer = Tracer(config.traces) if config.traces else None
        interceptor = CallInterceptor(
            self._keys, config.open_services, config.request_timeout_s, self._metrics, self._tracer
        )
        options = (
            *_OPTIONS,
            ("grpc.max_concurrent_streams", config.max_sessions + SPARE_CALLS),
            ("grpc.enable_channelz", int(config.admin_listen is not None)),
        )
        self._server = grpc.aio.server(options=options, interceptors=[interceptor])
        credentials = server_credentials(config.tls) if config.tls else None
        try:
            if credentials is not None:
                self.port = self._server.add_secure_port(config.listen, credentials)
            else:
                self.port = self._server.add_insecure_port(config.listen)
        except RuntimeError as error:
            raise CannotListen(config.listen, error, "--listen") from error
        self._metrics_socket: socket.socket | None = None
        self.metrics_port = 0
        if config.metrics_listen:
            try:
                self._metrics_socket = listening_socket(config.metrics_listen)
                self.metrics_port = self._metrics_socket.getsockname()[1]
            except OSError as error:
                raise CannotListen(config.metrics_listen, error, "--metrics-listen") from error
        self._admin: Any = None
        self.admin_port = 0
        if config.admin_listen:
            try:
                self._admin, self.admin_port = admin_server(config.admin_listen)
            except RuntimeError as error:
                raise CannotListen(config.admin_listen, error, "--admin-listen") from error
        self._voices: StoredVoices | None = None
        if config.voices_dir:
            self._voices = StoredVoices(partial(VoiceRegistry, config.voices_dir), config.stored_voices)

    async def run(self, engine: EnginePool, states: asyncio.Queue[EngineState], drain: asyncio.Event) -> int:
        """Serve until `drain` is set or the engine has failed for good, finish what is running, return the exit code.

        `states` has every state of the engine from its start on.
        """
        self._metrics.follow(engine)
        try:
            async with AsyncExitStack() as side_ports, asyncio.TaskGroup() as tasks:
                ports = {"port": self.port}
                if self._metrics_socket is not None:
                    await side_ports.enter_async_context(serve_metrics(self._metrics_socket, self._metrics.registry))
                    ports["metrics_port"] = self.metrics_port
                if self._admin is not None:
                    await self._admin.start()
                    side_ports.push_async_callback(self._admin.stop, None)
                    ports["admin_port"] = self.admin_port
                presets = Presets(engine.infos)
                chooser = VoiceChooser(engine, presets, self._voices)
                servicer = TextToSpeechServicer(engine, chooser, self._admission, tasks, self._config.max_text_chars)
                await self._register(servicer, VoiceServicer(engine, presets, chooser, self._voices))
                await self._tell_health(engine, EngineState.STARTING)
                try:
                    await self._server.start()
                    _announce("listening", **ports, model=engine.info.model)
                    garbage = collect_garbage(lambda: self._admission.active_sessions == 0)
                    chores = [tasks.create_task(each) for each in (self._reload(), self._remove_expired(), garbage)]
                    following = tasks.create_task(self._follow(engine, states))
                    asked = tasks.create_task(drain.wait())
                    await asyncio.wait({following, asked}, return_when=asyncio.FIRST_COMPLETED)
                    for task in (following, asked, *chores):
                        task.cancel()
                    await asyncio.wait({following})  # the last word about health is ours
                    await self._tell_health(engine, EngineState.CLOSED)
                    servicer.go_away(round(self._config.drain_grace_s * 1000))
                    if not await self._admission.drain(self._config.drain_grace_s):
                        log.warning("%d calls are cut off", self._admission.active_sessions)
                finally:
                    await self._server.stop(LAST_WORDS_S if drain.is_set() else 0)
        finally:
            if self._tracer is not None:
                await asyncio.to_thread(self._tracer.close)
            if self._voices is not None:
                await asyncio.to_thread(self._voices.close)
            _announce("stopped")
        return 0 if drain.is_set() else 1

    async def _register(self, servicer: TextToSpeechServicer, voices: VoiceServicer) -> None:
        server = self._server
        text_to_speech_service_pb2_grpc.add_TextToSpeechServiceServicer_to_server(servicer, server)
        voice_service_pb2_grpc.add_VoiceServiceServicer_to_server(voices, server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        await self._health.set(LIVENESS, health_pb2.HealthCheckResponse.SERVING)
        names = (*SERVICES, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, REFLECTION_V1ALPHA)
        reflection = reflection_aio.ReflectionServicer(names)
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(reflection, server)
        # Version 1 has the same messages under another name, and grpcio-reflection does not serve it.
        v1 = grpc.stream_stream_rpc_method_handler(
            reflection.ServerReflectionInfo,
            request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
            response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
        )
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(REFLECTION_V1, {"ServerReflectionInfo": v1}),)
        )

    async def _reload(self) -> None:
        while self._keys is not None:
            await asyncio.sleep(RELOAD_S)
            self._keys.reload()

    async def _remove_expired(self) -> None:
        while self._voices is not None:
            await asyncio.sleep(EXPIRY_S)
            try:
                await self._voices.remove_expired()
            except VoiceStoreFailed as error:
                log.error("%s", error)

    async def _follow(self, engine: EnginePool, states: asyncio.Queue[EngineState]) -> None:
        """Keep health true. Returns when there is no hope."""
        before = EngineState.STARTING
        while (state := await states.get()) is not EngineState.FAILED:
            await self._tell_health(engine, state)
            if state is EngineState.READY and before is not EngineState.READY:
                gc.collect()
                gc.freeze()  # what lives now lives on: full collections need not look at it again
                _announce("serving", port=self.port)
            before = state

    async def _tell_health(self, engine: EnginePool, state: EngineState) -> None:
        """Of the server as a whole, and of each checkpoint."""
        serves = state is EngineState.READY
        speaking = {pair.model for pair in engine.pairs() if pair.state is EngineState.READY}
        told = dict.fromkeys(("", READINESS, *SERVICES), serves)
        told |= {f"{MODEL}{info.model}": serves and info.model in speaking for info in engine.infos}
        for name, serving in told.items():
            status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
            await self._health.set(name, status)


def _announce(event: str, **more: object) -> None:
    """One JSON object per line on stdout, for whoever started the server."""
    print(json.dumps({"event": event, **more}), flush=True)
