"""Opens the calls of one session: the first one, and those that continue it on another server."""

from collections.abc import Sequence
from typing import Any

import grpc

from sonorant.client.errors import SpeechError
from sonorant.client.transport.server_search import Attempt
from sonorant.client.transport.trace import Trace
from sonorant.tts.v1.speak_pb2 import Opening, SessionStarted, SpeakConfig, SpeakRequest

RESUMING = "sonorant-resuming"  # metadata of a call that continues another one


class CallOpener:
    def __init__(
        self, target: str, config: SpeakConfig, trace: Trace | None = None, opening: Sequence[SpeakRequest] = ()
    ) -> None:
        """`opening`: the first text and its end, which go with the config."""
        self.target = target
        self.config = config
        self.trace = trace
        self._opening = opening

    async def first(self, attempt: Attempt) -> SessionStarted:
        """Send the first text and its end with the config."""
        if not self._opening:
            return await self._connect(attempt, self.config)
        first = self._opening[0]
        config = SpeakConfig(
            opening=Opening(utterance_id=first.utterance_id, text=first.text, end=len(self._opening) > 1)
        )
        config.MergeFrom(self.config)
        return await self._connect(attempt, config)

    async def again(self, attempt: Attempt) -> SessionStarted:
        return await self._connect(attempt, self.config, resuming=True)

    async def write(self, call: Any, request: SpeakRequest) -> None:
        if self.trace is not None:
            self.trace.sent(request)
        await call.write(request)

    async def _connect(self, attempt: Attempt, config: SpeakConfig, *, resuming: bool = False) -> SessionStarted:
        # Wait for the reply before sending more, so that a server that refuses can say why: grpc.aio overwrites the
        # status of a call if a write comes after its end.
        call = attempt.call = attempt.stub.Speak(metadata=((RESUMING, "1"),) if resuming else ())
        try:
            await self.write(call, SpeakRequest(config=config))
            headers = await call.initial_metadata()
            attempt.has_headers = True
            if self.trace is not None:
                self.trace.metadata("headers", headers)
            first = await call.read()
        except BaseException:
            call.cancel()
            raise
        if first is grpc.aio.EOF:
            raise SpeechError(grpc.StatusCode.INTERNAL, f"the server at {self.target} ended the session at once")
        if self.trace is not None:
            self.trace.received(first)
        started: SessionStarted = first.session
        return started
