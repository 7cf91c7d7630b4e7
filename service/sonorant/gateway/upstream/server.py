"""One connection to a gRPC server behind the gateway."""

from dataclasses import dataclass, field
from typing import Any

from sonorant.tts.v1.dictionary_service_pb2_grpc import DictionaryServiceStub
from sonorant.tts.v1.text_to_speech_service_pb2_grpc import TextToSpeechServiceStub
from sonorant.tts.v1.voice_service_pb2_grpc import VoiceServiceStub


@dataclass(eq=False)
class Server:
    target: str
    channel: Any
    speech: TextToSpeechServiceStub
    voices: VoiceServiceStub
    dictionaries: DictionaryServiceStub
    serving: bool = False
    running: int = 0  # our calls that are being spoken
    is_first: bool = True  # of the connections to this target
    health_metadata: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def count(self, call: Any) -> Any:
        """Count a call as running until it is over, and return it."""
        self.running += 1
        call.add_done_callback(self._over)
        return call

    def _over(self, _call: Any) -> None:
        self.running -= 1
