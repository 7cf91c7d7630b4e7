"""All that is needed to resume an utterance: its settings, its text, and how far it came."""

from dataclasses import dataclass, field

from sonorant.service.utterance.requests import UtteranceSpec
from sonorant.service.utterance.resumption import Resumption


@dataclass(slots=True, eq=False)
class UtteranceState:
    utterance_id: str
    spec: UtteranceSpec  # with the seed
    resumption: Resumption | None = None  # set if another session began it
    written: list[str] = field(default_factory=list)  # the text so far, in the pieces in which it was pushed
    num_frames: int = 0  # delivered by the engine
    received_samples: int = 0  # of these frames, at the engine's rate
    sent_samples: int = 0  # taken by gRPC, at the rate of the wire

    @property
    def sent_ms(self) -> int:
        return self.sent_samples * 1000 // self.spec.audio.sample_rate_hz

    @property
    def received_ms(self) -> int:
        return self.received_samples * 1000 // self.spec.audio.native_rate_hz
