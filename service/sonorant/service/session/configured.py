"""What the configs of one session become: the first one is about the session, the latest about new utterances."""

from dataclasses import replace

from sonorant.service.access.api_keys import Caller
from sonorant.service.dictionaries.dictionaries import Named
from sonorant.service.errors import DictionaryNotFound, InvalidField, RequestError, VoiceNotFound
from sonorant.service.session.config import SpeakSpec, check_speak_config
from sonorant.service.session.parts import Parts
from sonorant.service.text.pronunciations import Lexicon
from sonorant.service.utterance.receipts import Receipts
from sonorant.service.utterance.requests import UtteranceSpec, check_synthesis
from sonorant.service.utterance.scheduling import check_scheduling
from sonorant.service.voices.choice import VoiceChoice
from sonorant.tts.v1 import speak_pb2, synthesis_pb2

_WAY_ON = "if it was deleted meanwhile, speak what was not heard as a new utterance without it"


class Configured:
    def __init__(self, caller: Caller, parts: Parts, *, resuming: bool) -> None:
        """`resuming`: the call continues another one, which may have named what is gone now."""
        self.session: SpeakSpec | None = None  # None until the first config
        self.utterance: UtteranceSpec  # of new ones, by the latest config
        self.gone: RequestError | None = None  # why new utterances cannot have what that names
        self._caller = caller
        self._parts = parts
        self._resuming = resuming
        self._receipts = Receipts.of(caller, parts.receipt_key)

    async def take(self, config: speak_pb2.SpeakConfig) -> SpeakSpec | None:
        """Return what the first config says of the session.

        Raises InvalidField, and what `VoiceChooser.choose` and `Dictionaries.named` raise.
        """
        caller, wait_s = self._caller, check_scheduling(config.scheduling, "config.scheduling").max_wait_s
        choice, named, self.gone = await self._look_up(config.synthesis, "config.synthesis", wait_s, self._resuming)
        spec = check_speak_config(config, choice, self._parts.engine, caller.text_format, caller.max_buffer_delay_ms)
        spec = replace(spec, utterance=replace(spec.utterance.over(*named), receipts=self._receipts))
        if self.session is None:
            self.session, self.utterance = spec, spec.utterance
            return spec
        if config.HasField("opening"):
            raise InvalidField("config.opening", "only the first config opens an utterance; send text")
        first = self.session.utterance
        self.utterance = replace(spec.utterance, resumable=first.resumable, packs_codes=first.packs_codes)
        return None

    async def resumed(self, replay: synthesis_pb2.SynthesisConfig) -> UtteranceSpec:
        """Return the spec of an utterance that another call has begun. Raises what `take` raises."""
        assert self.session is not None, "config came first"
        session = self.session.utterance
        wait_s = session.scheduling.max_wait_s
        choice, named, gone = await self._look_up(replay, "resume.replay", wait_s, was_there=True)
        if gone is not None:
            raise gone
        spec = check_synthesis(replay, choice, self._parts.engine, "resume.replay", non_streaming_default=False)
        return replace(
            spec.over(*named),
            warnings=(),
            timestamps=session.timestamps,
            resumable=session.resumable,
            receipts=session.receipts,
            packs_codes=session.packs_codes,
            policy=session.policy,
            scheduling=session.scheduling,
        )

    async def _look_up(
        self, config: synthesis_pb2.SynthesisConfig, path: str, wait_s: float, was_there: bool
    ) -> tuple[VoiceChoice, Named, RequestError | None]:
        """Return the voice and the dictionaries that a config names. `was_there`: another call has used it, so if what
        it names is gone since then, what stands for it is returned, in which nothing can be spoken, and the error of
        each utterance that wants it."""
        gone: RequestError
        try:
            choice = await self._parts.voices.choose(config.voice, f"{path}.voice", self._caller, wait_s)
            return choice, await self._parts.dictionaries.named(config, path, self._caller), None
        except (VoiceNotFound, DictionaryNotFound) as error:
            if not was_there:
                raise
            if isinstance(error, VoiceNotFound):
                gone = VoiceNotFound(error.voice_id, hint=_WAY_ON)
            else:
                gone = DictionaryNotFound(error.dictionary_id, hint=_WAY_ON)
        return self._parts.voices.stand_in(f"{path}.voice"), (Lexicon(), ()), gone
