"""Several worker pairs behind the interface of one engine: of one checkpoint or of several, each with one pair or more.

An utterance goes to the first checkpoint that has what its voice needs, and there to the pair with the fewest live
streams. If a pair goes down, its streams continue on other pairs of the checkpoint or with its new workers. A pair
serves only after it has spoken: either a warm-up that nobody hears, or a stream that continued on it.
"""

import asyncio
import dataclasses
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from typing import Self

from sonorant.engine.config import EngineConfig
from sonorant.engine.errors import CodecDiffers, EngineError, EngineOverloaded, EngineUnavailable
from sonorant.engine.prompt.explain import Explanation
from sonorant.engine.prompt.layout import PromptLayout
from sonorant.engine.serving.engine import Engine, EngineStats
from sonorant.engine.serving.info import EngineInfo
from sonorant.engine.serving.model import Model
from sonorant.engine.serving.owner_link import OwnerLink
from sonorant.engine.serving.placement import Placement
from sonorant.engine.serving.routing import Need, choose_model, choose_pair
from sonorant.engine.serving.stored import StoredStream
from sonorant.engine.serving.stream import EngineStream
from sonorant.engine.serving.warm_up import WarmUp, warm_up
from sonorant.engine.types import EncodedReference, Float32Array, Int16Array, RecordingInfo, SynthesisParams
from sonorant.engine.workers.endpoint import EngineState
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


