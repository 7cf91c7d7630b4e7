"""All that it takes to begin an utterance again where it was: how it is to sound, its text, how far it came."""

from dataclasses import dataclass, field

from sonorant.service.speak.requests import UtteranceSpec
from sonorant.service.speak.resumption import Resumption


@dataclass(slots=True, eq=False)
class UtteranceState:
    utterance_id: str
    spec: UtteranceSpec  # with the seed
    resumption: Resumption | None = None  # another session began it
    written: list[str] = field(default_factory=list)  # the text so far, in the pieces that it was taken in
    num_frames: int = 0  # that the engine delivered
    received_samples: int = 0  # the same, at the engine's rate
    sent_samples: int = 0  # that gRPC has taken, at the rate of the wire

    @property
    def sent_ms(self) -> int:
        return self.sent_samples * 1000 // self.spec.audio.sample_rate_hz

    @property
    def received_ms(self) -> int:
        return self.received_samples * 1000 // self.spec.audio.native_rate_hz
