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
from sonorant.service.dictionaries.dictionaries import Dictionaries, Named
from sonorant.service.errors import DictionaryNotFound, RequestError, VoiceNotFound
from sonorant.service.text.pronunciations import Lexicon
from sonorant.service.utterance.allowance import Allowance
from sonorant.service.utterance.phrases import CallerPhrases, Phrases
from sonorant.service.voices.choice import VoiceChoice, VoiceChooser
from sonorant.tts.v1 import synthesis_pb2

_WAY_ON = "if it was deleted meanwhile, speak what was not heard as a new utterance without it"


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

    async def look_up(
        self, config: synthesis_pb2.SynthesisConfig, path: str, caller: Caller, wait_s: float
    ) -> tuple[VoiceChoice, Named, RequestError | None]:
        """Return the voice and the dictionaries that a config names. Its parameters, and what it raises, are those of
        `VoiceChooser.choose` and `Dictionaries.named`."""
        choice = await self.voices.choose(config.voice, f"{path}.voice", caller, wait_s)
        return choice, await self.dictionaries.named(config, path, caller), None

    async def look_up_again(
        self, config: synthesis_pb2.SynthesisConfig, path: str, caller: Caller, wait_s: float
    ) -> tuple[VoiceChoice, Named, RequestError | None]:
        """Do the same for a config that another call has used. If what it names is gone since then, return what stands
        for it, in which nothing can be spoken, and the error of each utterance that wants it."""
        gone: RequestError
        try:
            return await self.look_up(config, path, caller, wait_s)
        except VoiceNotFound as error:
            gone = VoiceNotFound(error.voice_id, hint=_WAY_ON)
        except DictionaryNotFound as error:
            gone = DictionaryNotFound(error.dictionary_id, hint=_WAY_ON)
        return self.voices.stand_in(f"{path}.voice"), (Lexicon(), ()), gone
