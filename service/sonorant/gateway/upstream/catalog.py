"""Caches what the servers offer: the names of models and voices that requests are checked against."""

import time
from dataclasses import dataclass

from sonorant.gateway.upstream.calls import UpstreamCall
from sonorant.gateway.upstream.servers import Servers
from sonorant.tts.v1.text_to_speech_service_pb2 import GetCapabilitiesRequest
from sonorant.tts.v1.voice_pb2 import VOICE_KIND_PRESET
from sonorant.tts.v1.voice_service_pb2 import ListVoicesRequest

FRESH_S = 60.0
OPENAI_MODELS = ("tts-1", "tts-1-hd", "gpt-4o-mini-tts")


@dataclass(frozen=True, slots=True)
class Catalog:
    models: tuple[str, ...]  # the checkpoints' own names and OpenAI's
    presets: tuple[str, ...]  # voices of the checkpoints
    only_designs: bool  # True = the only voices are those made from a description
    read_s: float

    def has_model(self, name: str) -> bool:
        """Whether there is such a model. Only the last part of a name counts: "Qwen/Qwen3-TTS-12Hz-0.6B-Base" also
        means a checkpoint in a folder of this name."""
        return _last(name) in {_last(model) for model in self.models}


class Catalogs:
    """Holds the latest catalog. It contains nothing that belongs to one caller, so any caller that a server admits may
    renew it for all."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._latest: Catalog | None = None

    async def get(self, call: UpstreamCall) -> Catalog:
        """Return the catalog, read again if it is older than `FRESH_S`. Raises Refusal."""
        if self._latest is None or time.monotonic() - self._latest.read_s > FRESH_S:
            self._latest = await self.read(call)
        return self._latest

    async def read(self, call: UpstreamCall) -> Catalog:
        """Read the catalog from the servers now, with this caller's key. Raises Refusal."""
        request = GetCapabilitiesRequest()
        able = await self._servers.unary(lambda server: server.speech.GetCapabilities, request, call)
        voices = await self._servers.unary(
            lambda server: server.voices.ListVoices, ListVoicesRequest(kind=VOICE_KIND_PRESET, page_size=1000), call
        )
        names = dict.fromkeys((*able.models, *(voice.model for voice in voices.voices), *OPENAI_MODELS))
        presets = tuple(voice.voice_id for voice in voices.voices)
        only_designs = able.supports_design and not presets and not able.supports_cloning
        return Catalog(tuple(names), presets, only_designs, time.monotonic())


def _last(name: str) -> str:
    return name.rpartition("/")[2].lower()
