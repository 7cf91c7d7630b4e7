"""Several worker pairs behind the interface of one engine: of one checkpoint, of several, or both.

An utterance goes to the first checkpoint that has what its voice needs, and there to the pair with the fewest live
streams. The streams of a pair that goes down go on with its replicas, or with its new workers. A pair serves once it
has spoken: an utterance that nobody hears, or one of those that went on with it.
"""

import asyncio
import dataclasses
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from sonorant.engine.checkpoint.config import Checkpoint, load_checkpoint
from sonorant.engine.config import EngineConfig, MpsMode, device_with_gpus
from sonorant.engine.errors import CheckpointError, CodecDiffers, EngineError, EngineOverloaded, EngineUnavailable
from sonorant.engine.prompt.explain import Explanation
from sonorant.engine.serving.auto import sized
from sonorant.engine.serving.engine import Engine, EngineStats
from sonorant.engine.serving.info import EngineInfo
from sonorant.engine.serving.mps import mps_for, this_machine
from sonorant.engine.serving.placement import Placement
from sonorant.engine.serving.routing import Load, Need, choose_model, choose_pair
from sonorant.engine.serving.state import EngineState
from sonorant.engine.serving.stored import StoredStream
from sonorant.engine.serving.stream import EngineStream
from sonorant.engine.serving.warm_up import WarmUp, warm_up
from sonorant.engine.types import EncodedReference, Float32Array, Int16Array, RecordingInfo, SynthesisParams

log = logging.getLogger(__name__)

TRY_AGAIN_S = (1.0, 2.0, 5.0, 10.0, 30.0)  # after the first, second, ... warm-up that failed; the last one repeats

CLONING = Need(("base",))

# What several pairs are together: the first of these that one of them is.
_BEST_FIRST = (EngineState.READY, EngineState.STARTING, EngineState.RESTARTING, EngineState.FAILED, EngineState.CLOSED)


@dataclass(frozen=True, slots=True)
class PairStats:
    """How one worker pair is, and what it does."""

    model: str
    state: EngineState
    num_slots: int
    stats: EngineStats


class _Pair:
    def __init__(self, config: EngineConfig, engine: Engine, states: "asyncio.Queue[EngineState]") -> None:
        self.config = config
        self.engine = engine
        self._states = states  # of the engine, from its start on
        self._can_speak: bool | None = None  # since its workers came up; None: it has not tried to
        self._has_begun = False  # it is known whether its first workers can speak

    @property
    def is_awaited(self) -> bool:
        return self.state is EngineState.STARTING and not self._has_begun

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
        """Its workers are being replaced, or new ones are about to speak for the first time."""
        return self._has_begun and self.state in (EngineState.RESTARTING, EngineState.STARTING)

    def load_of_stored(self) -> Load:
        serves = self.state is EngineState.READY and not self.engine.is_standby
        limit = self.engine.max_stored
        return Load(serves, self.engine.num_stored, limit, limit)

    async def follow(self, changed: Callable[[], None]) -> None:
        """Have it speak whenever its workers come up, and again if it cannot; `changed` is called after each change."""
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
            log.exception("the engine of %s takes no streams any more: an error of ours", self.engine.info.model)
            self._can_speak = False
            self._has_begun = True
            changed()

    async def _next_state(self, num_tries: int) -> EngineState | None:
        """Of the engine; None when it is time for another try, of a pair that is up and could not speak."""
        wait_s = TRY_AGAIN_S[min(num_tries, len(TRY_AGAIN_S)) - 1] if self._can_speak is False else None
        try:
            async with asyncio.timeout(wait_s):
                return await self._states.get()
        except TimeoutError:
            return None

    async def _rehearse(self) -> bool | None:
        """Whether the workers that are up can speak; None if they went down."""
        if await self.engine.has_spoken():
            log.info("%s speaks: streams that were live go on", self.engine.info.model)
            return True
        if self.engine.state is not EngineState.READY:
            return None
        try:
            spoken = await warm_up(self.engine)
        except EngineError as error:
            log.error("the warm-up of %s failed: %s", self.engine.info.model, error)
            # Workers that went down will be replaced; replacing some that are up by their like would not help.
            return False if self.engine.state is EngineState.READY else None
        duration_ms = round(spoken.total_s * 1000)
        log.info("warm-up of %s: %d frames in %d ms", self.engine.info.model, spoken.num_frames, duration_ms)
        return True


