"""The methods of `SpeechClient` for voices: list, create, move and delete them."""

from collections.abc import AsyncIterator, Iterable, Mapping

from sonorant.client.unary_calls import UnaryCalls
from sonorant.tts.v1.voice_pb2 import (
    MIX_METHOD_LINEAR,
    MIX_METHOD_SPHERICAL,
    ReferenceAudio,
    SpeakerEmbedding,
    Voice,
    VoiceKind,
    VoiceMix,
    WeightedVoice,
)
from sonorant.tts.v1.voice_service_pb2 import (
    CreateVoiceRequest,
    DeleteVoiceRequest,
    ExportVoiceRequest,
    GetVoiceRequest,
    ImportVoiceRequest,
    ListVoicesRequest,
    UploadVoiceRequest,
)
from sonorant.tts.v1.voice_service_pb2_grpc import VoiceServiceStub

PIECE_BYTES = 1024 * 1024
_KIND_PREFIX = "VOICE_KIND_"
KINDS = tuple(name.removeprefix(_KIND_PREFIX).lower() for name in VoiceKind.keys()[1:])


def kind_name(voice: Voice) -> str:
    """The voice's kind, one of KINDS."""
    return str(VoiceKind.Name(voice.kind)).removeprefix(_KIND_PREFIX).lower()


def voice_mix(weights: Mapping[str, float], *, spherical: bool = False) -> VoiceMix:
    """Make a mix of voices from their ids and weights: {"anna": 0.7, "ben": 0.3}."""
    return VoiceMix(
        voices=[WeightedVoice(voice_id=voice_id, weight=weight) for voice_id, weight in weights.items()],
        method=MIX_METHOD_SPHERICAL if spherical else MIX_METHOD_LINEAR,
    )


class VoiceMethods(UnaryCalls):
    """Every method raises the errors of `sonorant.client.errors`."""

    _voices: VoiceServiceStub

    async def voices(
        self, language: str = "", *, kind: str = "", labels: Mapping[str, str] | None = None
    ) -> list[Voice]:
        """Return all voices, or only those that speak `language`, are of `kind` (one of KINDS), and have all
        `labels`."""
        request = ListVoicesRequest(language=language, labels=labels, page_size=1000)
        if kind:
            request.kind = VoiceKind.Value(_KIND_PREFIX + kind.upper())
        voices: list[Voice] = []
        while True:
            page = await self._asked(self._voices.ListVoices, request)
            voices.extend(page.voices)
            if not page.next_page_token:
                return voices
            request.page_token = page.next_page_token

    async def voice(self, voice_id: str) -> Voice:
        """Return the voice with this id. Raises VoiceNotFound."""
        voice: Voice = (await self._unary(self._voices.GetVoice, GetVoiceRequest(voice_id=voice_id))).voice
        return voice

    async def create_voice(
        self,
        voice_id: str = "",
        *,
        reference: bytes | None = None,
        transcript: str = "",
        design: str = "",
        speaker_embedding: Iterable[float] | None = None,
        mix: VoiceMix | None = None,
        consent: str = "",
        display_name: str = "",
        description: str = "",
        preview_text: str = "",
        languages: Iterable[str] = (),
        labels: Mapping[str, str] | None = None,
        ttl_s: int = 0,
        validate_only: bool = False,
        request_id: str = "",
    ) -> Voice:
        """Create a voice from one source: a recording (at most 10 MiB) with or without its transcript, a description, a
        speaker embedding, or a mix. `preview_text`: what is said to try the voice. CreateVoiceRequest in the
        proto has the details."""
        request = CreateVoiceRequest(
            voice_id=voice_id,
            voice=Voice(
                display_name=display_name,
                description=description,
                languages=languages,
                labels=labels,
                preview_text=preview_text,
            ),
            consent=consent,
            ttl_seconds=ttl_s,
            validate_only=validate_only,
            request_id=request_id,
        )
        if design:
            request.design = design
        if speaker_embedding is not None:
            request.speaker_embedding.CopyFrom(SpeakerEmbedding(values=speaker_embedding))
        if mix is not None:
            request.mix.CopyFrom(mix)
        if reference is not None:
            request.reference.CopyFrom(ReferenceAudio(transcript=transcript))
            return await self._upload(request, reference)
        voice: Voice = (await self._unary(self._voices.CreateVoice, request)).voice
        return voice

    async def delete_voice(self, voice_id: str, *, allow_missing: bool = False) -> None:
        await self._unary(self._voices.DeleteVoice, DeleteVoiceRequest(voice_id=voice_id, allow_missing=allow_missing))

    async def export_voice(self, voice_id: str) -> bytes:
        """Return the voice as a file for `import_voice`."""
        exported = await self._unary(self._voices.ExportVoice, ExportVoiceRequest(voice_id=voice_id))
        return bytes(exported.voice_file)

    async def import_voice(
        self, voice_file: bytes, voice_id: str = "", *, ttl_s: int = 0, request_id: str = ""
    ) -> Voice:
        """Store the voice of an exported file; `voice_id=""` keeps the id that it had."""
        request = ImportVoiceRequest(voice_file=voice_file, voice_id=voice_id, ttl_seconds=ttl_s, request_id=request_id)
        voice: Voice = (await self._unary(self._voices.ImportVoice, request)).voice
        return voice

    async def _upload(self, create: CreateVoiceRequest, audio: bytes) -> Voice:
        async def requests() -> AsyncIterator[UploadVoiceRequest]:
            yield UploadVoiceRequest(create=create)
            for begin in range(0, len(audio), PIECE_BYTES):
                yield UploadVoiceRequest(audio=audio[begin : begin + PIECE_BYTES])

        voice: Voice = (await self._unary(self._voices.UploadVoice, requests())).voice
        return voice
