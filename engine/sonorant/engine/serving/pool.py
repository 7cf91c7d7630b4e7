"""Several worker pairs behind the interface of one engine: of one checkpoint or of several, each with one pair or more.

An utterance goes to the first checkpoint that has what its voice needs, and there to the pair with the fewest live
streams. If a pair goes down, its streams continue on other pairs of the checkpoint or with its new workers. A pair
serves only after it has spoken: either a warm-up that nobody hears, or a stream that continued on it.
"""

import asyncio
import dataclasses
import logging
import socket
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Self

from sonorant.engine.config import EngineConfig, device_with_gpus
from sonorant.engine.errors import CodecDiffers, EngineError, EngineOverloaded, EngineUnavailable
from sonorant.engine.prompt.explain import Explanation
from sonorant.engine.serving.engine import Engine, EngineStats, Texts
from sonorant.engine.serving.info import EngineInfo
from sonorant.engine.serving.owner_link import OwnerLink
from sonorant.engine.serving.placement import Placement
from sonorant.engine.serving.routing import Load, Need, choose_model, choose_pair
from sonorant.engine.serving.stored import StoredStream
from sonorant.engine.serving.stream import EngineStream
from sonorant.engine.serving.warm_up import WarmUp, warm_up
from sonorant.engine.types import EncodedReference, Float32Array, Int16Array, RecordingInfo, SynthesisParams
from sonorant.engine.workers.state import EngineState
from sonorant.logs import start

log = logging.getLogger(__name__)

TRY_AGAIN_S = (1.0, 2.0, 5.0, 10.0, 30.0)  # wait after the first, second, ... failed warm-up; the last one repeats

CLONING = Need(("base",))

# The state of all pairs together is the first of these that any pair is in.
_BEST_FIRST = (EngineState.READY, EngineState.STARTING, EngineState.RESTARTING, EngineState.FAILED, EngineState.CLOSED)


@dataclass(frozen=True, slots=True)
class PairStats:
    """The state of one worker pair, and what it is doing."""

    model: str
    state: EngineState
    num_slots: int
    stats: EngineStats


class _Pair:
    def __init__(self, config: EngineConfig, engine: Engine, states: "asyncio.Queue[EngineState]") -> None:
        self.config = config
        self.engine = engine
        self._states = states  # every state of the engine, from its start on
        self._can_speak: bool | None = None  # whether its present workers can; None: not tried yet
        self._has_begun = False  # whether its first workers have been tried

    @property
    def gpu(self) -> str:
        """On a machine with GPUs; elsewhere all pairs have the same."""
        return device_with_gpus(self.config.talker.device)

    @property
    def is_awaited(self) -> bool:
        return self.state is EngineState.STARTING and not self._has_begun and not self.engine.is_standby

    @property
    def state(self) -> EngineState:
        state = self.engine.state
        if state is not EngineState.READY or self._can_speak:
            return state
        return EngineState.STARTING if self._can_speak is None else EngineState.FAILED

    def load(self) -> Load:
        serves = self.state is EngineState.READY and not self.engine.is_standby
        return Load(serves, self.engine.num_places, self.engine.num_slots, self.engine.max_streams)

    @property
    def comes_back(self) -> bool:
        """Whether its workers are being replaced, or new ones have yet to speak for the first time."""
        return self._has_begun and self.state in (EngineState.RESTARTING, EngineState.STARTING)

    def load_of_stored(self) -> Load:
        serves = self.state is EngineState.READY and not self.engine.is_standby
        limit = self.engine.max_stored
        return Load(serves, self.engine.num_stored, limit, limit)

    async def follow(self, changed: Callable[[], None]) -> None:
        """Warm the pair up whenever its workers come up, and retry if that fails. Call `changed` after each change."""
        try:
            num_tries = 0
            while True:
                state = await self._next_state(num_tries)
                if state is EngineState.STARTING:
                    continue
                if state is not None:
                    num_tries, self._can_speak = 0, None
                if state in (EngineState.READY, None):
                    self._can_speak = await self._rehearse()
                    num_tries = 0 if self._can_speak else num_tries + 1
                self._has_begun = True
                changed()
        except Exception:
            log.exception("the engine of %s takes no more streams, after an internal error", self.engine.info.model)
            self._can_speak = False
            self._has_begun = True
            changed()

    async def _next_state(self, num_tries: int) -> EngineState | None:
        """Wait for the engine's next state. Return None when a pair that is up but could not speak should try again."""
        wait_s = TRY_AGAIN_S[min(num_tries, len(TRY_AGAIN_S)) - 1] if self._can_speak is False else None
        try:
            async with asyncio.timeout(wait_s):
                return await self._states.get()
        except TimeoutError:
            return None

    async def _rehearse(self) -> bool | None:
        """Return whether the workers that are up can speak; None if they went down."""
        if await self.engine.has_spoken():
            log.info("%s speaks again: its live streams continue", self.engine.info.model)
            return True
        if self.engine.state is not EngineState.READY:
            return None
        try:
            spoken = await warm_up(self.engine)
        except EngineOverloaded:
            return True  # other server processes have all places: their streams speak
        except EngineError as error:
            log.error("the warm-up of %s failed: %s", self.engine.info.model, error)
            # Workers that went down will be replaced. Replacing workers that are up would not help: new ones are alike.
            return False if self.engine.state is EngineState.READY else None
        duration_ms = round(spoken.total_s * 1000)
        log.info("warm-up of %s: %d frames in %d ms", self.engine.info.model, spoken.num_frames, duration_ms)
        return True