class EnginePool:
    """The pairs, and which of them speaks. What it shares with `Engine` means the same here."""

    def __init__(
        self, pairs: Sequence[_Pair], on_state: Callable[[EngineState], None], resources: AsyncExitStack
    ) -> None:
        """See `start`. `resources` are released once the workers are gone."""
        self._pairs = pairs
        self._resources = resources
        models: dict[object, list[_Pair]] = {}
        for pair in pairs:
            models.setdefault(pair.config.model, []).append(pair)
        self._models = list(models.values())
        for replicas in self._models:
            placement = Placement([pair.engine for pair in replicas])
            for pair in replicas:
                pair.engine.placement = placement
        self.infos = tuple(pairs[0].engine.info for pairs in self._models)  # a checkpoint each, in the order given
        self.info = _joined_info(self.infos, [pair.engine.info for pair in pairs if not pair.engine.is_standby])
        self._on_state = on_state
        self._tell()
        self._followers = [asyncio.create_task(pair.follow(self._tell), name="worker pair") for pair in pairs]

    @classmethod
    async def start(
        cls,
        configs: Sequence[EngineConfig],
        on_state: Callable[[EngineState], None] | None = None,
        *,
        mps: MpsMode = "false",
    ) -> "EnginePool":
        """Start a worker pair for each config and return when all have loaded; any pair that has a model speaks for it.

        `on_state` gets the state at first and after each change of a pair, which need not change it: READY means that
        one of the pairs has spoken, and the first READY that all have tried to. `mps` is about a CUDA MPS daemon of the
        workers' own; see `plan_mps`. Raises CheckpointError or EngineError, with nothing left running, if one cannot
        load.
        """
        _check_same_codec([load_checkpoint(model) for model in {config.model: None for config in configs}])
        configs = _sharing(await asyncio.to_thread(sized, configs))
        async with AsyncExitStack() as stack:
            machine = await asyncio.to_thread(this_machine)
            if folder := await stack.enter_async_context(mps_for(mps, configs, machine)):
                configs = [dataclasses.replace(config, mps_pipe_directory=folder) for config in configs]
            pairs = await _start_pairs(configs)
            return cls(pairs, on_state or (lambda state: None), stack.pop_all())

    @property
    def state(self) -> EngineState:
        if any(pair.is_awaited for pair in self._pairs):
            return EngineState.STARTING
        states = {pair.state for pair in self._pairs}
        return next(state for state in _BEST_FIRST if state in states)

    @property
    def num_streams(self) -> int:
        return sum(pair.engine.num_streams for pair in self._pairs)

    def pairs(self) -> list[PairStats]:
        return [
            PairStats(pair.engine.info.model, pair.state, pair.config.talker.num_slots, pair.engine.stats())
            for pair in self._pairs
        ]

    def info_for(self, need: Need) -> EngineInfo:
        """Of the checkpoint that would speak; it may be one that cannot, which `check` then tells."""
        return self.infos[choose_model(need, self.infos)]

    def check(self, params: SynthesisParams) -> None:
        """Raise InvalidSynthesis, UnknownSpeaker or UnsupportedTask if `open` would. Takes nothing."""
        self._model(Need.of(params))[0].engine.check(params)

    def explain(self, params: SynthesisParams, text: str) -> Explanation:
        """What the model would be given. Raises what `check` raises, and InvalidSynthesis if the text is too long."""
        return self._model(Need.of(params))[0].engine.explain(params, text)

    def open(
        self,
        params: SynthesisParams,
        credit_frames: int | None = None,
        known_codes: Int16Array | None = None,
        *,
        spare: int = 0,
        waits: bool = False,
        caller: int = 0,
    ) -> EngineStream:
        """A new stream. Raises EngineUnavailable, EngineOverloaded, or what `check` raises; see `Engine.open`.

        `spare`: so many more must fit into the checkpoint's pairs, for whom their places are kept. `waits`: where no
        pair serves it goes to one that is on its way back. `caller` as there.
        """
        pairs = self._model(Need.of(params))
        loads = [pair.load() for pair in pairs]
        index = choose_pair(loads)
        if index is None and waits and (back := [pair for pair in pairs if pair.comes_back]):
            emptiest = min(back, key=lambda pair: (pair.engine.is_standby, pair.engine.num_places))
            return emptiest.engine.open(params, credit_frames, known_codes, waits=True, caller=caller)
        if index is None:
            states = " and ".join(sorted({pair.state for pair in pairs}))
            raise EngineUnavailable(f"the engine of {pairs[0].engine.info.model} is {states}; try again later")
        if spare and sum(load.room for load in loads) <= spare:
            raise EngineOverloaded("all streams are in use, or kept for others; try again later")
        return pairs[index].engine.open(params, credit_frames, known_codes, caller=caller)

    def info_for_codec(self, codec: str) -> EngineInfo:
        """Of a checkpoint with this codec. Raises CodecDiffers if there is none."""
        for info in self.infos:
            if info.codec == codec:
                return info
        served = " and ".join(f"{info.codec} ({info.model})" for info in self.infos)
        raise CodecDiffers(
            f"the codes were made with codec {codec}, and this server has {served}; decode them where they were made"
        )

    def open_stored(
        self,
        codec: str,
        segments: Sequence[Int16Array],
        past_codes: Int16Array | None = None,
        credit_frames: int | None = None,
    ) -> StoredStream:
        """Stored codes into sound, by any pair whose checkpoint has this codec. Raises CodecDiffers, and what
        `Engine.open_stored` raises."""
        self.info_for_codec(codec)
        pairs = [pair for pair in self._pairs if pair.engine.info.codec == codec]
        loads = [pair.load_of_stored() for pair in pairs]
        index = choose_pair(loads)
        if index is None:
            states = " and ".join(sorted({pair.state for pair in pairs}))
            raise EngineUnavailable(f"the engine is {states}; try again later")
        return pairs[index].engine.open_stored(segments, past_codes, credit_frames)

    async def encode_reference(self, audio: bytes, *, with_codes: bool) -> EncodedReference:
        """What cloning takes out of a recording, for the first Base checkpoint; see `Engine.encode_reference`."""
        return await self._model(CLONING)[0].engine.encode_reference(audio, with_codes=with_codes)

    async def check_reference(self, audio: bytes) -> RecordingInfo:
        """Everything `encode_reference` checks, and raises, without the encoding."""
        return await self._model(CLONING)[0].engine.check_reference(audio)

    def speaker_embedding(self, speaker: str) -> Float32Array:
        """Of a preset voice; see `Engine.speaker_embedding`."""
        return self._model(Need(("custom_voice",), speaker))[0].engine.speaker_embedding(speaker)

    async def rehearse(self) -> list[WarmUp]:
        """One utterance that nobody hears from each pair in turn. Raises EngineError if one does not speak."""
        return [await warm_up(pair.engine) for pair in self._pairs]

    async def close(self) -> None:
        """Stop all workers; streams that are still live end."""
        async with self._resources:
            for follower in self._followers:
                follower.cancel()
            await asyncio.wait(self._followers)
            await asyncio.gather(*(pair.engine.close() for pair in self._pairs))
        self._tell()

    def _model(self, need: Need) -> list[_Pair]:
        return self._models[choose_model(need, self.infos)]

    def _tell(self) -> None:
        self._on_state(self.state)


