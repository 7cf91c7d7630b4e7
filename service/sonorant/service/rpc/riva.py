"""NVIDIA Riva's speech synthesis, for its clients: requests are translated into ours, and our responses into Riva's.

Riva's clients bring their own stubs; here, the service is registered under Riva's path.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

import grpc

from sonorant.engine import EnginePool
from sonorant.service.audio.formats import TELEPHONE_RATE_HZ
from sonorant.service.calls.translated import Translated
from sonorant.service.errors import InvalidField, MalformedMessage, RequestError, UtteranceFailed
from sonorant.service.rpc.riva_messages import (
    Blanks,
    models,
    rename_fields,
    response,
    synthesis_config,
    timestamps,
)
from sonorant.service.rpc.speech import TextToSpeechServicer
from sonorant.tts.riva.v1 import riva_pb2
from sonorant.tts.v1 import audio_pb2, speak_pb2, synthesis_pb2, text_to_speech_service_pb2

SERVICE = "nvidia.riva.tts.RivaSpeechSynthesis"
# Sent for text that has nothing to speak: some clients give up on a server that answers without audio.
_SILENCE_S = 0.02
_SILENT_SAMPLES: dict[int, bytes] = {
    audio_pb2.AUDIO_ENCODING_PCM_S16LE: b"\0\0",
    audio_pb2.AUDIO_ENCODING_MULAW: b"\xff",
    audio_pb2.AUDIO_ENCODING_ALAW: b"\xd5",
}


class RivaServicer:
    def __init__(self, engine: EnginePool, speech: TextToSpeechServicer) -> None:
        self._engine = engine
        self._speech = speech

    def handlers(self) -> grpc.GenericRpcHandler:
        serialize = riva_pb2.SynthesizeSpeechResponse.SerializeToString
        request = riva_pb2.SynthesizeSpeechRequest.FromString
        methods = {
            "Synthesize": grpc.unary_unary_rpc_method_handler(self.synthesize, request, serialize),
            "SynthesizeOnline": grpc.stream_stream_rpc_method_handler(self.synthesize_online, request, serialize),
            "GetRivaSynthesisConfig": grpc.unary_unary_rpc_method_handler(
                self.config,
                riva_pb2.RivaSynthesisConfigRequest.FromString,
                riva_pb2.RivaSynthesisConfigResponse.SerializeToString,
            ),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def synthesize(self, request: riva_pb2.SynthesizeSpeechRequest, context: Any) -> Translated:
        ours = text_to_speech_service_pb2.SynthesizeRequest(
            config=synthesis_config(request), text=request.text, timestamps=timestamps(request)
        )
        try:
            clip = await self._speech.Synthesize(ours, context)
        except RequestError as error:
            if request.text and isinstance(error, InvalidField) and error.reason == "NO_SPEAKABLE_TEXT":
                encoding = ours.config.audio.encoding
                own_rate_hz = self._engine.info.sample_rate_hz
                if encoding != audio_pb2.AUDIO_ENCODING_PCM_S16LE:
                    own_rate_hz = TELEPHONE_RATE_HZ
                silence = _silence(encoding, request.sample_rate_hz or own_rate_hz)
                return Translated(None, response(silence, (), request.id))
            rename_fields(error)
            raise
        return Translated(clip, response(clip.audio, clip.marks, request.id, request.text))

    async def synthesize_online(
        self, requests: AsyncGenerator[riva_pb2.SynthesizeSpeechRequest, None], context: Any
    ) -> AsyncIterator[Translated]:
        """Speak all requests as one utterance; a change of settings in mid-stream begins another."""
        script = _Script()
        marks: list[synthesis_pb2.Mark] = []
        audio_format = audio_pb2.AudioFormat()
        try:
            async with aclosing(self._speech.Speak(script.requests(requests), context)) as responses:
                async for told in responses:
                    match getattr(told, told.WhichOneof("payload")):
                        case synthesis_pb2.UtteranceStarted(audio=audio_format):
                            yield Translated(told)
                        case synthesis_pb2.Marks(marks=more):
                            marks += more
                            yield Translated(told)
                        case audio_pb2.AudioChunk(data=data):
                            yield Translated(told, response(data, marks, script.request_id))
                            marks.clear()
                        case synthesis_pb2.UtteranceDone() as done:
                            yield Translated(told, _last_response(done, audio_format, script.request_id))
                            if done.reason == synthesis_pb2.FINISH_REASON_FAILED:
                                raise UtteranceFailed(done.error)
                        case _:
                            yield Translated(told)
            if not script.has_text:
                raise InvalidField("text", "nothing to say: the text is empty", "NO_SPEAKABLE_TEXT")
        except RequestError as error:
            rename_fields(error)
            raise

    async def config(self, request: riva_pb2.RivaSynthesisConfigRequest, context: Any) -> Translated:
        """List only presets, since this call comes without a key."""
        told = models(self._engine.infos, request.model_name)
        if request.model_name and not told.model_config:
            served = ", ".join(dict.fromkeys(info.model for info in self._engine.infos))
            raise InvalidField("model_name", f"{request.model_name!r} is not served here; use one of {served}")
        return Translated(None, told)


class _Script:
    """Translates a stream of Riva's requests into ours."""

    def __init__(self) -> None:
        self.request_id = riva_pb2.RequestId()
        self.has_text = False

    async def requests(
        self, requests: AsyncGenerator[riva_pb2.SynthesizeSpeechRequest, None]
    ) -> AsyncGenerator[speak_pb2.SpeakRequest, None]:
        config, blanks, has_text = None, Blanks(), False
        async with aclosing(requests):
            async for request in requests:
                self.request_id = request.id
                wanted = speak_pb2.SpeakConfig(synthesis=synthesis_config(request), timestamps=timestamps(request))
                if wanted != config:
                    if has_text:
                        yield speak_pb2.SpeakRequest(end={})
                    config, blanks, has_text = wanted, Blanks(), False
                    yield speak_pb2.SpeakRequest(config=config)
                if request.text:
                    self.has_text = has_text = True
                    yield speak_pb2.SpeakRequest(text=blanks.restored(request.text))
        if config is None:
            raise MalformedMessage("the call ended without a request; send one")


def _last_response(
    done: synthesis_pb2.UtteranceDone, audio: audio_pb2.AudioFormat, request_id: riva_pb2.RequestId
) -> riva_pb2.SynthesizeSpeechResponse | None:
    is_silent = done.reason == synthesis_pb2.FINISH_REASON_COMPLETED and not done.stats.sent_ms
    silence = _silence(audio.encoding, audio.sample_rate_hz) if is_silent else b""
    return response(silence, (), request_id) if silence else None


def _silence(encoding: int, rate_hz: int) -> bytes:
    """Return a moment of silence; nothing in encodings with a container."""
    return _SILENT_SAMPLES.get(encoding, b"") * round(_SILENCE_S * rate_hz)
