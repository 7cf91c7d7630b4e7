"""What each API key has used since the server was started, in all server processes of the host together.

The ledger keeps it, so every process can tell it. The same counts are metrics, which outlive a restart in Prometheus.
"""

from contextlib import suppress
from dataclasses import dataclass

from sonorant.service.access.api_keys import Caller
from sonorant.service.admission.ledger import Ledger
from sonorant.service.errors import LimitReached
from sonorant.service.operations.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Used:
    num_chars: int  # code points of utterances that ended
    audio_ms: int  # that was written
    num_clones: int  # recordings that were encoded, or looked up, for a voice


class Usage:
    def __init__(self, ledger: Ledger, metrics: Metrics) -> None:
        self._ledger = ledger
        self._metrics = metrics

    @property
    def since_s(self) -> float:
        """When the counts began, in seconds since 1970."""
        return self._ledger.since_s

    def add(self, caller: Caller, num_chars: int = 0, audio_ms: int = 0, num_clones: int = 0) -> None:
        """Callers without a key are not counted."""
        if not caller.name:
            return
        with suppress(LimitReached):  # a ledger full of other callers: the metrics still count
            self._ledger.use(caller.number, (num_chars, audio_ms, num_clones))
        self._metrics.key_chars.labels(caller.name).inc(num_chars)
        self._metrics.key_audio_ms.labels(caller.name).inc(audio_ms)
        self._metrics.key_clones.labels(caller.name).inc(num_clones)

    def of(self, caller: Caller) -> Used:
        return Used(*self._ledger.used(caller.number))