async def _start_pairs(configs: Iterable[EngineConfig]) -> list[_Pair]:
    pairs: list[_Pair] = []

    async def start(config: EngineConfig) -> _Pair:
        states: asyncio.Queue[EngineState] = asyncio.Queue()
        pairs.append(_Pair(config, await Engine.start(config, states.put_nowait), states))
        return pairs[-1]

    try:
        async with asyncio.TaskGroup() as tasks:
            started = [tasks.create_task(start(config)) for config in configs]
    except BaseException as error:
        await asyncio.gather(*(pair.engine.close() for pair in pairs))
        raise (error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error) from None
    return [task.result() for task in started]


def _sharing(configs: Sequence[EngineConfig]) -> list[EngineConfig]:
    """Where no number of threads is given, all workers together get as many as there are cores; talkers on the same GPU
    share its memory, which each of them would otherwise find free."""
    num_busy = sum(not config.is_standby for config in configs)
    threads = max(1, len(os.sched_getaffinity(0)) // (2 * num_busy))
    devices = [device_with_gpus(config.talker.device) for config in configs]
    return [
        config.but(
            cpu_threads=config.cpu_threads or threads,
            kv_memory_share=config.talker.kv_memory_share / devices.count(device),
        )
        for config, device in zip(configs, devices, strict=True)
    ]


def _check_same_codec(checkpoints: Sequence[Checkpoint]) -> None:
    """The service cuts and paces audio of one frame length and one sample rate."""
    first = checkpoints[0]
    for other in checkpoints[1:]:
        for what, ours, theirs in (
            ("Hz", first.codec.output_sample_rate, other.codec.output_sample_rate),
            ("samples per frame", first.codec.frame_samples, other.codec.frame_samples),
        ):
            if ours != theirs:
                raise CheckpointError(
                    f"{first.name} makes {ours} {what}, {other.name} {theirs}: serve them by servers of their own"
                )


def _joined_info(models: Sequence[EngineInfo], pairs: Sequence[EngineInfo]) -> EngineInfo:
    """What holds of all together; task, size and defaults are those of the first."""
    return dataclasses.replace(
        models[0],
        model=", ".join(info.model for info in models),
        speakers=tuple(dict.fromkeys(speaker for info in models for speaker in info.speakers)),
        languages=tuple(dict.fromkeys(language for info in models for language in info.languages)),
        max_context=min(info.max_context for info in models),
        max_streams=sum(info.max_streams for info in pairs),
        credit_frames=min(info.credit_frames for info in models),
    )