class EnginePool:
    """All worker pairs, with the choice which of them speaks. Members that `Engine` has, too, mean the same here."""

    def __init__(
        self,
        configs: Sequence[EngineConfig],
        models: Mapping[Path, Model],
        on_state: Callable[[EngineState], None],
        link: OwnerLink,
    ) -> None:
        """Use `EnginePool.join`."""
        self._pairs = pairs = [
            Engine(config, models[config.model], self._on_change, link, number) for number, config in enumerate(configs)
        ]
        self._resources: AsyncExitStack  # released at the end
        self._recordings = link.recordings
        self._on_state = on_state
        self._has_tried = asyncio.Event()  # set once all pairs but standbys have been tried
        self._rehearsals: dict[Engine, asyncio.Task[None]] = {}  # of the present or the last workers
        self._models = [[pair for pair in pairs if pair.model is model] for model in models.values()]
        for pair in pairs:
            pair.neighbours = [other for other in pairs if other is not pair and other.gpu == pair.gpu]
            pair.start()  # before they have a placement together, which moves standbys as states change
        for replicas in self._models:
            placement = Placement(replicas, link.verdicts, link.process.set_waiting)
            for pair in replicas:
                pair.placement = placement
        self.infos = tuple(replicas[0].info for replicas in self._models)  # one per checkpoint, in the order given
        self.info = _joined_info(self.infos, [pair.info for pair in pairs if not pair.is_standby])
        self._tell()

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
            models: dict[Path, Model] = {}  # they are read while the workers load
            for config in configs:
                models[config.model] = models.get(config.model) or Model.read(config)
            start.phase("tokenizers")
            link = await OwnerLink.open(owner)
            start.phase("workers")
            stack.callback(link.close)
            now = [
                dataclasses.replace(config, is_standby=is_standby)
                for config, is_standby in zip(configs, link.standbys, strict=True)
            ]
            pool = cls(now, models, on_state, link)
            pool._resources = stack.pop_all()
            link.listen(pool._on_room)
            return pool

    @property
    def state(self) -> EngineState:
        """The best state of all pairs: READY as long as one of them can speak."""
        if not self._has_tried.is_set():
            return EngineState.STARTING
        return min((pair.public_state for pair in self._pairs), key=_BEST_FIRST.index)

    async def tried(self) -> None:
        """Wait until every pair but standbys has tried to speak."""
        await self._has_tried.wait()

    @property
    def num_streams(self) -> int:
        """How many streams of this process have not ended."""
        return sum(pair.num_streams for pair in self._pairs)

    @property
    def num_recordings(self) -> int:
        """How many recordings of this process are being encoded or wait for it."""
        return self._recordings.num_waiting

    def speaking(self) -> set[str]:
        """The names of the checkpoints of which a pair is ready."""
        return {pair.info.model for pair in self._pairs if pair.public_state is EngineState.READY}

    def pairs(self) -> list[PairStats]:
        """Return the state and the load of each worker pair, for metrics."""
        return [PairStats(pair.info.model, pair.public_state, pair.num_slots, pair.stats()) for pair in self._pairs]

    def keep_places(self, checkpoint: str, change: int) -> None:
        """Have other server processes leave so many more places to utterances between two of their streams.

        `checkpoint`: the fingerprint of the one that speaks them; the first one if there is none.
        """
        of_model = [pair for pair in self._pairs if pair.info.fingerprint == checkpoint]
        (of_model or self._pairs)[0].keep_places(change)

    def info_for(self, need: Need) -> EngineInfo:
        """Return the info of the checkpoint that would speak; if none can, `check` says why this one cannot."""
        return self.infos[choose_model(need, self.infos)]

    def check(self, params: SynthesisParams) -> PromptLayout:
        """Return the layout of the prompt. Raises InvalidSynthesis, UnknownSpeaker or UnsupportedTask if `open` would.
        Opens nothing."""
        return self._model_of(params)[0].model.check(params)

    def explain(self, params: SynthesisParams, text: str, written: str | None = None) -> Explanation:
        """See `Model.explain`."""
        return self._model_of(params)[0].model.explain(params, text, written)

    def open(
        self,
        params: SynthesisParams,
        credit_frames: int | None = None,
        known_codes: Int16Array | None = None,
        *,
        prompt: PromptLayout | None = None,
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
        if index is not None:
            pair, waits = pairs[index], False
            if spare and sum(load.room for load in loads) <= spare:
                raise EngineOverloaded("all streams are in use, or kept for others; try again later")
        elif waits and (back := [pair for pair in pairs if pair.comes_back]):
            pair = min(back, key=lambda pair: (pair.is_standby, pair.num_places))
        else:
            states = " and ".join(sorted({pair.public_state for pair in pairs}))
            raise EngineUnavailable(f"the engine of {pairs[0].info.model} is {states}; try again later")
        return pair.open(
            params,
            credit_frames,
            known_codes,
            prompt=prompt,
            waits=waits,
            caller=caller,
            in_turn=in_turn,
            background=background,
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
        pairs = [pair for pair in self._pairs if pair.info.codec == codec]
        loads = [pair.load(stored=True) for pair in pairs]
        index = choose_pair(loads)
        if index is None:
            states = " and ".join(sorted({pair.public_state for pair in pairs}))
            raise EngineUnavailable(f"the engine is {states}; try again later")
        return pairs[index].open_stored(segments, past_codes, credit_frames)

    async def encode_reference(
        self, audio: bytes, *, with_codes: bool, caller: int = 0, holder: int = 0, wait_s: float = 0.0
    ) -> EncodedReference:
        """Encode a recording for cloning with the first Base checkpoint; see `Engine.encode_reference`."""
        engine = self._model(CLONING)[0]
        return await engine.encode_reference(audio, with_codes=with_codes, caller=caller, holder=holder, wait_s=wait_s)

    async def check_reference(self, audio: bytes, *, caller: int = 0) -> RecordingInfo:
        """Check a recording as `encode_reference` does, and raise the same errors, but do not encode it."""
        return await self._model(CLONING)[0].check_reference(audio, caller=caller)

    def speaker_embedding(self, speaker: str) -> Float32Array:
        """Return the embedding [hidden] of a preset voice; see `Model.speaker_embedding`."""
        return self._model(Need(("custom_voice",), speaker))[0].model.speaker_embedding(speaker)

    async def rehearse(self) -> list[WarmUp]:
        """Warm up each pair that is to serve in turn, with an utterance that nobody hears. Raises EngineError if one
        does not speak."""
        return [await warm_up(pair) for pair in self._pairs if not pair.is_standby]

    async def close(self) -> None:
        """Leave all workers. Live streams end."""
        async with self._resources:
            for rehearsal in self._rehearsals.values():
                rehearsal.cancel()
            await asyncio.gather(*self._rehearsals.values(), return_exceptions=True)
            for pair in self._pairs:
                pair.close()
        self._tell()

    def _model_of(self, params: SynthesisParams) -> list[Engine]:
        return self._models[0] if len(self._models) == 1 else self._model(Need.of(params))

    def _model(self, need: Need) -> list[Engine]:
        return self._models[choose_model(need, self.infos)]

    def _on_change(self, pair: Engine) -> None:
        if (rehearsal := self._rehearsals.get(pair)) is not None:
            rehearsal.cancel()
        if pair.state is EngineState.READY:
            self._rehearsals[pair] = asyncio.create_task(self._rehearse(pair), name="rehearsal")
        elif pair.state not in (EngineState.STARTING, EngineState.CLOSED):
            self._tell()

    async def _rehearse(self, pair: Engine) -> None:
        """Have workers that have come up speak, and try again until they do."""
        try:
            for wait_s in chain(TRY_AGAIN_S, repeat(TRY_AGAIN_S[-1])):
                pair.can_speak = await _speaks(pair)
                pair.was_tried = True
                self._tell()
                if pair.can_speak:
                    return
                await asyncio.sleep(wait_s)
        except Exception:
            log.exception("the engine of %s takes no more streams, after an internal error", pair.info.model)
            pair.can_speak, pair.was_tried = False, True
            self._tell()

    def _tell(self) -> None:
        if all(pair.was_tried or pair.is_standby for pair in self._pairs):
            self._has_tried.set()
        self._on_state(self.state)

    def _on_room(self) -> None:
        for replicas in self._models:
            replicas[0].placement.place_waiting()


async def _speaks(pair: Engine) -> bool:
    """Return whether the workers that are up can speak."""
    if await pair.has_spoken():
        log.info("%s speaks again: its live streams continue", pair.info.model)
        return True
    try:
        spoken = await warm_up(pair)
    except EngineOverloaded:
        return True  # other server processes have all places: their streams speak
    except EngineError as error:
        # Workers that went down will be replaced. Replacing workers that are up would not help: new ones are alike.
        log.error("the warm-up of %s failed: %s", pair.info.model, error)
        return False
    duration_ms = round(spoken.total_s * 1000)
    log.info("warm-up of %s: %d frames in %d ms", pair.info.model, spoken.num_frames, duration_ms)
    return True


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