class EnginePool:
    """All worker pairs, with the choice which of them speaks. Members that `Engine` has, too, mean the same here."""

    def __init__(
        self,
        pairs: Sequence[_Pair],
        on_state: Callable[[EngineState], None],
        link: OwnerLink,
        resources: AsyncExitStack,
    ) -> None:
        """Use `EnginePool.join`. `resources` are released at the end."""
        self._pairs = pairs
        self._resources = resources
        self._recordings = link.recordings
        models: dict[object, list[_Pair]] = {}
        for pair in pairs:
            models.setdefault(pair.config.model, []).append(pair)
        self._models = list(models.values())
        for pair in pairs:
            pair.engine.neighbours = [other.engine for other in pairs if other is not pair and other.gpu == pair.gpu]
        for replicas in self._models:
            placement = Placement([pair.engine for pair in replicas], link.verdicts, link.process.set_waiting)
            for pair in replicas:
                pair.engine.placement = placement
        self.infos = tuple(pairs[0].engine.info for pairs in self._models)  # one per checkpoint, in the order given
        self.info = _joined_info(self.infos, [pair.engine.info for pair in pairs if not pair.engine.is_standby])
        self._on_state = on_state
        self._has_tried = asyncio.Event()  # set once no pair is awaited any more
        self._tell()
        self._followers = [asyncio.create_task(pair.follow(self._tell), name="worker pair") for pair in pairs]

    @classmethod
    async def join(
        cls,
        configs: Sequence[EngineConfig],
        owner: socket.socket,
        on_state: Callable[[EngineState], None],
        resources: AsyncExitStack | None = None,
    ) -> Self:
        """Use the workers of the owner, which has `SharedPairs` with these configs and made the socket.

        Returns when all pairs but standbys have loaded. Pairs of one checkpoint are replicas. `on_state` gets the
        pool's state at the start and after each change of a pair, even if it stays the same. READY means that at least
        one pair has spoken; before the first READY every pair but standbys has tried to. `resources` are released at
        the end. Raises CheckpointError if a checkpoint cannot be read, or EngineError if the owner ends before.
        """
        async with resources or AsyncExitStack() as stack:
            texts = {config.model: Texts.read(config.model) for config in configs}  # while the workers load
            start.phase("tokenizers")
            link = await OwnerLink.open(owner)
            start.phase("workers")
            stack.callback(link.close)
            pairs: list[_Pair] = []
            stack.callback(_close, pairs)
            for number, (config, is_standby) in enumerate(zip(configs, link.standbys, strict=True)):
                states: asyncio.Queue[EngineState] = asyncio.Queue()
                own = dataclasses.replace(config, is_standby=is_standby)
                engine = Engine.start(own, texts[config.model], states.put_nowait, link, number)
                pairs.append(_Pair(own, engine, states))
            pool = cls(pairs, on_state, link, stack.pop_all())
            link.listen(pool._on_room)
            return pool

    @property
    def state(self) -> EngineState:
        if any(pair.is_awaited for pair in self._pairs):
            return EngineState.STARTING
        states = {pair.state for pair in self._pairs}
        return next(state for state in _BEST_FIRST if state in states)

    async def tried(self) -> None:
        """Wait until every pair but standbys has tried to speak."""
        await self._has_tried.wait()

    @property
    def num_streams(self) -> int:
        return sum(pair.engine.num_streams for pair in self._pairs)

    @property
    def num_recordings(self) -> int:
        """How many recordings of this process are being encoded or wait for it."""
        return self._recordings.num_waiting

    def pairs(self) -> list[PairStats]:
        return [
            PairStats(pair.engine.info.model, pair.state, pair.config.talker.num_slots, pair.engine.stats())
            for pair in self._pairs
        ]

    def keep_places(self, checkpoint: str, change: int) -> None:
        """Have other server processes leave so many more places to utterances between two of their streams.

        `checkpoint`: the fingerprint of the one that speaks them; the first one if there is none.
        """
        of_model = [pair.engine for pair in self._pairs if pair.engine.info.fingerprint == checkpoint]
        (of_model or [self._pairs[0].engine])[0].keep_places(change)

    def info_for(self, need: Need) -> EngineInfo:
        """Return the info of the checkpoint that would speak; if none can, `check` says why this one cannot."""
        return self.infos[choose_model(need, self.infos)]

    def check(self, params: SynthesisParams) -> None:
        """Raise InvalidSynthesis, UnknownSpeaker or UnsupportedTask if `open` would. Opens nothing."""
        self._model_of(params)[0].engine.check(params)

    def explain(self, params: SynthesisParams, text: str, written: str | None = None) -> Explanation:
        """See `Engine.explain`."""
        return self._model_of(params)[0].engine.explain(params, text, written)

    def open(
        self,
        params: SynthesisParams,
        credit_frames: int | None = None,
        known_codes: Int16Array | None = None,
        *,
        spare: int = 0,
        waits: bool = False,
        caller: int = 0,
        in_turn: bool = False,
        background: bool = False,
    ) -> EngineStream:
        """Open a new stream. Raises EngineUnavailable, EngineOverloaded, or what `check` raises; see `Engine.open`.

        `spare` places of the checkpoint's pairs are kept free for others: raises EngineOverloaded if no more are left.
        With `waits`, if no pair serves, the stream goes to a pair that is coming back.
        """
        pairs = self._model_of(params)
        loads = [pair.load() for pair in pairs]
        index = choose_pair(loads)
        if index is None and waits and (back := [pair for pair in pairs if pair.comes_back]):
            emptiest = min(back, key=lambda pair: (pair.engine.is_standby, pair.engine.num_places))
            return emptiest.engine.open(
                params, credit_frames, known_codes, waits=True, caller=caller, in_turn=in_turn, background=background
            )
        if index is None:
            states = " and ".join(sorted({pair.state for pair in pairs}))
            raise EngineUnavailable(f"the engine of {pairs[0].engine.info.model} is {states}; try again later")
        if spare and sum(load.room for load in loads) <= spare:
            raise EngineOverloaded("all streams are in use, or kept for others; try again later")
        return pairs[index].engine.open(
            params, credit_frames, known_codes, caller=caller, in_turn=in_turn, background=background
        )

    def info_for_codec(self, codec: str) -> EngineInfo:
        """Return the info of the first checkpoint with this codec. Raises CodecDiffers if there is none."""
        for info in self.infos:
            if info.codec == codec:
                return info
        served = " and ".join(f"{info.codec} ({info.model})" for info in self.infos)
        raise CodecDiffers(
            f"the codes were made with codec {codec}, but this server has {served}; decode them where they were made"
        )

    def open_stored(
        self,
        codec: str,
        segments: Sequence[Int16Array],
        past_codes: Int16Array | None = None,
        credit_frames: int | None = None,
    ) -> StoredStream:
        """Open a stream that decodes stored codes, on any pair whose checkpoint has this codec.

        Raises CodecDiffers, and what `Engine.open_stored` raises.
        """
        self.info_for_codec(codec)
        pairs = [pair for pair in self._pairs if pair.engine.info.codec == codec]
        loads = [pair.load_of_stored() for pair in pairs]
        index = choose_pair(loads)
        if index is None:
            states = " and ".join(sorted({pair.state for pair in pairs}))
            raise EngineUnavailable(f"the engine is {states}; try again later")
        return pairs[index].engine.open_stored(segments, past_codes, credit_frames)

    async def encode_reference(
        self, audio: bytes, *, with_codes: bool, caller: int = 0, holder: int = 0, wait_s: float = 0.0
    ) -> EncodedReference:
        """Encode a recording for cloning with the first Base checkpoint; see `Engine.encode_reference`."""
        engine = self._model(CLONING)[0].engine
        return await engine.encode_reference(audio, with_codes=with_codes, caller=caller, holder=holder, wait_s=wait_s)

    async def check_reference(self, audio: bytes, *, caller: int = 0) -> RecordingInfo:
        """Check a recording as `encode_reference` does, and raise the same errors, but do not encode it."""
        return await self._model(CLONING)[0].engine.check_reference(audio, caller=caller)

    def speaker_embedding(self, speaker: str) -> Float32Array:
        """Return the embedding [hidden] of a preset voice; see `Engine.speaker_embedding`."""
        return self._model(Need(("custom_voice",), speaker))[0].engine.speaker_embedding(speaker)

    async def rehearse(self) -> list[WarmUp]:
        """Warm up each pair that is to serve in turn, with an utterance that nobody hears. Raises EngineError if one
        does not speak."""
        return [await warm_up(pair.engine) for pair in self._pairs if not pair.engine.is_standby]

    async def close(self) -> None:
        """Leave all workers. Live streams end."""
        async with self._resources:
            for follower in self._followers:
                follower.cancel()
            await asyncio.wait(self._followers)
        self._tell()

    def _model_of(self, params: SynthesisParams) -> list[_Pair]:
        return self._models[0] if len(self._models) == 1 else self._model(Need.of(params))

    def _model(self, need: Need) -> list[_Pair]:
        return self._models[choose_model(need, self.infos)]

    def _tell(self) -> None:
        if not any(pair.is_awaited for pair in self._pairs):
            self._has_tried.set()
        self._on_state(self.state)

    def _on_room(self) -> None:
        for replicas in self._models:
            replicas[0].engine.placement.on_room()


def _close(pairs: Sequence[_Pair]) -> None:
    for pair in pairs:
        pair.engine.close()


def _joined_info(models: Sequence[EngineInfo], pairs: Sequence[EngineInfo]) -> EngineInfo:
    """Join the infos of all checkpoints to one; task, size and defaults are those of the first."""
    return dataclasses.replace(
        models[0],
        model=", ".join(info.model for info in models),
        speakers=tuple(dict.fromkeys(speaker for info in models for speaker in info.speakers)),
        languages=tuple(dict.fromkeys(language for info in models for language in info.languages)),
        max_context=min(info.max_context for info in models),
        max_streams=sum(info.max_streams for info in pairs),
        credit_frames=min(info.credit_frames for info in models),
    )
