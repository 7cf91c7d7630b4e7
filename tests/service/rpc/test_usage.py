"""What a key has used and has left: in `done`, by RPC, by the gateway, and on the command line."""

import asyncio
import json
import os
import sys
import time
from pathlib import Path

import grpc

from sonorant.client import SpeechClient, UtteranceDone
from sonorant.client.access import Access
from sonorant.service.admission.ledger import Ledger
from sonorant.tts.v1.text_to_speech_service_pb2 import GetUsageRequest, SynthesizeRequest
from tests.gateway.harness import gateway_to
from tests.service.fake_engine import FakeEngine
from tests.service.harness import failure, served
from tests.service.keys import ADA, BOB, bearer, table
from tests.service.voice_calls import RECORDING

LIMITS = "max_text_chars_per_minute = 6000\nmax_sessions = 7"
MS_PER_CHAR = 160  # of the fake engine


async def test_a_key_learns_what_it_has_used_and_what_is_left(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(table("ada", ADA, LIMITS) + table("bob", BOB))
    async with served(FakeEngine(task="base"), api_keys=tmp_path / "keys") as server:
        clone = {"voice": {"reference": {"audio": RECORDING}}}
        for text in ("ab", "cde"):
            made = await server.stub.Synthesize(SynthesizeRequest(text=text, config=clone), metadata=bearer(ADA))
        assert (made.usage.input_chars, made.usage.audio_ms, made.usage.clones) == (5, 5 * MS_PER_CHAR, 2)
        other = await server.stub.GetUsage(GetUsageRequest(), metadata=bearer(BOB))
        assert (other.key, other.usage.input_chars, other.HasField("text_chars_left")) == ("bob", 0, False)

        async with SpeechClient(server.address, access=Access(ADA)) as client:
            told = await client.usage()
        assert (told.key, told.usage) == ("ada", made.usage)
        assert (told.max_text_chars_per_minute, told.max_sessions, told.active_sessions) == (6000, 7, 0)
        assert 6000 - 5 <= told.text_chars_left <= 6000
        assert 0 <= time.time() - told.since.seconds < 600

        async with gateway_to(server, headers=dict(bearer(ADA))) as door, door.http.get("/v1/audio/usage") as answer:
            seen = await answer.json()
        assert (seen["key"], seen["characters"], seen["audio_seconds"], seen["clones"]) == ("ada", 5, 0.8, 2)
        assert (seen["max_characters_per_minute"], seen["max_sessions"]) == (6000, 7)

        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sonorant.cli", "usage", "--server", server.address),
            env=os.environ | {"SONORANT_CLIENT_API_KEY": ADA},
            stdout=asyncio.subprocess.PIPE,
        )
        printed, _ = await process.communicate()
        assert json.loads(printed)["usage"]["clones"] == "2"


async def test_every_done_has_the_totals_of_its_key(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(table("ada", ADA))
    async with (
        served(FakeEngine(), api_keys=tmp_path / "keys") as server,
        SpeechClient(server.address, access=Access(ADA)) as client,
        client.speak(max_lead_ms=0) as session,
    ):
        for text in ("ab", "cde"):
            await session.send_text(text)
            await session.end()
        await session.finish()
        usages = [event.payload.usage async for event in session if isinstance(event.payload, UtteranceDone)]
    assert [(usage.input_chars, usage.audio_ms) for usage in usages] == [(2, 2 * MS_PER_CHAR), (5, 5 * MS_PER_CHAR)]


async def test_without_keys_nothing_is_counted_and_the_answer_says_so() -> None:
    async with served(FakeEngine()) as server:
        made = await server.stub.Synthesize(SynthesizeRequest(text="ab"))
        assert not made.HasField("usage")
        code, message, details = await failure(server.stub.GetUsage(GetUsageRequest()))
    assert (code, details["ErrorInfo"].reason) == (grpc.StatusCode.UNIMPLEMENTED, "USAGE_NOT_COUNTED")
    assert "--api-keys" in message


def test_all_server_processes_count_together_and_a_dead_ones_counts_stay() -> None:
    ledger = Ledger(2, num_rows=3)
    first, second = ledger.of_process(0), ledger.of_process(1)
    first.use(7, (10, 100, 0))
    second.use(7, (1, 2, 3))
    ledger.clear(0)
    assert first.used(7) == second.used(7) == (11, 102, 3) and first.used(8) == (0, 0, 0)
    for caller in (8, 9):  # the row of the first is taken again, and begins anew
        second.use(caller, (1, 0, 0))
    assert second.used(9) == (1, 0, 0)
    ledger.close()
