"""The RPC methods of voices."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import accumulate
from typing import Any

from sonorant.engine import EnginePool, InvalidSynthesis, SynthesisParams
from sonorant.service.access.api_keys import Caller
from sonorant.service.admission.permits import Permits
from sonorant.service.calls import context as call_context
from sonorant.service.calls.requests import END_OF_REQUESTS_S
from sonorant.service.errors import InvalidField, VoiceNotFound, VoiceUnusable
from sonorant.service.utterance.phrases import Phrases
from sonorant.service.voices.choice import Presets, VoiceChooser
from sonorant.service.voices.creation import VoiceCreation
from sonorant.service.voices.requests import check_list, to_proto
from sonorant.service.voices.store import StoredVoice
from sonorant.service.voices.stored import StoredVoices
from sonorant.tts.v1 import voice_pb2, voice_service_pb2, voice_service_pb2_grpc

MAX_UPLOAD_BYTES = 10 * 1024 * 1024
UPLOAD_TIMEOUT_S = 60.0
LINGER_S = 5.0  # how long the rest of a refused upload is read
MAX_PAGE_BYTES = 3 * 1024 * 1024


class VoiceServicer(voice_service_pb2_grpc.VoiceServiceServicer):  # type: ignore[misc]
    def __init__(
        self,
        engine: EnginePool,
        presets: Presets,
        chooser: VoiceChooser,
        stored: StoredVoices | None,
        uploads: Permits,
        phrases: Phrases,
    ) -> None:
        """`stored`: None on a server that keeps no voices."""
        self._engine = engine
        self._presets = presets
        self._stored = stored
        self._phrases = phrases
        self._creation = VoiceCreation(engine, presets, chooser, stored)
        self._uploads = uploads

    async def ListVoices(
        self, request: voice_service_pb2.ListVoicesRequest, context: Any
    ) -> voice_service_pb2.ListVoicesResponse:
        names = self._presets.names
        wanted = check_list(request, names, self._engine.info.languages)
        among_stored = bool(wanted.after) and wanted.after not in names
        voices = [] if among_stored else self._fitting_presets(request)
        limit = wanted.page_size + 1  # to see whether there is another page
        if self._stored is not None and len(voices) < limit:
            after = wanted.after if among_stored else ""
            caller = call_context.current().caller
            stored = await self._stored.page(caller, after, wanted.fits, limit - len(voices))
            voices += await asyncio.to_thread(lambda: [to_proto(voice.about) for voice in stored])
        page = _fitting_page(voices, wanted.page_size)
        return voice_service_pb2.ListVoicesResponse(
            voices=page, next_page_token=page[-1].voice_id if len(page) < len(voices) else ""
        )

    async def GetVoice(
        self, request: voice_service_pb2.GetVoiceRequest, context: Any
    ) -> voice_service_pb2.GetVoiceResponse:
        voice = self._presets.voices.get(request.voice_id.lower())
        if voice is None:
            voice = to_proto((await self._find(request.voice_id)).about)
        return voice_service_pb2.GetVoiceResponse(voice=voice)

    async def CreateVoice(
        self, request: voice_service_pb2.CreateVoiceRequest, context: Any
    ) -> voice_service_pb2.CreateVoiceResponse:
        caller = self._enter()
        return voice_service_pb2.CreateVoiceResponse(voice=to_proto(await self._creation.create(request, caller)))

    async def UploadVoice(
        self, requests: AsyncIterator[voice_service_pb2.UploadVoiceRequest], context: Any
    ) -> voice_service_pb2.UploadVoiceResponse:
        caller = self._enter()
        try:
            request = await _assemble(requests)
        except InvalidField:
            await _drop_rest(requests)
            raise
        return voice_service_pb2.UploadVoiceResponse(voice=to_proto(await self._creation.create(request, caller)))

    async def DeleteVoice(
        self, request: voice_service_pb2.DeleteVoiceRequest, context: Any
    ) -> voice_service_pb2.DeleteVoiceResponse:
        name = request.voice_id.lower()
        self._refuse_preset(name, "cannot be deleted")
        removed = self._stored is not None and await self._stored.remove(call_context.current().caller, name)
        if not removed and not request.allow_missing:
            raise VoiceNotFound(name)
        self._phrases.forget(call_context.current().caller.name, name)
        return voice_service_pb2.DeleteVoiceResponse()

    async def ExportVoice(
        self, request: voice_service_pb2.ExportVoiceRequest, context: Any
    ) -> voice_service_pb2.ExportVoiceResponse:
        self._refuse_preset(request.voice_id.lower(), "needs no file: every server with it has the voice")
        voice = await self._find(request.voice_id)
        assert self._stored is not None, "it has found a voice"
        return voice_service_pb2.ExportVoiceResponse(voice_file=await self._stored.file(voice))

    async def ImportVoice(
        self, request: voice_service_pb2.ImportVoiceRequest, context: Any
    ) -> voice_service_pb2.ImportVoiceResponse:
        caller = self._enter()
        return voice_service_pb2.ImportVoiceResponse(voice=to_proto(await self._creation.import_file(request, caller)))

    def _enter(self) -> Caller:
        """Take a permit for an upload until the call is over, and return the caller."""
        caller = call_context.current().caller
        call_context.on_call_end(self._uploads.take(caller).give_back)
        return caller

    async def _find(self, voice_id: str) -> StoredVoice:
        if self._stored is None:
            raise VoiceNotFound(voice_id)
        return await self._stored.find(call_context.current().caller, voice_id.lower())

    def _refuse_preset(self, name: str, what: str) -> None:
        if name in self._presets.voices:
            model = self._presets.voices[name].model
            raise VoiceUnusable(name, f"{name!r} is a preset: it belongs to {model} and {what}", "VOICE_IS_PRESET")

    def _fitting_presets(self, request: voice_service_pb2.ListVoicesRequest) -> list[voice_pb2.Voice]:
        """Return all presets that fit, from the requested page on."""
        names = self._presets.names
        if request.kind not in (voice_pb2.VOICE_KIND_UNSPECIFIED, voice_pb2.VOICE_KIND_PRESET) or request.labels:
            return []
        begin = names.index(request.page_token) + 1 if request.page_token else 0
        return [self._presets.voices[name] for name in names[begin:] if self._speaks(name, request.language or "auto")]

    def _speaks(self, speaker: str, language: str) -> bool:
        try:
            self._engine.check(SynthesisParams(self._engine.info.default_sampling, speaker=speaker, language=language))
        except InvalidSynthesis:
            return False
        return True


def _fitting_page(voices: list[voice_pb2.Voice], page_size: int) -> list[voice_pb2.Voice]:
    """Return the first `page_size` voices, or fewer if one message cannot carry them."""
    num_bytes = accumulate(voice.ByteSize() for voice in voices[:page_size])
    return [voice for voice, so_far in zip(voices, num_bytes, strict=False) if so_far <= MAX_PAGE_BYTES]


async def _assemble(
    requests: AsyncIterator[voice_service_pb2.UploadVoiceRequest],
) -> voice_service_pb2.CreateVoiceRequest:
    """Join the messages of an upload into one request. Raises InvalidField."""
    create: voice_service_pb2.CreateVoiceRequest | None = None
    audio = bytearray()
    try:
        async with asyncio.timeout(UPLOAD_TIMEOUT_S):
            async for request in requests:
                payload = request.WhichOneof("payload")
                if payload is None or (payload == "create") != (create is None):
                    raise InvalidField(payload or "payload", "send `create` first, then only `audio`")
                if payload == "create":
                    create = request.create
                    _check_begin(create)
                else:
                    audio += request.audio
                if len(audio) > MAX_UPLOAD_BYTES:
                    raise InvalidField("audio", f"more than {MAX_UPLOAD_BYTES} bytes; send less", "RECORDING_TOO_LARGE")
    except TimeoutError:
        raise InvalidField("audio", f"not complete after {UPLOAD_TIMEOUT_S:g} s", "UPLOAD_TOO_SLOW") from None
    await asyncio.sleep(END_OF_REQUESTS_S)  # if the client has cancelled, the call ends here
    if create is None:
        raise InvalidField("create", "the call ended without any message; begin with create")
    create.reference.audio = bytes(audio)
    return create


async def _drop_rest(requests: AsyncIterator[voice_service_pb2.UploadVoiceRequest]) -> None:
    """Read on for a moment: a client that gets an error while it still writes may lose the error."""
    num_bytes = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_S):
            async for request in requests:
                num_bytes += len(request.audio)
                if num_bytes > MAX_UPLOAD_BYTES:
                    return


def _check_begin(create: voice_service_pb2.CreateVoiceRequest) -> None:
    if create.WhichOneof("source") != "reference":
        raise InvalidField("create.source", "an upload needs a reference; use CreateVoice for other sources")
    if create.reference.audio:
        raise InvalidField("create.reference.audio", "leave it unset; send the recording in the messages after this")
