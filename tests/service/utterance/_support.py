"""What an utterance is made of, and who hears it and is charged for it."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sonorant.service.errors import LimitReached
from sonorant.service.utterance.requests import UtteranceSpec, check_synthesis
from sonorant.service.voices.choice import VoiceChoice
from sonorant.tts.v1 import audio_pb2, synthesis_pb2

NO_PHRASES = None


def spec(engine: Any, **config: Any) -> UtteranceSpec:
    choice = VoiceChoice(engine.info, "config.voice", voice_id="ada", speaker="ada")
    message = synthesis_pb2.SynthesisConfig(sampling={"seed": 7}, **config)
    return check_synthesis(message, choice, engine, "config", non_streaming_default=False)


@dataclass
class Heard:
    """Stands where a call sends messages: it takes each at once."""

    kinds: list[str] = field(default_factory=list)
    pcm: bytes = b""
    on_audio: Callable[[], None] = lambda: None

    async def send(self, message: Any, on_taken: Callable[[], None] | None = None) -> None:
        if on_taken is not None:
            on_taken()
        kind = type(message).__name__
        if not self.kinds or self.kinds[-1] != kind:
            self.kinds.append(kind)
        if isinstance(message, audio_pb2.AudioChunk):
            self.pcm += message.data
            self.on_audio()
        await asyncio.sleep(0)


@dataclass
class Caller:
    """Charged for text, up to a limit."""

    limit: int = 1 << 30
    charged: int = 0

    def charge(self, num_chars: int) -> None:
        if self.charged + num_chars > self.limit:
            raise LimitReached("text", "too much text")
        self.charged += num_chars
