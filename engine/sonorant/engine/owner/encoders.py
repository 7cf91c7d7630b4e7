"""The owner's encoders, one for each checkpoint that clones, which encode the recordings of all server processes."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from sonorant.engine.card.driver import find_card
from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.config import EngineConfig
from sonorant.engine.encoder.encodings import Encodings
from sonorant.engine.encoder.kept_up import KeptUpEncoder
from sonorant.engine.encoder.wire import EncoderAnswer, Upload
from sonorant.engine.errors import EngineError
from sonorant.engine.owner.link_messages import Encode, Encoded
from sonorant.engine.types import Spent


class Encoders:
    def __init__(self, configs: Sequence[EngineConfig]) -> None:
        """`configs`: of the worker pairs. Use `start`."""
        first = {config.model: config for config in reversed(configs)}
        checkpoints = {model: load_checkpoint(model) for model in first}
        self._of_model = {
            model: KeptUpEncoder(config, checkpoints[model])
            for model, config in first.items()
            if checkpoints[model].speaker_encoder is not None
        }
        self._models = [config.model for config in configs]
        config = first[next(iter(self._of_model), configs[0].model)]
        self._start_timeout_s = config.start_timeout_s
        self._encodings = Encodings(
            config.encoder.max_recording_wait_s,
            config.encoder.encode_timeout_s,
            config.start_timeout_s,
            on_gpu=find_card(config.encoder_device) is not None,
        )
        self._tasks: dict[tuple[int, int], asyncio.Task[None]] = {}  # by server process and job

    @property
    def is_empty(self) -> bool:
        """Whether no checkpoint clones."""
        return not self._of_model

    async def start(self) -> None:
        """Start all processes and wait until they have loaded. Raises CheckpointError or EngineError."""
        if self._of_model:
            async with asyncio.TaskGroup() as tasks:
                for encoder in self._of_model.values():
                    tasks.create_task(encoder.start())
                tasks.create_task(self._encodings.start())

    def pid(self, pair: int) -> int | None:
        """The process id of a pair's encoder, or None if there is none now."""
        encoder = self._of_model.get(self._models[pair])
        return encoder.pid if encoder is not None else None

    @property
    def decoder_pids(self) -> list[int]:
        return self._encodings.decoder_pids

    def encode(self, server: int, request: Encode, answer: Callable[[Encoded], None]) -> None:
        """Encode a recording of a server process, and call `answer`, unless the recording is dropped before."""
        encoder = self._of_model[self._models[request.pair]]
        with request.audio:
            if (known := self._encodings.known(encoder, request.upload)) is not None:
                answer(Encoded(request.job, known, Spent()))
                return
            upload = replace(request.upload, audio=request.audio.read())
        key = server, request.job
        self._tasks[key] = asyncio.create_task(self._encode(encoder, request.job, upload, answer), name="recording")
        self._tasks[key].add_done_callback(lambda _: self._tasks.pop(key))

    async def _encode(
        self, encoder: KeptUpEncoder, job: int, upload: Upload, answer: Callable[[Encoded], None]
    ) -> None:
        found: EncoderAnswer | EngineError
        spent = Spent()
        try:
            found, spent = await self._encodings.encode(encoder, upload)
        except EngineError as error:
            found = error
        answer(Encoded(job, found, spent))

    def drop(self, server: int, job: int) -> None:
        """The caller of a recording has left."""
        if (task := self._tasks.get((server, job))) is not None:
            task.cancel()

    def leave(self, server: int) -> None:
        """A server process is gone with its callers."""
        for number, job in list(self._tasks):
            if number == server:
                self.drop(number, job)

    async def close(self) -> None:
        """Stop the processes. What is not encoded yet fails with EngineUnavailable."""
        await self._encodings.close()
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()))
        await asyncio.gather(*(encoder.close() for encoder in self._of_model.values()))
