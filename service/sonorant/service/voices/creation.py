"""Creates stored voices, from a source in the request or from an exported file."""

import asyncio
import secrets
import time
from dataclasses import replace

from sonorant.engine import EnginePool, InvalidSynthesis, SynthesisParams
from sonorant.service.access.api_keys import Caller
from sonorant.service.errors import InvalidField, MethodNotServed, VoiceExists
from sonorant.service.voices.choice import Presets, VoiceChoice, VoiceChooser, check_allowed
from sonorant.service.voices.file import NotAVoiceFile, VoiceAbout, unpack
from sonorant.service.voices.requests import check_create, check_imported, check_request
from sonorant.service.voices.store import RequestKey, StoredVoice
from sonorant.service.voices.stored import StoredVoices
from sonorant.tts.v1 import voice_service_pb2

_NOT_KEPT = "this server keeps no voices; start it with --voices-dir DIR, or send the voice along with each request"


class VoiceCreation:
    def __init__(
        self, engine: EnginePool, presets: Presets, chooser: VoiceChooser, stored: StoredVoices | None
    ) -> None:
        """`stored`: None on a server that keeps no voices."""
        self._engine = engine
        self._presets = presets
        self._chooser = chooser
        self._stored = stored

    async def create(self, request: voice_service_pb2.CreateVoiceRequest, caller: Caller) -> VoiceAbout:
        """Create a voice and return its metadata. With validate_only, only check that it could be created.

        Raises errors of the request, VoiceExists, RequestIdReused, VoiceQuotaReached, VoiceStoreFailed, and what the
        engine's encoder raises.
        """
        stored = self._may_create(request.voice_id, caller)
        about = check_create(request, time.time())
        key = await asyncio.to_thread(check_request, request.request_id, request)  # hashing a large request takes time
        if made := await self._prepare(caller, stored, about.voice_id, key):
            return made.about
        choice = await self._choose(request, caller)
        about = replace(
            about,
            transcript=choice.transcript,
            design=choice.design,
            reference_audio_ms=choice.reference_audio_ms,
            model=choice.info.model,
            fingerprint=choice.info.fingerprint,
        )
        if choice.is_complete:
            self._check_with_engine(choice)
        return about if request.validate_only else await self._keep(caller, stored, about, choice, key)

    async def import_file(self, request: voice_service_pb2.ImportVoiceRequest, caller: Caller) -> VoiceAbout:
        """Create a voice from an exported file; otherwise like `create`."""
        stored = self._may_create(request.voice_id, caller)
        try:
            about, tensors = unpack(request.voice_file)
        except NotAVoiceFile as error:
            raise InvalidField("voice_file", f"not a file of ExportVoice: {error}", "NOT_A_VOICE_FILE") from error
        about = check_imported(request, about, time.time())
        key = check_request(request.request_id, request)
        if made := await self._prepare(caller, stored, about.voice_id, key):
            return made.about
        choice = self._chooser.kept(about, tensors, "voice_file")
        self._check_with_engine(choice)
        return about if request.validate_only else await self._keep(caller, stored, about, choice, key)

    def _may_create(self, voice_id: str, caller: Caller) -> StoredVoices:
        if self._stored is None:
            raise MethodNotServed(_NOT_KEPT, "VOICES_NOT_KEPT")
        check_allowed(caller, voice_id, "voice_id")
        return self._stored

    async def _prepare(
        self, caller: Caller, stored: StoredVoices, voice_id: str, key: RequestKey | None
    ) -> StoredVoice | None:
        """Check for conflicts before the work. Return the voice if the same request has made it already.

        Changes by other calls meanwhile are noticed when the voice is stored.
        """
        if voice_id in self._presets.voices:
            raise VoiceExists(voice_id, is_preset=True)
        return await stored.prepare(caller, voice_id, key)

    async def _choose(self, request: voice_service_pb2.CreateVoiceRequest, caller: Caller) -> VoiceChoice:
        match request.WhichOneof("source"):
            case "reference" if request.validate_only:
                return await self._chooser.check_recording(request.reference, "reference")
            case "reference":
                return await self._chooser.cloned(request.reference, "reference")
            case "design":
                return self._chooser.designed(request.design, "design")
            case "speaker_embedding":
                return self._chooser.embedded(request.speaker_embedding, "speaker_embedding")
            case _:
                return await self._chooser.mixed(request.mix, "mix", caller)

    def _check_with_engine(self, choice: VoiceChoice) -> None:
        """Check that the voice can speak: a long recording, for instance, may leave no room for speech."""
        params = SynthesisParams(
            choice.info.default_sampling,
            instruct=choice.design,
            x_vector=choice.x_vector,
            reference_codes=choice.reference_codes,
            reference_text=choice.transcript,
            checkpoint=choice.info.fingerprint,
        )
        try:
            self._engine.check(params)
        except InvalidSynthesis as error:
            raise InvalidField(choice.field, str(error)) from error

    async def _keep(
        self, caller: Caller, stored: StoredVoices, about: VoiceAbout, choice: VoiceChoice, key: RequestKey | None
    ) -> VoiceAbout:
        about = replace(about, voice_id=about.voice_id or f"voice-{secrets.token_hex(8)}")
        return (await stored.add(caller, about, choice.tensors, key)).about
