"""The owner's encoders, one for each checkpoint, which encode the recordings of all server processes."""

import asyncio
from collections.abc import Callable, Sequence

from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.config import EngineConfig
from sonorant.engine.encoder.on_demand import OnDemandEncoder
from sonorant.engine.encoder.wire import Answer
from sonorant.engine.errors import EngineError
from sonorant.engine.owner.link_messages import Encode, Encoded


class Encoders:
    def __init__(self, configs: Sequence[EngineConfig]) -> None:
        """`configs`: of the worker pairs."""
        first = {config.model: config for config in reversed(configs)}
        encoders = {model: OnDemandEncoder(config, load_checkpoint(model)) for model, config in first.items()}
        self._of_pair = [encoders[config.model] for config in configs]
        self._tasks: dict[tuple[int, int], asyncio.Task[None]] = {}  # by server process and job

    def pid(self, pair: int) -> int | None:
        """The process id of a pair's encoder, or None while it is not running."""
        return self._of_pair[pair].pid

    def encode(self, server: int, request: Encode, answer: Callable[[Encoded], None]) -> None:
        """Encode a recording of a server process, and call `answer`, unless the recording is dropped before."""
        with request.audio:
            audio = request.audio.read()
        key = server, request.job
        self._tasks[key] = asyncio.create_task(self._encode(request, audio, answer), name="recording")
        self._tasks[key].add_done_callback(lambda _: self._tasks.pop(key))

    async def _encode(self, request: Encode, audio: bytes, answer: Callable[[Encoded], None]) -> None:
        said: Answer | EngineError
        try:
            said = await self._of_pair[request.pair].encode(audio, request.want)
        except EngineError as error:
            said = error
        answer(Encoded(request.job, said))

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
        """Stop the encoders. What is not encoded yet fails with EngineUnavailable."""
        await asyncio.gather(*(encoder.close() for encoder in set(self._of_pair)))
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()))
