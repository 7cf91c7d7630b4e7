"""`python -m sonorant.asr` as its users meet it: a process that lives as long as its recognizer."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import grpc

from sonorant.tts.v1.speak_pb2 import SpeakRequest, SpeakResponse
from tests.clients.scripted_server import Speech, scripted_server


class EndsSessions(Speech):
    """As a server does that has heard nothing for too long."""

    async def Speak(
        self, requests: AsyncIterator[SpeakRequest], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[SpeakResponse]:
        async for response in super().Speak(requests, context):
            yield response
            if response.HasField("done"):
                return


async def test_a_session_that_ends_before_the_recognizer_is_told_and_no_success(tmp_path: Path) -> None:
    async with scripted_server(speech=EndsSessions()) as (target, speech):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sonorant.asr", "--server", target, "--out", str(tmp_path / "out.wav")),
            stdin=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write(b'{"final": "so it is"}\n')  # and stdin stays open
        told = (await process.stderr.read()).decode()
        assert await process.wait() == 1
    assert told.splitlines()[-1].startswith("asr: the server ended the session; ")
    assert speech.received[0].config.idle_timeout_ms == 3_600_000, "people are silent for minutes"
