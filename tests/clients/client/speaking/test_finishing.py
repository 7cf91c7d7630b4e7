"""The end of a session whose call has just ended, too."""

from typing import Any

import grpc

from sonorant.client.speaking.journal import Journal
from sonorant.client.speaking.session import Session
from sonorant.client.transport.call_opener import CallOpener
from sonorant.tts.v1.speak_pb2 import SpeakConfig


class EndedCall:
    """One of gRPC whose end has come and was not read."""

    async def done_writing(self) -> None:
        raise grpc.aio.InternalError('Failed "execute_batch"')

    def cancel(self) -> None:
        """There is nothing to cancel."""


async def test_it_is_left_to_the_reader_to_say_how_the_call_ended() -> None:
    connections: Any = None
    async with Session(connections, CallOpener("", SpeakConfig()), Journal(), EndedCall()) as session:
        await session.finish()
