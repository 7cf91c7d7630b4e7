"""What all calls of a server process share. Made once, by `sonorant.service.server`."""

import asyncio
from dataclasses import dataclass
from functools import partial

from sonorant.engine import EnginePool
from sonorant.service.access.api_keys import ApiKeys, Caller
from sonorant.service.admission.limits import Limits
from sonorant.service.admission.reservations import Reservations
from sonorant.service.admission.sessions import Sessions
from sonorant.service.admission.usage import Usage
from sonorant.service.calls.loop_share import LoopShare
from sonorant.service.dictionaries.dictionaries import Dictionaries
from sonorant.service.utterance.allowance import Allowance
from sonorant.service.utterance.phrases import CallerPhrases, Phrases
from sonorant.service.voices.choice import VoiceChooser


@dataclass(frozen=True, slots=True)
class Parts:
    engine: EnginePool
    keys: ApiKeys | None
    voices: VoiceChooser
    dictionaries: Dictionaries
    permits: Sessions
    usage: Usage
    limits: Limits
    reservations: Reservations
    phrases: Phrases
    loop_share: LoopShare
    tasks: asyncio.TaskGroup  # it outlives all calls; tasks of calls run in it and end with their call
    receipt_key: bytes
    max_text_chars: int  # of an utterance, unless the caller's key says less

    def allowance(self, caller: Caller) -> Allowance:
        return Allowance(
            self.reservations.of(caller),
            CallerPhrases(self.phrases, caller.name) if self.phrases.is_on else None,
            self.loop_share.of(caller.limit_key),
            caller.text_limit(self.max_text_chars),
            None if caller.max_text_chars_per_minute is None else partial(self.limits.take, caller),
        )
